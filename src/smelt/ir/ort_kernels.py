"""Which element types ONNX Runtime's CPU kernels take.

Input: an op's schema, the types bound to its type variables. Output: types to compute in instead, where there is no
kernel. Invariant: a substitute holds every value of the type it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import onnx
import onnx_ir as ir

_T = ir.DataType
_WIDER: Final[dict[ir.DataType, tuple[ir.DataType, ...]]] = {
    _T.BOOL: (_T.UINT8, _T.INT32, _T.INT64, _T.FLOAT),
    _T.UINT8: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.INT8: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.INT16: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.UINT16: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.INT32: (_T.INT64, _T.DOUBLE),
    _T.UINT32: (_T.INT64, _T.DOUBLE),
    _T.BFLOAT16: (_T.FLOAT,),
    _T.FLOAT: (_T.DOUBLE,),
}
_NAMES: Final = {
    _T.BOOL: "bool", _T.UINT8: "uint8", _T.INT8: "int8", _T.INT16: "int16", _T.UINT16: "uint16", _T.INT32: "int32",
    _T.UINT32: "uint32", _T.INT64: "int64", _T.UINT64: "uint64", _T.FLOAT16: "float16", _T.BFLOAT16: "bfloat16",
    _T.FLOAT: "float", _T.DOUBLE: "double", _T.STRING: "string", _T.COMPLEX64: "complex64",
    _T.COMPLEX128: "complex128", _T.FLOAT8E4M3FN: "float8e4m3fn", _T.FLOAT8E5M2: "float8e5m2",
}  # fmt: skip


@lru_cache(maxsize=1)
def _kernels() -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            found.setdefault((kernel.domain, kernel.op_name), []).append(kernel)
    return found


@lru_cache(maxsize=4096)
def _admitted(op_type: str, since: int, variables: tuple[tuple[str, ir.DataType], ...]) -> bool:
    kernels = _kernels().get(("", op_type), [])
    # A kernel's range starts at the version in which the op changed: `since` is the schema's own.
    fitting = [k for k in kernels if k.version_range[0] <= since <= k.version_range[1]]
    if not fitting:
        return True  # A function, expanded by the runtime; or unknown to this version, which says so itself.
    return any(_takes(kernel.type_constraints, variables) for kernel in fitting)


def _takes(constraints: Mapping[str, list[str]], variables: tuple[tuple[str, ir.DataType], ...]) -> bool:
    return all(
        f"tensor({_NAMES.get(dtype, '?')})" in constraints[name] for name, dtype in variables if name in constraints
    )


def substitutes(schema: onnx.defs.OpSchema, bound: Mapping[str, ir.DataType]) -> dict[str, ir.DataType] | None:
    """Type variables that need another type to find a kernel; empty where there is one, None where no type helps."""
    name, since = schema.name, schema.since_version
    # The runtime itself computes float16 in float where it has no kernel.
    bound = {variable: _T.FLOAT if dtype == _T.FLOAT16 else dtype for variable, dtype in bound.items()}
    if _admitted(name, since, tuple(sorted(bound.items()))):
        return {}
    for variable, dtype in bound.items():
        for wider in _WIDER.get(dtype, ()):
            if _admitted(name, since, tuple(sorted({**bound, variable: wider}.items()))):
                return {variable: wider}
    return None


def formal_of(schema: onnx.defs.OpSchema, index: int) -> str:
    """The type variable of an operand, or its type where the op leaves no choice."""
    inputs = schema.inputs
    if not inputs:
        return ""
    formal = inputs[min(index, len(inputs) - 1)]
    if formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic and not formal.is_homogeneous:
        return f"{formal.type_str}#{index}"
    return formal.type_str


def result_formal(schema: onnx.defs.OpSchema, index: int) -> str:
    """The same of a result."""
    return schema.outputs[min(index, len(schema.outputs) - 1)].type_str
