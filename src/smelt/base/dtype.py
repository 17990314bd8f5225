"""Element types: one record each, from which every table of the project derives.

Input: a name of any system (smelt, ONNX, numpy, torch). Output: `DType`. Invariant: sizes are in bits, so that types
below a byte are ordinary members; arithmetic on a value is done in its `compute` type, which narrow floats do not share
with their storage. The tables of the C headers are compared with this one in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np

Kind = Literal["float", "int", "uint", "bool", "complex", "text"]


@dataclass(frozen=True)
class DType:
    """`name` is the short one of the kernel language; `onnx` is the number of `onnx.TensorProto`, `onnx_name` the one
    in `tensor(...)`; `torch` and `c` are empty where the system has none. `compute` is the type of its arithmetic.
    `in_kernels` says that generated code can load and store it."""

    name: str
    bits: int
    kind: Kind
    onnx: int
    onnx_name: str
    numpy: np.dtype[Any] | None
    torch: str = ""
    c: str = ""
    compute: str = ""
    in_kernels: bool = False

    @property
    def bytes(self) -> int:
        """Of one element alone; types below a byte share one."""
        return -(-self.bits // 8)

    @property
    def is_narrow(self) -> bool:
        """Stored in fewer bits than it is computed in."""
        return self.compute != self.name


def _kernel(
    name: str, bits: int, kind: Kind, onnx: int, long: str, torch: str, c: str, numpy: object, compute: str = ""
) -> DType:
    return DType(name, bits, kind, onnx, long, np.dtype(numpy), torch, c, compute or name, in_kernels=True)  # type: ignore[call-overload]


def _weight(name: str, bits: int, kind: Kind, onnx: int, numpy: object, torch: str = "", compute: str = "f32") -> DType:
    """A type of stored weights, which no generated code loads yet."""
    dtype: np.dtype[Any] = np.dtype(numpy)  # type: ignore[call-overload]
    long = str(dtype.name).replace("_", "")
    long = long if long.startswith("float8e4") else long.removesuffix("fn").removesuffix("fnu")  # as onnx spells them
    return DType(name, bits, kind, onnx, long, dtype, torch, compute=compute)


DTYPES: Final[tuple[DType, ...]] = (
    _kernel("f32", 32, "float", 1, "float", "float32", "float", np.float32),
    _kernel("f64", 64, "float", 11, "double", "float64", "double", np.float64),
    _kernel("f16", 16, "float", 10, "float16", "float16", "uint16_t", np.float16, "f32"),
    _kernel("bf16", 16, "float", 16, "bfloat16", "bfloat16", "uint16_t", ml_dtypes.bfloat16, "f32"),
    _kernel("i8", 8, "int", 3, "int8", "int8", "int8_t", np.int8),
    _kernel("i16", 16, "int", 5, "int16", "int16", "int16_t", np.int16),
    _kernel("i32", 32, "int", 6, "int32", "int32", "int32_t", np.int32),
    _kernel("i64", 64, "int", 7, "int64", "int64", "int64_t", np.int64),
    _kernel("u8", 8, "uint", 2, "uint8", "uint8", "uint8_t", np.uint8),
    _kernel("u16", 16, "uint", 4, "uint16", "uint16", "uint16_t", np.uint16),
    _kernel("u32", 32, "uint", 12, "uint32", "uint32", "uint32_t", np.uint32),
    _kernel("u64", 64, "uint", 13, "uint64", "uint64", "uint64_t", np.uint64),
    _kernel("b", 8, "bool", 9, "bool", "bool", "uint8_t", np.bool_),
    DType("c64", 64, "complex", 14, "complex64", np.dtype(np.complex64), "complex64", compute="c64"),
    DType("c128", 128, "complex", 15, "complex128", np.dtype(np.complex128), "complex128", compute="c128"),
    DType("text", 0, "text", 8, "string", None, compute="text"),
    _weight("f8e4m3", 8, "float", 17, ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
    _weight("f8e4m3fnuz", 8, "float", 18, ml_dtypes.float8_e4m3fnuz, "float8_e4m3fnuz"),
    _weight("f8e5m2", 8, "float", 19, ml_dtypes.float8_e5m2, "float8_e5m2"),
    _weight("f8e5m2fnuz", 8, "float", 20, ml_dtypes.float8_e5m2fnuz, "float8_e5m2fnuz"),
    _weight("u4", 4, "uint", 21, ml_dtypes.uint4, compute="i32"),
    _weight("i4", 4, "int", 22, ml_dtypes.int4, compute="i32"),
    _weight("f4e2m1", 4, "float", 23, ml_dtypes.float4_e2m1fn),
    _weight("f8e8m0", 8, "float", 24, ml_dtypes.float8_e8m0fnu),
    _weight("u2", 2, "uint", 25, ml_dtypes.uint2, compute="i32"),
    _weight("i2", 2, "int", 26, ml_dtypes.int2, compute="i32"),
    _weight("f6e2m3", 6, "float", 27, ml_dtypes.float6_e2m3fn),
    _weight("f6e3m2", 6, "float", 28, ml_dtypes.float6_e3m2fn),
)
KERNEL_DTYPES: Final = tuple(d for d in DTYPES if d.in_kernels)

BY_NAME: Final[dict[str, DType]] = {d.name: d for d in DTYPES}
BY_ONNX: Final[dict[int, DType]] = {d.onnx: d for d in DTYPES}
BY_ONNX_NAME: Final[dict[str, DType]] = {d.onnx_name: d for d in DTYPES}
BY_TORCH: Final[dict[str, DType]] = {d.torch: d for d in DTYPES if d.torch}


def find_dtype(name: str) -> DType:
    """By its short name; what there is not is an error that lists what there is."""
    found = BY_NAME.get(name)
    if found is None:
        raise KeyError(f"no element type {name!r}; there are {', '.join(BY_NAME)}")
    return found


def kernel_names(wanted: Callable[[DType], bool]) -> tuple[str, ...]:
    """Short names of the types that generated code knows, in the order of the table."""
    return tuple(d.name for d in KERNEL_DTYPES if wanted(d))
