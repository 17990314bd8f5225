"""Attention and rotary embeddings -> one node each.

Input: a float32 model. Output: of opset 23 on, Attention for softmax(q k' * scale + mask) v, with heads that share keys
and values taken as they are, and RotaryEmbedding for x * cos + rotate_half(x) * sin; before, ONNX Runtime's own
MultiHeadAttention. Invariant: inner values have no other reader; operands have four axes (batch, heads, length, width)
of known sizes where the node needs them.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import array_of, int_attribute, ints_attribute, is_op, only_user

SINCE = 23
_AXES = 4
_SWAPPED = [0, 2, 1, 3]


def _maker(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and is_op(node, *op_types) else None


def _alone(value: ir.Value | None, reader: ir.Node, *op_types: str) -> ir.Node | None:
    """The maker of a value that only `reader` reads."""
    return _maker(value, *op_types) if value is not None and only_user(value) is reader else None


def _attention(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """softmax(q k' * scale + mask) v -> Attention, before opset 23 MultiHeadAttention"""
    softmax = _alone(node.inputs[0], node, "Softmax")
    value = node.inputs[1]
    if softmax is None or int_attribute(softmax, "axis", -1) not in (-1, _AXES - 1):
        return None
    scores, mask = _masked(softmax, rewrite)
    product, scale = _scaled(scores, softmax if mask is None else _masker(softmax), rewrite)
    transposed = _maker(product.inputs[1], "Transpose") if product is not None else None
    perm = ints_attribute(transposed, "perm") if transposed is not None else None
    if product is None or transposed is None or perm is None or len(perm) != _AXES:
        return None
    query, key = product.inputs[0], transposed.inputs[0]
    if perm != (0, 1, 3, 2) and key is not None:  # heads are split in the same Transpose
        dtype, shape = key.type, _transposed_back(transposed.outputs[0].shape)
        key = rewrite.op("Transpose", key, perm=[perm[0], perm[1], perm[3], perm[2]])
        key.type, key.shape = dtype, shape
    if query is None or key is None or value is None or not all(_has_four_axes(v) for v in (query, key, value)):
        return None
    if rewrite.opset < SINCE:
        return _multi_head(rewrite, (query, key, value), mask, scale)
    key, value = _ungrouped(key, value, query)
    inputs = [query, key, value] + ([mask] if mask is not None else [])
    return rewrite.op("Attention", *inputs, like=node.outputs[0], scale=scale)


def _multi_head(
    rewrite: Rewrite, operands: tuple[ir.Value, ir.Value, ir.Value], mask: ir.Value | None, scale: float
) -> ir.Value | None:
    """ONNX Runtime's node: queries come and results go as (batch, length, heads * width)."""
    query, key, value = operands
    heads, width, depth = (_size(v, axis) for v, axis in ((query, 1), (query, 3), (value, 3)))
    if heads is None or width is None or depth is None or not heads == _size(key, 1) == _size(value, 1):
        return None
    if mask is not None and not _fits_scores(mask, query, key):
        return None
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        zero, never = (rewrite.constant(number, query) for number in (0.0, float("-inf")))
        mask = rewrite.op("Where", mask, zero, never)
    by_length = rewrite.op("Transpose", query, perm=_SWAPPED)
    flat = rewrite.op("Reshape", by_length, rewrite.constant([0, 0, heads * width]))
    made = rewrite.op(
        "MultiHeadAttention", flat, key, value, *((None, None, mask) if mask is not None else ()),
        domain="com.microsoft", num_heads=heads, scale=float(scale),
    )  # fmt: skip
    split = rewrite.op("Reshape", made, rewrite.constant([0, 0, heads, depth]))
    return rewrite.op("Transpose", split, like=rewrite.node.outputs[0], perm=_SWAPPED)


def _size(value: ir.Value, axis: int) -> int | None:
    size = value.shape[axis] if value.shape is not None else None
    return size if isinstance(size, int) else None


def _fits_scores(mask: ir.Value, query: ir.Value, key: ir.Value) -> bool:
    """MultiHeadAttention repeats a mask over batch and heads only."""
    if mask.shape is None or query.shape is None or key.shape is None or mask.shape.rank() != _AXES:
        return False
    wanted = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return all(
        size == want or (axis < 2 and size == 1)
        for axis, (size, want) in enumerate(zip(mask.shape, wanted, strict=True))
    ) and all(isinstance(size, int) or size.value for size in mask.shape)


def _transposed_back(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else ir.Shape([shape[0], shape[1], shape[3], shape[2]])


def _masker(softmax: ir.Node) -> ir.Node:
    """The node that applies the mask."""
    node = softmax.inputs[0].producer() if softmax.inputs[0] is not None else None
    assert node is not None
    return node


def _masked(softmax: ir.Node, rewrite: Rewrite) -> tuple[ir.Value | None, ir.Value | None]:
    """The scores without their mask, and the mask: of floats that are added, or of bools."""
    where = _alone(softmax.inputs[0], softmax, "Where")
    if where is not None and rewrite.number(where.inputs[2]) == float("-inf"):
        return where.inputs[1], where.inputs[0]
    add = _alone(softmax.inputs[0], softmax, "Add")
    if add is not None:
        for scores, mask in (add.inputs, reversed(add.inputs)):
            if _maker(scores, "Mul", "Div", "MatMul") is not None and _is_mask(mask):
                return scores, mask
    return softmax.inputs[0], None


def _is_mask(value: ir.Value | None) -> bool:
    """Of four axes and float32: what is added has the form that Attention takes."""
    return value is not None and value.dtype == ir.DataType.FLOAT and _has_four_axes(value)


def _scaled(scores: ir.Value | None, reader: ir.Node, rewrite: Rewrite) -> tuple[ir.Node | None, float]:
    """The product behind the scores, and its factor."""
    plain = _alone(scores, reader, "MatMul")
    if plain is not None:
        return plain, 1.0
    node = _alone(scores, reader, "Mul", "Div")
    factor = rewrite.number(node.inputs[1]) if node is not None else None
    if node is None or not factor or factor <= 0:
        return None, 1.0
    return _alone(node.inputs[0], node, "MatMul"), factor if node.op_type == "Mul" else 1 / factor


def _has_four_axes(value: ir.Value | None) -> bool:
    if value is None or value.dtype != ir.DataType.FLOAT or value.shape is None:
        return False
    return value.shape.rank() == _AXES


def _ungrouped(
    key: ir.Value | None, value: ir.Value | None, query: ir.Value | None
) -> tuple[ir.Value | None, ir.Value | None]:
    """Keys and values before each head was repeated for the queries that share it."""
    found = [_before_repetition(key), _before_repetition(value)]
    heads = [None if v is None or v.shape is None else v.shape[1] for v in (*found, query)]
    known = all(isinstance(h, int) for h in heads)
    if known and heads[0] == heads[1] and heads[2] % heads[0] == 0:  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        return found[0], found[1]
    return key, value


def _before_repetition(value: ir.Value | None) -> ir.Value | None:
    """x, where the value is Reshape(Expand(Unsqueeze(x, 2))): heads repeated side by side."""
    reshape = _maker(value, "Reshape")
    expand = _maker(reshape.inputs[0], "Expand") if reshape is not None else None
    wide = _maker(expand.inputs[0], "Unsqueeze") if expand is not None else None
    source = wide.inputs[0] if wide is not None else None
    grown = expand.outputs[0].shape if expand is not None else None
    if source is None or source.shape is None or grown is None or wide is None or value is None or value.shape is None:
        return None
    one = wide.outputs[0].shape
    if one is None or one.rank() != _AXES + 1 or one[2] != 1 or grown.rank() != _AXES + 1:
        return None
    kept = [grown[axis] == one[axis] for axis in (0, 1, 3, 4)]
    heads, shared, times = value.shape[1], source.shape[1], grown[2]
    numbers = isinstance(heads, int) and isinstance(shared, int) and isinstance(times, int)
    same = value.shape.rank() == _AXES and source.shape[0] == value.shape[0] and source.shape[3] == value.shape[3]
    return source if all(kept) and same and numbers and heads == shared * times else None


def _rotary(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """x * cos + rotate_half(x) * sin -> RotaryEmbedding"""
    if rewrite.opset < SINCE:
        return None
    for straight, transposed in (node.inputs, reversed(node.inputs)):
        plain, rotated = _alone(straight, node, "Mul"), _alone(transposed, node, "Mul")
        if plain is None or rotated is None:
            continue
        for x, cos in (plain.inputs, reversed(plain.inputs)):
            for half, sin in (rotated.inputs, reversed(rotated.inputs)):
                if _is_rotation(half, x, rotated) and _has_four_axes(x):
                    caches = [_cache(wave, x, rewrite) for wave in (cos, sin)]
                    if caches[0] is not None and caches[1] is not None:
                        return rewrite.op("RotaryEmbedding", x, *caches, like=node.outputs[0])
    return None


def _is_rotation(value: ir.Value | None, x: ir.Value | None, reader: ir.Node) -> bool:
    """Concat(-x[half:], x[:half]) along the last axis."""
    concat = _alone(value, reader, "Concat")
    if concat is None or x is None or x.shape is None or len(concat.inputs) != 2:
        return False
    if int_attribute(concat, "axis", 0) not in (-1, _AXES - 1):
        return False
    negated = _maker(concat.inputs[0], "Neg")
    upper = _maker(negated.inputs[0], "Slice") if negated is not None else None
    lower = _maker(concat.inputs[1], "Slice")
    if upper is None or lower is None or upper.inputs[0] is not x or lower.inputs[0] is not x:
        return False
    return _range_of(lower, x) == (0, _half(x)) and _range_of(upper, x) == (_half(x), 2 * _half(x))


def _half(x: ir.Value) -> int:
    width = x.shape[-1] if x.shape is not None else None
    return width // 2 if isinstance(width, int) and width % 2 == 0 else -1


def _range_of(node: ir.Node, x: ir.Value) -> tuple[int, int] | None:
    """Where a Slice of the last axis begins and ends."""
    parts = [array_of(value, 1) for value in node.inputs[1:]]
    if len(parts) < 3 or any(part is None or part.size != 1 for part in parts):
        return None
    start, end, axis, *step = (int(part.reshape(-1)[0]) for part in parts if part is not None)
    if axis not in (-1, _AXES - 1) or (step and step[0] != 1):
        return None
    width = 2 * _half(x)
    return range(width)[start:end].start, range(width)[start:end].stop


def _cache(wave: ir.Value | None, x: ir.Value | None, rewrite: Rewrite) -> ir.Value | None:
    """cos or sin of the first half of the angles, (batch, length, width / 2), from Unsqueeze(wave(Concat(a, a)), 1)."""
    spread = _maker(wave, "Unsqueeze")
    function = _maker(spread.inputs[0], "Cos", "Sin") if spread is not None else None
    twice = _maker(function.inputs[0], "Concat") if function is not None else None
    if spread is None or function is None or twice is None or x is None or x.shape is None or wave is None:
        return None
    doubled = (
        len(twice.inputs) == 2 and twice.inputs[0] is twice.inputs[1] and int_attribute(twice, "axis", 0) in (-1, 2)
    )
    shape = wave.shape
    if not doubled or shape is None or shape.rank() != _AXES or shape[1] != 1 or shape[2] != x.shape[2]:
        return None
    half = rewrite.op(function.op_type, twice.inputs[0])
    if shape[0] == x.shape[0]:
        return half
    if shape[0] != 1:
        return None
    batch = rewrite.op("Shape", x, start=0, end=1)
    ones = rewrite.constant([1, 1])
    return rewrite.op("Expand", half, rewrite.op("Concat", batch, ones, axis=0))


ORT_ATTENTION = (
    Rule("ort-attention", _attention, frozenset(("MatMul",)), ("ort",)),
    Rule("ort-rotary-embedding", _rotary, frozenset(("Add",)), ("ort",)),
)
