"""Einsum: contractions over labelled axes.

Input: an equation and its operands. Output: operands are contracted pair by pair, from the left. Invariant: a pair that
shares summed labels is one batched matrix product in float32, and a sum of products in any other type; a label that
occurs once is summed before it meets another operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.ir.kernel import Ix, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import product

from .registry import Call, op
from .shape_only_products import implied_result
from .work import einsum_work

_DOTS = 0xE000  # axes of an ellipsis, counted from the right, are labelled by characters that no equation has


@dataclass(frozen=True)
class Labelled:
    """A tensor with one label per axis."""

    tensor: Tensor
    labels: str

    def size(self, label: str) -> Ix:
        return self.tensor.shape[self.labels.index(label)]


@op("Einsum", since=12, kind="product", work=einsum_work)
def einsum(call: Call) -> Tensor:
    terms, result = _parse(call)
    made = terms[0]
    for place, term in enumerate(terms[1:], start=1):
        later = "".join(other.labels for other in terms[place + 1 :]) + result
        made = _contract(call, made, term, later)
    made = _summed(call, made, result)
    if sorted(made.labels) != sorted(result):
        raise Unsupported("a label of the result is in no operand")
    return call.k.transpose(made.tensor, [made.labels.index(label) for label in result])


def _parse(call: Call) -> tuple[list[Labelled], str]:
    left, arrow, right = call.str("equation").replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(call.inputs):
        raise Unsupported("an equation for another number of operands")
    terms = [_labelled(call, place, text) for place, text in enumerate(texts)]
    dots = max((sum(ord(c) >= _DOTS for c in term.labels) for term in terms), default=0)
    if len(set(right)) != len(right) and "..." not in right:
        raise Unsupported("a label twice in the result")
    result = (right if arrow else implied_result(left)).replace("...", _dots(dots))
    if dots and arrow and "..." not in right:
        raise Unsupported("an ellipsis that is summed")
    if any(not label.isalpha() and ord(label) < _DOTS for label in result + "".join(t.labels for t in terms)):
        raise Unsupported("an equation of other than letters")
    return terms, result


def _dots(count: int) -> str:
    return "".join(chr(_DOTS + count - 1 - place) for place in range(count))


def _labelled(call: Call, place: int, text: str) -> Labelled:
    """Operand `place` with its labels; of a label that it has twice, the diagonal."""
    tensor = call.x(place)
    spare = tensor.rank - len(text.replace("...", ""))
    if spare < 0 or (spare and "..." not in text):
        raise Unsupported("an equation for another rank")
    labels = text.replace("...", _dots(spare))
    kept = "".join(dict.fromkeys(labels))
    if kept == labels:
        return Labelled(tensor, labels)
    for axis, label in enumerate(labels):
        call.k.require_equal(tensor.shape[axis], tensor.shape[labels.index(label)], "a diagonal of unequal sizes")
    sizes = [tensor.shape[labels.index(label)] for label in kept]
    return Labelled(call.k.view(tensor, sizes, lambda w: [w[kept.index(label)] for label in labels]), kept)


def _summed(call: Call, x: Labelled, needed: str) -> Labelled:
    """What nobody else needs is summed away."""
    gone = [axis for axis, label in enumerate(x.labels) if label not in needed]
    if not gone:
        return x
    total = call.k.squeeze(call.k.reduce("sum", x.tensor, gone), gone)
    return Labelled(total, "".join(label for label in x.labels if label in needed))


def _contract(call: Call, a: Labelled, b: Labelled, later: str) -> Labelled:
    a, b = _without_ones(call, a, b), _without_ones(call, b, a)
    a, b = _summed(call, a, b.labels + later), _summed(call, b, a.labels + later)
    shared = [label for label in a.labels if label in b.labels]
    inner = "".join(label for label in shared if label not in later)
    batch = "".join(label for label in shared if label in later)
    left = "".join(label for label in a.labels if label not in shared)
    right = "".join(label for label in b.labels if label not in shared)
    for label in inner:
        call.k.require_equal(a.size(label), b.size(label), f"sizes of label {label!r} must agree")
    if not inner or (a.tensor.dtype, b.tensor.dtype) != ("f32", "f32"):
        return _sum_of_products(call, a, b, batch + left + right, inner)
    if not batch and left and len(inner) == len(right) == 1:
        return _matrix_product(call, a, b, left, inner, right)
    return _product(call, a, b, batch, left, inner, right)


def _without_ones(call: Call, x: Labelled, other: Labelled) -> Labelled:
    """An axis of size 1 is broadcast against the other operand's: it is as good as none."""
    ones = [
        axis for axis, label in enumerate(x.labels)
        if x.tensor.shape[axis].const == 1 and label in other.labels and other.size(label).const != 1
    ]  # fmt: skip
    if not ones:
        return x
    return Labelled(call.k.squeeze(x.tensor, ones), "".join(c for i, c in enumerate(x.labels) if i not in ones))


def _sum_of_products(call: Call, a: Labelled, b: Labelled, outer: str, inner: str) -> Labelled:
    k, order = call.k, outer + inner
    made = k.map(lambda x, y: E.op("mul", x, y), _aligned(call, a, order), _aligned(call, b, order))
    axes = list(range(len(outer), len(order)))
    return Labelled(k.squeeze(k.reduce("sum", made, axes), axes) if axes else made, outer)


def _aligned(call: Call, x: Labelled, order: str) -> Tensor:
    """All labels in order, as axes of size 1 where the operand has none."""
    transposed = call.k.transpose(x.tensor, [x.labels.index(label) for label in order if label in x.labels])
    missing = [axis for axis, label in enumerate(order) if label not in x.labels]
    return call.k.unsqueeze(transposed, missing) if missing else transposed


def _matrix_product(call: Call, a: Labelled, b: Labelled, left: str, inner: str, right: str) -> Labelled:
    """Rows of any number of axes times one matrix."""
    rows = call.k.transpose(a.tensor, [a.labels.index(label) for label in left + inner])
    columns = call.k.transpose(b.tensor, [b.labels.index(label) for label in inner + right])
    return Labelled(call.k.contraction(rows, columns), left + right)


def _product(call: Call, a: Labelled, b: Labelled, batch: str, left: str, inner: str, right: str) -> Labelled:
    k = call.k
    rows = _matrix(call, a, batch, left, inner)
    columns = _matrix(call, b, batch, inner, right)
    made = k.contraction(rows, columns)
    sizes = [*made.shape[: len(batch)], *(a.size(c) for c in left), *(b.size(c) for c in right)]
    return Labelled(k.reshape(made, sizes), batch + left + right)


def _matrix(call: Call, x: Labelled, batch: str, rows: str, columns: str) -> Tensor:
    """Axes of the batch, then one for all rows and one for all columns."""
    transposed = call.k.transpose(x.tensor, [x.labels.index(label) for label in batch + rows + columns])
    counts = [product([x.size(label) for label in group]) if group else ix(1) for group in (rows, columns)]
    return call.k.reshape(transposed, [*transposed.shape[: len(batch)], *counts])
