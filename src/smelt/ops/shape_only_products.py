"""Shapes of matrix products, contractions and attention.

Input: operands of a node. Output: output sizes. Invariant: sizes only; what must agree at run time is ONNX Runtime's to
check, for it runs these nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Ix, Tensor, Unsupported, fn, ix
from smelt.ops.registry import Call
from smelt.ops.shape_only import MICROSOFT, Sized, shape_rule


def matmul_shape(call: Call, a: Sequence[Ix], b: Sequence[Ix]) -> tuple[Ix, ...]:
    """numpy's rule: a vector is a row on the left and a column on the right, and leaves no axis behind."""
    if not a or not b:
        raise Unsupported("a matrix product of a scalar")
    rows = () if len(a) == 1 else (a[-2],)
    columns = () if len(b) == 1 else (b[-1],)
    return (*call.k.broadcast(tuple(a[:-2]), tuple(b[:-2])), *rows, *columns)


@shape_rule("MatMul")
def matmul(call: Call) -> list[Sized | None]:
    a, b = call.x(0), call.x(1)
    return [Sized(a.dtype, matmul_shape(call, a.shape, b.shape))]


@shape_rule("MatMulInteger")
def matmul_integer(call: Call) -> list[Sized | None]:
    return [Sized("i32", matmul_shape(call, call.x(0).shape, call.x(1).shape))]


@shape_rule("QLinearMatMul")
def quantized_matmul(call: Call) -> list[Sized | None]:
    return [Sized(call.x(7).dtype, matmul_shape(call, call.x(0).shape, call.x(3).shape))]


