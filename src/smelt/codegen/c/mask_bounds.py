"""Mask bounds: which columns of masked attention can matter, for a causal mask, padding, a window.

Input: the nest of a product whose rows become weights (a softmax) and go to the next product. Output: the bias of its
scores, or None where leaving out columns could change a result. Invariant: a column whose bias is `MASKED` or less
weighs exactly 0 in a row that has one above `UNMASKED`, as long as operands are modest; whether they are is found out
at run time. Nothing is assumed about how a mask was made: its rows are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smelt.codegen.cluster import BatchedGemm, Cluster, Pack
from smelt.codegen.loops import Nest, build
from smelt.codegen.shared_panels import GEMV_ROWS
from smelt.ir.kernel import Tensor
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.expr import Expr

MASKED, UNMASKED = -1e30, -1e28
LARGEST = ("max", "top")


@dataclass(frozen=True)
class MaskBounds:
    """Names and lines of C: how many columns and rows, the row's variable, the left operand with its step and depth;
    what a row needs first, and the bias of whole vectors and of the last few columns as (name, lines). `zero_padded`:
    what is masked to all rows is known to be zeros, so that a few rows, which read operands as they lie, look as
    well."""

    columns: str
    rows: str
    row: str
    left: str
    step: str
    depth: str
    head: list[str]
    whole: tuple[str, list[str]]
    part: tuple[str, list[str]]
    zero_padded: bool = False


def mask_bounds_lines(text: MaskBounds) -> list[str]:
    """Look at each row's bias from both ends. Where a row has no unmasked column or operands are not modest, all
    columns are kept."""
    whole, part = text.whole[0], text.part[0]
    masked = f"le_f32({whole}, bc_f32({MASKED!r}f))"
    masked_part = f"or_b(le_f32({part}, bc_f32({MASKED!r}f)), not_b(tail_mask(n)))"
    unmasked_part = f"and_b(gt_f32({part}, bc_f32({UNMASKED!r}f)), tail_mask(n))"
    in_whole, in_part = (["  " + x for x in lines] for lines in (text.whole[1], text.part[1]))
    last = f"const int64_t n = ({text.columns}) - v;"
    row = [
        f"const int64_t {text.row} = first + u;",
        *text.head,
        "int64_t v = 0;",
        "unmasked = 0;",
        f"for (; v + SMELT_L <= {text.columns} && !unmasked; v += SMELT_L) {{",
        *in_whole,
        f"  if (hand_b({masked})) continue;",
        "  from = smelt_min(from, v);",
        f"  unmasked = hor_b(gt_f32({whole}, bc_f32({UNMASKED!r}f)));",
        "}",
        f"if (v < {text.columns} && !unmasked) {{ {last}",
        *in_part,
        f"  if (!hand_b({masked_part})) from = smelt_min(from, v), unmasked = hor_b({unmasked_part});",
        "}",
        f"v = ({text.columns}) / SMELT_L * SMELT_L;",
        f"if (v < {text.columns} && to < {text.columns}) {{ {last}",
        *in_part,
        f"  if (!hand_b({masked_part})) to = {text.columns};",
        "}",
        "for (v -= SMELT_L; v >= to; v -= SMELT_L) {",
        *in_whole,
        f"  if (!hand_b({masked})) to = v + SMELT_L;",
        "}",
    ]
    many, usual = f"({text.rows}) > {GEMV_ROWS}", "!__atomic_load_n(&t->work->unusual, __ATOMIC_RELAXED)"
    return [
        f"if ({many} ? {usual} : {int(text.zero_padded)}) {{",
        f"  int64_t from = {text.columns}, to = 0, unmasked = 1;",
        "  for (int64_t u = 0; u < count && unmasked; u++)",
        f"    unmasked = SMELT_MODEST({text.left} + u * ({text.step}), {text.depth});",
        "  for (int64_t u = count - 1; u >= 0 && unmasked; u--) {",
        *("    " + x for x in row),
        "  }",
        f"  if (unmasked) low = from & ~(int64_t)15, limit = smelt_min((to + 15) & ~(int64_t)15, {text.columns});",
        "}",
    ]


def bias_of(nest: Nest) -> Expr | None:
    """The bias of the scores when the nest is a softmax of biased scores and stores nothing but its weights."""
    found = _Softmax(nest)
    return found.bias if found.is_plain() else None


def watch(clusters: Sequence[Cluster]) -> None:
    """Operands of back-to-back GEMMs whose columns may be left out are looked at while they are packed."""
    packs = {c.work.target.uid: c.work for c in clusters if isinstance(c.work, Pack)}
    for consumer in clusters:
        producer = consumer.producer
        if producer is None or bias_of(build(producer)) is None:
            continue
        links = [work for work in (producer.work, consumer.work) if isinstance(work, BatchedGemm)]
        for link in links if len(links) == 2 else ():  # constant weights are packed ahead of time, and read whole
            packs[link.right.buffer.uid].watched = True


class _Softmax:
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        tops = [r for r in nest.reductions if r.kind in LARGEST and self._has_product(r.value)]
        self.scores = tops[0].value if len(tops) == 1 else None
        self.bias = self._bias(self.scores) if self.scores is not None else None

    def is_plain(self) -> bool:
        """Every reduction ignores masked columns, and so does the only store."""
        if self.bias is None or self.scores is None or not self._varies(self.bias) or len(self.nest.stores) != 1:
            return False
        if not all(self._ignores(r.kind, r.value) for r in self.nest.reductions):
            return False
        return len(self.nest.products) == 1 and self._vanishes(self.nest.stores[0].value)

    def _ignores(self, kind: str, value: Expr) -> bool:
        if kind in LARGEST:
            return value is self.scores or value is self.bias
        return kind == "sum" and self._vanishes(value)

    def _vanishes(self, e: Expr) -> bool:
        """exp(scores - a row's value), perhaps times a row's value, or 0 for a whole row: 0 in a masked column."""
        if not isinstance(e.kind, E.Op):
            return False
        name, args = e.kind.name, e.kind.args
        if name == "exp":
            below = args[0].kind
            return (
                isinstance(below, E.Op)
                and below.name == "sub"
                and below.args[0] is self.scores
                and self._of_row(below.args[1])
            )
        if name == "sel":
            return self._of_row(args[0]) and isinstance(args[1].kind, E.Const) and self._vanishes(args[2])
        if name == "mul" and self._of_row(args[0]):
            return self._vanishes(args[1])
        if name in ("mul", "div"):
            return self._vanishes(args[0]) and self._of_row(args[1])
        return False

    def _bias(self, scores: Expr) -> Expr | None:
        """What is added to the product, or what a select that replaces masked scores comes to."""
        kind = scores.kind
        if not isinstance(kind, E.Op) or scores.dtype != "f32":
            return None
        if kind.name == "add":
            inner, outer = kind.args if self._has_product(kind.args[0]) else kind.args[::-1]
            if self._has_product(outer):
                return None
            deeper = self._bias(inner)
            return outer if deeper is None else E.op("add", deeper, outer)
        if kind.name == "sel" and not self._has_product(kind.args[0]):
            zero = E.const(0.0, "f32")
            return E.select(kind.args[0], *(zero if self._has_product(side) else side for side in kind.args[1:]))
        return None

    def _has_product(self, e: Expr) -> bool:
        return any(isinstance(n.kind, E.Ref) and n.kind.tensor in self.nest.products for n in E.walk(e))

    def _varies(self, e: Expr) -> bool:
        return any(self.nest.vector in E.own_vars(n) for n in E.walk(e))

    def _of_row(self, e: Expr) -> bool:
        reduced: set[Tensor] = {r.tensor for r in self.nest.reductions}
        refs = [n.kind.tensor for n in E.walk(e) if isinstance(n.kind, E.Ref)]
        return not self._varies(e) and all(t in reduced for t in refs)
