"""Shapes of values made on the way, as far as they are cheap to tell.

Input: an op and its operands. Output: an `ir.Shape`, or None. Invariant: never wrong; None where a rule is missing,
since the translator states the shape of every result from the FX graph anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx_ir as ir

Dims = list[Any]

_SAME: Final = frozenset((
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh",
    "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round",
    "ScatterElements", "ScatterND", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt",
    "Tan", "Tanh", "ThresholdedRelu", "Trilu", "InstanceNormalization", "GroupNormalization", "BatchNormalization",
))  # fmt: skip
_BROADCAST: Final = frozenset((
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less",     "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Where", "Xor",
))  # fmt: skip


def inferred_shape(op_type: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]) -> ir.Shape | None:
    dims = [list(x.shape.dims) if x is not None and x.shape is not None else None for x in inputs]
    if not dims or dims[0] is None:
        return None
    if op_type in _SAME:
        return ir.Shape(dims[0])
    if op_type in _BROADCAST:
        return _broadcast(dims)
    rule = _RULES.get(op_type)
    return rule(dims, inputs, attributes) if rule is not None else None


SAME_FOR_ALL: Final = frozenset(("Split", "TopK", "MaxPool"))
"""Ops whose results all have one rank."""


def _broadcast(operands: list[Dims | None]) -> ir.Shape | None:
    shapes: list[Dims] = [dims for dims in operands if dims is not None]
    if len(shapes) != len(operands):
        return None
    rank = max(len(dims) for dims in shapes)
    padded = [[1] * (rank - len(dims)) + dims for dims in shapes]
    return ir.Shape([_joined([dims[axis] for dims in padded]) for axis in range(rank)])


def _joined(sizes: list[Any]) -> Any:
    large = [size for size in sizes if size != 1]
    if not large:
        return 1
    static = [size for size in large if isinstance(size, int)]
    if static:
        return static[0]
    return large[0] if all(size == large[0] for size in large) and large[0].value is not None else None


def _transpose(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape:
    order = attributes.get("perm") or range(len(dims[0]))[::-1]
    return ir.Shape([dims[0][axis] for axis in order])


def _constant(inputs: Sequence[ir.Value | None], index: int) -> list[int] | None:
    value = inputs[index] if index < len(inputs) else None
    if value is None or value.const_value is None:
        return None
    return [int(item) for item in value.const_value.numpy().reshape(-1)]


def _unsqueeze(dims: list[Any], inputs: Any, _attributes: dict[str, Any]) -> ir.Shape | None:
    axes = _constant(inputs, 1)
    if axes is None:
        return None
    rank = len(dims[0]) + len(axes)
    new = {axis % rank for axis in axes}
    rest = iter(dims[0])
    return ir.Shape([1 if axis in new else next(rest) for axis in range(rank)])


def _squeeze(dims: list[Any], inputs: Any, _attributes: dict[str, Any]) -> ir.Shape | None:
    axes = _constant(inputs, 1)
    if axes is None:
        return None
    gone = {axis % len(dims[0]) for axis in axes}
    return ir.Shape([size for axis, size in enumerate(dims[0]) if axis not in gone])


def _reduce(dims: list[Any], inputs: Any, attributes: dict[str, Any]) -> ir.Shape | None:
    axes = _constant(inputs, 1)
    if axes is None and len(inputs) > 1:
        return None
    gone = {axis % len(dims[0]) for axis in axes or range(len(dims[0]))}
    if attributes.get("keepdims", 1):
        return ir.Shape([1 if axis in gone else size for axis, size in enumerate(dims[0])])
    return ir.Shape([size for axis, size in enumerate(dims[0]) if axis not in gone])


def _shape(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape:
    bounds = slice(attributes.get("start", 0), attributes.get("end"))
    return ir.Shape([len(range(len(dims[0]))[bounds])])


def _reshape(_dims: list[Any], inputs: Any, attributes: dict[str, Any]) -> ir.Shape | None:
    sizes = _constant(inputs, 1)
    if sizes is None:
        return None
    zero_kept = attributes.get("allowzero")
    return ir.Shape([None if size < 0 or (size == 0 and not zero_kept) else size for size in sizes])


def _gather(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape | None:
    if dims[1] is None:
        return None
    axis = attributes.get("axis", 0) % len(dims[0])
    return ir.Shape([*dims[0][:axis], *dims[1], *dims[0][axis + 1 :]])


def _matmul(dims: list[Any], _inputs: Any, _attributes: dict[str, Any]) -> ir.Shape | None:
    if dims[1] is None or len(dims[0]) < 2 or len(dims[1]) < 2:
        return None
    batch = _broadcast([dims[0][:-2], dims[1][:-2]])
    return None if batch is None else ir.Shape([*batch.dims, dims[0][-2], dims[1][-1]])


def _ranked(dims: list[Any], _inputs: Any, _attributes: dict[str, Any]) -> ir.Shape:
    return ir.Shape([None] * len(dims[0]))


def _slice(dims: list[Any], inputs: Any, _attributes: dict[str, Any]) -> ir.Shape:
    axes = _constant(inputs, 3)
    rank = len(dims[0])
    cut = {axis % rank for axis in axes} if axes is not None else set(range(rank))
    return ir.Shape([None if axis in cut else size for axis, size in enumerate(dims[0])])


def _of_shape(dims: list[Any], inputs: Any, _attributes: dict[str, Any]) -> ir.Shape | None:
    """Of the size that a vector says."""
    sizes = _constant(inputs, 0)
    count = dims[0][0] if len(dims[0]) == 1 else None
    if sizes is not None:
        return ir.Shape(sizes)
    return ir.Shape([None] * count) if isinstance(count, int) else None


def _expand(dims: list[Any], inputs: Any, _attributes: dict[str, Any]) -> ir.Shape | None:
    sizes = _constant(inputs, 1)
    if sizes is not None:
        return _broadcast([dims[0], sizes])
    count = dims[1][0] if dims[1] is not None else None
    return ir.Shape([None] * max(count, len(dims[0]))) if isinstance(count, int) else None


def _concat(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape | None:
    if any(size is None for size in dims):
        return None
    axis = attributes["axis"] % len(dims[0])
    sizes = [part[axis] for part in dims]
    total = sum(sizes) if all(isinstance(size, int) for size in sizes) else None
    return ir.Shape([total if a == axis else size for a, size in enumerate(dims[0])])


def _second(dims: list[Any], _inputs: Any, _attributes: dict[str, Any]) -> ir.Shape | None:
    return None if dims[1] is None else ir.Shape(dims[1])


def _arg(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape:
    axis = attributes.get("axis", 0) % len(dims[0])
    kept = [1] if attributes.get("keepdims", 1) else []
    return ir.Shape([*dims[0][:axis], *kept, *dims[0][axis + 1 :]])


def _gather_nd(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape | None:
    if dims[1] is None or not isinstance(dims[1][-1], int) or attributes.get("batch_dims"):
        return None
    return ir.Shape([*dims[1][:-1], *dims[0][dims[1][-1] :]])


def _gemm(dims: list[Any], _inputs: Any, attributes: dict[str, Any]) -> ir.Shape | None:
    if dims[1] is None:
        return None
    return ir.Shape([dims[0][attributes.get("transA", 0)], dims[1][1 - attributes.get("transB", 0)]])


def _nonzero(dims: list[Any], *_: Any) -> ir.Shape:
    return ir.Shape([len(dims[0]), None])


def _vector(*_: Any) -> ir.Shape:
    return ir.Shape([None])


def _scalar(*_: Any) -> ir.Shape:
    return ir.Shape([])


_KEEP_RANK: Final = (
    "Pad", "Tile", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Split", "TopK", "Resize", "LpPool",
    "DepthToSpace", "SpaceToDepth", "ReverseSequence", "Compress",
)  # fmt: skip
_REDUCE: Final = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp")
_RULES: Final[dict[str, Callable[..., ir.Shape | None]]] = {
    "Transpose": _transpose, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Shape": _shape, "Reshape": _reshape,
    "ArgMax": _arg, "ArgMin": _arg, "Gather": _gather, "MatMul": _matmul, "Slice": _slice,
    "ConstantOfShape": _of_shape, "Expand": _expand, "Concat": _concat, "GatherElements": _second,
    "GatherND": _gather_nd, "Gemm": _gemm, "NonZero": _nonzero, "Range": _vector, "Size": _scalar,
    **dict.fromkeys(_KEEP_RANK, _ranked), **{f"Reduce{name}": _reduce for name in _REDUCE},
}  # fmt: skip