@shape_rule("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain=MICROSOFT)
def dynamic_quantized_matmul(call: Call) -> list[Sized | None]:
    return [Sized("f32", matmul_shape(call, call.x(0).shape, call.x(1).shape))]


@shape_rule("MatMulNBits", "MatMulBnb4", domain=MICROSOFT)
def matmul_n_bits(call: Call) -> list[Sized | None]:
    a = call.x()
    return [Sized(a.dtype, (*a.shape[:-1], call.int("N")))]


@shape_rule("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: Call) -> list[Sized | None]:
    a, b = call.x(0), call.x(1)
    left = _transposed(a, call.int("transA", 0), call.int("transBatchA", 0))
    right = _transposed(b, call.int("transB", 0), call.int("transBatchB", 0))
    return [Sized(a.dtype, matmul_shape(call, left, right))]


def _transposed(x: Tensor, transpose: int, transpose_batch: int) -> tuple[Ix, ...]:
    """transBatch moves the first axis behind the other batch axes; trans swaps the last two."""
    shape = list(x.shape)
    if transpose_batch and len(shape) > 2:
        shape = [*shape[1:-1], shape[0], shape[-1]]
    if transpose and len(shape) > 1:
        shape[-1], shape[-2] = shape[-2], shape[-1]
    return tuple(shape)


@shape_rule("Gemm")
@shape_rule("FusedGemm", domain=MICROSOFT)
def gemm(call: Call) -> list[Sized | None]:
    a, b = call.x(0), call.x(1)
    if a.rank != 2 or b.rank != 2:
        raise Unsupported("Gemm takes matrices")
    rows = a.shape[1 if call.int("transA", 0) else 0]
    columns = b.shape[0 if call.int("transB", 0) else 1]
    return [Sized(a.dtype, (rows, columns))]


# Einsum


@shape_rule("Einsum")
def einsum(call: Call) -> list[Sized | None]:
    operands = [call.x(i) for i in range(len(call.inputs))]
    left, arrow, right = call.str("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise Unsupported("an equation for another number of operands")
    sizes, dots = _label_sizes(call, terms, operands)
    result = right if arrow else implied_result(left)
    shape: list[Ix] = []
    for label in result.replace("...", "."):
        if label != "." and label not in sizes:
            raise Unsupported(f"label {label!r} of the result is in no operand")
        shape.extend(dots if label == "." else (sizes[label],))
    return [Sized(operands[0].dtype, tuple(shape))]


def _label_sizes(call: Call, terms: Sequence[str], operands: Sequence[Tensor]) -> tuple[dict[str, Ix], tuple[Ix, ...]]:
    sizes: dict[str, Ix] = {}
    dots: tuple[Ix, ...] = ()
    for term, operand in zip(terms, operands, strict=True):
        before, ellipsis, after = term.partition("...")
        spare = operand.rank - len(before) - len(after)
        if spare < 0 or (spare and not ellipsis):
            raise Unsupported("an equation for another rank")
        shape = operand.shape
        dots = call.k.broadcast(dots, shape[len(before) : len(before) + spare])
        named = zip(before + after, shape[: len(before)] + shape[len(before) + spare :], strict=True)
        for label, size in named:
            if label not in sizes or sizes[label].const == 1:
                sizes[label] = size
    return sizes, dots


def implied_result(left: str) -> str:
    """Without an arrow: the dots, then labels that occur once, in alphabetical order."""
    letters = left.replace("...", "").replace(",", "")
    return ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))


# attention


@shape_rule("Attention")
def attention(call: Call) -> list[Sized | None]:
    q, key, value = call.x(0), call.x(1), call.x(2)
    past_key, past_value = call.maybe(4), call.maybe(5)
    flat = q.rank == 3
    heads = ix(call.int("q_num_heads")) if flat else q.shape[1]
    kv_heads = ix(call.int("kv_num_heads")) if flat else key.shape[1]
    steps, length = (q.shape[1], key.shape[1]) if flat else (q.shape[2], key.shape[2])
    depth = key.shape[2] // kv_heads if flat else key.shape[3]
    value_depth = value.shape[2] // kv_heads if flat else value.shape[3]
    total = length if past_key is None else past_key.shape[2] + length
    batch = q.shape[0]
    out = (batch, steps, heads * value_depth) if flat else (batch, heads, steps, value_depth)
    value_total = length if past_value is None else past_value.shape[2] + length
    return [
        Sized(q.dtype, out),
        Sized(key.dtype, (batch, kv_heads, total, depth)),
        Sized(value.dtype, (batch, kv_heads, value_total, value_depth)),
        Sized(q.dtype, (batch, heads, steps, total)),
    ]


@shape_rule("Attention", domain=MICROSOFT)
def packed_attention(call: Call) -> list[Sized | None]:
    x, weights, past = call.x(0), call.x(1), call.maybe(4)
    heads = call.int("num_heads")
    if call.has("qkv_hidden_sizes"):
        hidden, value_hidden = (ix(call.ints("qkv_hidden_sizes")[k]) for k in (0, 2))
    else:
        hidden = value_hidden = weights.shape[1] // 3
    batch, steps = x.shape[0], x.shape[1]
    total = steps if past is None else past.shape[3] + steps
    present = (2, batch, heads, total, hidden // heads)
    return [Sized(x.dtype, (batch, steps, value_hidden)), Sized(x.dtype, present)]


@shape_rule("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(call: Call) -> list[Sized | None]:
    q, key, value, past = call.x(0), call.maybe(1), call.maybe(2), call.maybe(6)
    heads = call.int("num_heads")
    batch, steps = q.shape[0], q.shape[1]
    if q.rank != 3:
        return [Sized(q.dtype, (batch, steps, q.shape[2] * q.shape[4]))]
    hidden, length = q.shape[2], steps
    value_hidden = hidden
    if key is not None:
        length = key.shape[2] if key.rank == 4 else key.shape[1]
    if value is not None:
        value_hidden = value.shape[1] * value.shape[3] if value.rank == 4 else value.shape[2]
    total = length if past is None else past.shape[2] + length
    return [
        Sized(q.dtype, (batch, steps, value_hidden)),
        Sized(q.dtype, (batch, heads, total, hidden // heads)),
        Sized(q.dtype, (batch, heads, total, value_hidden // heads)),
    ]


@shape_rule("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(call: Call) -> list[Sized | None]:
    q, key, past = call.x(0), call.maybe(1), call.maybe(3)
    heads, kv_heads = call.int("num_heads"), call.int("kv_num_heads")
    depth = q.shape[2] // heads if key is not None else q.shape[2] // (heads + 2 * kv_heads)
    batch, steps = q.shape[0], q.shape[1]
    present = Sized(q.dtype, (batch, kv_heads, _present_length(call, past), depth))
    return [Sized(q.dtype, (batch, steps, depth * heads)), present, present]


def _present_length(call: Call, past: Tensor | None) -> Ix | None:
    """A cache given as a buffer keeps its length when the sequence fits into it."""
    total = call.maybe(6)
    found = call.k.values(total) if total is not None else None
    if not found:
        return None
    return fn("max", found[0], 0 if past is None else past.shape[2])
