"""Sizes of an input's axes: as they are declared, and as the ops which read it demand.

Input: a value. Output: sizes by axis. Invariant: what a constant operand of a reader proves (the channels of a
convolution, the depth of a product) comes before what it suggests (a constant that is added has the axis' size, where
that is not 1). The walk goes through ops that keep every axis.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from smelt.ir.traced import traced_size
from smelt.ops.user import is_user_op

_KEEP: Final = frozenset(
    ("Identity", "Cast", "Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Log", "Sqrt", "Clip", "Erf", "Gelu",
     "Softmax", "LayerNormalization", "Dropout")
)  # fmt: skip
_BROADCAST: Final = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"))
_MAX_WALK: Final = 50


def named_dims(value: ir.Value, original: ir.Model) -> list[int | str | None] | str | None:
    """Sizes that are fixed, and the names that the file gave to the others; of an integer that is a size, the formula
    that a tracer told."""
    traced = traced_size(value)
    if traced is not None:
        return traced[0]
    if value.shape is None:
        return None
    given = next((v.shape for v in original.graph.inputs if v.name == value.name), None)
    names = given if given is not None and len(given) == len(value.shape) else value.shape
    return [
        dim if isinstance(dim, int) else (name if isinstance(name, int) else name.value)
        for dim, name in zip(value.shape, names, strict=True)
    ]


def known_sizes(value: ir.Value) -> dict[int, int]:
    """Sizes by axis; those of negative axes only where the rank is known."""
    proven: dict[int, int] = {}
    suggested: dict[int, int] = {}
    pending, seen = [value], {value}
    while pending and len(seen) < _MAX_WALK:
        for user, place in pending.pop().uses():
            for axis, size in _demanded(user, place, value).items():
                proven.setdefault(axis, size)
            for axis, size in _suggested(user, place, value).items():
                suggested.setdefault(axis, size)
            if _keeps_axes(user, place, value) and user.outputs[0] not in seen:
                seen.add(user.outputs[0])
                pending.append(user.outputs[0])
    return suggested | proven


def _keeps_axes(user: ir.Node, place: int, value: ir.Value) -> bool:
    """Whether the result's axes are the value's: of an op of several operands, where none of them has more axes."""
    if user.op_type not in _BROADCAST:
        return (user.op_type in _KEEP and place == 0) or is_user_op(user)
    ranks = [None if operand is None or operand.shape is None else len(operand.shape) for operand in user.inputs]
    return value.shape is not None and all(rank is None or rank <= len(value.shape) for rank in ranks)


def _suggested(user: ir.Node, place: int, value: ir.Value) -> dict[int, int]:
    """By constants that the value meets element by element, unless it is broadcast to them."""
    if user.op_type not in _BROADCAST or value.shape is None or len(user.inputs) != 2:
        return {}
    other = _constant_shape(user, 1 - place)
    if other is None or len(other) > len(value.shape):
        return {}
    first = len(value.shape) - len(other)
    return {first + axis: size for axis, size in enumerate(other) if size > 1}


def _demanded(user: ir.Node, place: int, value: ir.Value) -> dict[int, int]:
    weight = _constant_shape(user, 1)
    rank = len(value.shape) if value.shape is not None else None
    if user.op_type == "Conv" and place == 0 and weight is not None and len(weight) > 2:
        group = user.attributes.get("group")
        channels = weight[1] * (group.as_int() if group is not None else 1)
        # A rank that nobody declared is that of the weights.
        return {1: channels} if rank is not None else {1: channels, len(weight) - 1: 64}
    if user.op_type == "ConvTranspose" and place == 0 and weight is not None and len(weight) > 2:
        return {1: weight[0]}
    if user.op_type == "MatMul" and place == 0 and weight is not None and len(weight) > 1:
        return {} if rank is None else {rank - 1: weight[-2]}
    if user.op_type == "Gemm" and place == 0 and weight is not None and len(weight) == 2:
        transposed = user.attributes.get("transA")
        flipped = user.attributes.get("transB")
        depth = weight[1] if flipped is not None and flipped.as_int() else weight[0]
        return {0 if transposed is not None and transposed.as_int() else 1: depth}
    if is_user_op(user) and rank:
        rows = [_constant_shape(user, other) for other in range(len(user.inputs)) if other != place]
        lengths = [row[-1] for row in rows if row and row[-1] > 1]
        return {rank - 1: lengths[0]} if lengths else {}
    if user.op_type in ("LSTM", "GRU", "RNN") and place == 0 and weight is not None and len(weight) == 3:
        return {2: weight[2]}
    if user.op_type == "GroupQueryAttention" and place in (3, 4):
        return _cache_sizes(user)
    return {}


def _cache_sizes(user: ir.Node) -> dict[int, int]:
    """Heads and depth of a cache of grouped queries, which queries of a known width tell."""
    heads, kv_heads = user.attributes.get_int("num_heads", 0), user.attributes.get_int("kv_num_heads", 0)
    packed = user.inputs[1] is None  # keys and values lie behind the queries
    width, parts = _width(user.inputs[0]), heads + 2 * kv_heads if packed else heads
    return {1: kv_heads, 3: width // parts} if width and parts and width % parts == 0 else {}


def _width(value: ir.Value | None) -> int:
    """The last axis, 0: not known. A product with block-quantized weights says it where no shape is given."""
    last = value.shape[-1] if value is not None and value.shape is not None and len(value.shape) else None
    if isinstance(last, int):
        return last
    maker = value.producer() if value is not None else None
    return maker.attributes.get_int("N", 0) if maker is not None and maker.op_type == "MatMulNBits" else 0


def _constant_shape(node: ir.Node, place: int) -> list[int] | None:
    operand = node.inputs[place] if place < len(node.inputs) else None
    return None if operand is None or operand.const_value is None else list(operand.const_value.shape.numpy())
