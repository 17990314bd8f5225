"""One call of an ATen op, as a converter sees it.

Input: a torch schema, arguments already turned into values and numbers, the meta data of the results. Output: `Call`,
through which a converter reads its arguments and appends nodes. Invariant: tensors are `ir.Value`s with a dtype and a
rank; ints are Python's or sympy expressions (`Dim`); dtypes are torch's; every default of the schema is filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from smelt.export.builder import Builder
from smelt.export.dtypes import is_float, promote, to_onnx
from smelt.export.records import Refused
from smelt.export.sizes import Dim, Sizes, dim_of


@dataclass(frozen=True)
class Meta:
    """What is known of a result: its type, and its sizes (None when only the rank is known, in one-op programs)."""

    dtype: ir.DataType
    dims: tuple[Dim, ...]
    complex: bool = False

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]
    outs: tuple[Any, ...]
    builder: Builder
    sizes: Sizes

    # Results

    @property
    def dtype(self) -> ir.DataType:
        """The element type of the (first) result, after torch's own promotion."""
        return self._first.dtype

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The sizes of the (first) result; refuses where they are not known (one-op programs)."""
        dims = self._first.dims
        if any(dim is None for dim in dims):
            raise Refused("the sizes of the result are not known beforehand")
        return dims

    @property
    def complex(self) -> bool:
        """Whether the (first) result is complex: a real tensor whose last axis holds the two parts."""
        return self._first.complex

    @property
    def out_rank(self) -> int:
        return self._first.rank

    @property
    def _first(self) -> Meta:
        if not self.outs or not isinstance(self.outs[0], Meta):
            raise Refused("the result is no tensor")
        return self.outs[0]

    # Nodes

    def op(self, op_type: str, *operands: Any, **attributes: Any) -> Any:
        """Append an ONNX node; see `Builder.op`."""
        return self.builder.op(op_type, *operands, **attributes)

    def cast(self, value: Any, dtype: ir.DataType | torch.dtype | None = None) -> ir.Value:
        """A tensor or a number in `dtype`, by default the type of the result."""
        wanted = self.dtype if dtype is None else to_onnx(dtype) if isinstance(dtype, torch.dtype) else dtype
        return self.builder.cast(value, wanted) if isinstance(value, ir.Value) else self.scalar(value, wanted)

    def scalar(self, number: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A Python or symbolic number as a 0-d tensor, by default of the result's type."""
        if isinstance(number, ir.Value):
            return self.builder.cast(number, dtype or self.dtype)
        return self.sizes.scalar(number, dtype or self.dtype)

    def constant(self, data: Any, dtype: ir.DataType | None = None) -> ir.Value:
        return self.builder.constant(data, dtype)

    def filled(self, dims: Iterable[Dim] | ir.Value, number: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A tensor of one number."""
        dtype = dtype or self.dtype
        shape = dims if isinstance(dims, ir.Value) else self.vector(dims)
        if isinstance(number, (bool, int, float)):
            value = ir.Tensor(np.array([number]).astype(dtype.numpy()), dtype=dtype)
            return self.op("ConstantOfShape", shape, value=value)
        return self.op("Expand", self.scalar(number, dtype), shape)

    # Sizes

    def dim(self, value: ir.Value, axis: int) -> Dim:
        return self.sizes.of(value, axis)

    def all_dims(self, value: ir.Value) -> list[Dim]:
        return [self.sizes.of(value, axis) for axis in range(self.rank(value))]

    def rank(self, value: ir.Value) -> int:
        if value.shape is None:
            raise Refused(f"the rank of {value.name} is not known")
        return len(value.shape)

    def axis(self, value: ir.Value, dim: int) -> int:
        """`dim` counted from the front."""
        return dim % max(self.rank(value), 1)

    def axes(self, value: ir.Value, dims: int | Sequence[int] | None) -> list[int]:
        """Axes counted from the front; all for None or an empty list, as torch's reductions mean it."""
        rank = self.rank(value)
        if dims is None or (not isinstance(dims, int) and not dims):
            return list(range(rank))
        return sorted(d % max(rank, 1) for d in ([dims] if isinstance(dims, int) else dims)) if rank else []

    def vector(self, dims: Iterable[Dim]) -> ir.Value:
        """Sizes as an int64 vector."""
        return self.sizes.vector(dims)

    def shape_of(self, value: ir.Value) -> ir.Value:
        """The shape of a value as an int64 vector; a constant when it is static."""
        dims = list(value.shape.dims) if value.shape is not None else [None]
        if all(isinstance(dim, int) for dim in dims):
            return self.constant(dims, ir.DataType.INT64)
        return self.builder.remember(("shape", value), lambda: self.op("Shape", value, shape=[len(dims)]))

    def reshape(self, value: ir.Value, dims: Sequence[Dim], asked: Sequence[Dim] | None = None) -> ir.Value:
        """Reshape; sizes that stay where they are need no arithmetic. `asked` may hold the -1 of the user."""
        wanted = [dim_of(dim) for dim in dims]
        if value.shape is not None and self.all_dims(value) == wanted:
            return value
        if not any(dim == 0 for dim in wanted):
            short = self._short(value, wanted, asked)
            if short is not None:
                return self.op("Reshape", value, self.constant(short, ir.DataType.INT64), shape=_shape(wanted))
        return self.op("Reshape", value, self.vector(wanted), allowzero=1, shape=_shape(wanted))

    def _short(self, value: ir.Value, wanted: list[Dim], asked: Sequence[Dim] | None) -> list[int] | None:
        """Constants only: 0 copies the size at the same axis, a single -1 is what remains."""
        have = self.all_dims(value) if value.shape is not None else []
        short = [
            dim if isinstance(dim, int) else 0 if axis < len(have) and have[axis] == dim else -1
            for axis, dim in enumerate(wanted)
        ]
        if short.count(-1) > 1 and asked is not None and -1 in asked:
            rest = [dim for dim in asked if not isinstance(dim, int)]
            short = [*asked] if not rest else short
        return short if short.count(-1) <= 1 else None

    def expand(self, value: ir.Value, dims: Sequence[Dim]) -> ir.Value:
        wanted = [dim_of(dim) for dim in dims]
        if value.shape is not None and self.all_dims(value) == wanted:
            return value
        return self.op("Expand", value, self.vector(wanted), shape=_shape(wanted))

    # Types

    def promoted(self, *operands: Any) -> list[ir.Value]:
        """Tensors and numbers in their common type."""
        dtype = promote(*operands)
        return [self.cast(operand, dtype) for operand in operands]

    def floating(self, value: ir.Value) -> ir.Value:
        """A value in a floating type: its own, or the result's."""
        return value if is_float(value.dtype) else self.cast(value)


def _shape(dims: Sequence[Dim]) -> list[int | str]:
    return [dim if isinstance(dim, int) else str(dim) for dim in dims]
