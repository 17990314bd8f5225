"""Online softmax: attention weights block by block of their columns, with a running maximum.

Input: a back-to-back GEMM whose producer is a plain softmax of its product. Output: the lines of a kernel that makes
`t->span` columns of weights at a time and adds up what they give (`online_softmax.h`); where rows are short that is one
block, and nothing is added up. Invariant: powers stay undivided until a row is complete; a row's sum is that of all its
blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from smelt.codegen.cluster import PackedGemm, Reduction, Store
from smelt.codegen.kernel_forms import KernelForm
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Expr, Ix, Tensor
from smelt.ir.kernel import expr as E

from .b2b_gemm import B2bGemmWriter, FusedGemmWriter, block_pointers
from .fused_mlp import FusedMlpWriter
from .headers import ONLINE_SOFTMAX, PRODUCT
from .layout import products
from .product import ProductSizes

_LOWEST = "bc_f32(-0x1.fffffep127f)"


@dataclass(frozen=True)
class Softmax:
    """exp(scores - top), stored times `factor`, which is a row's own: of the sum and nothing else."""

    top: Tensor
    total: Tensor
    powers: Expr
    factor: Expr


def softmax_of(nest: Nest) -> Softmax | None:
    """What the nest computes of its product, when that is a softmax and it stores nothing but the weights."""
    if len(nest.stores) != 1 or len(nest.products) != 1 or nest.columns or nest.scan:
        return None
    return softmax_in(nest.reductions, nest.stores[0].value)


def softmax_in(reductions: Sequence[Reduction], weight: Expr, *, masked: bool = False) -> Softmax | None:
    """The softmax that a weight is of, where these are all the reductions that it needs. `masked`: powers may be 0 by a
    condition that does not depend on them."""
    tops, sums = ([r for r in reductions if r.kind in kinds] for kinds in (("max", "top"), ("sum",)))
    if len(reductions) != 2 or len(tops) != 1 or len(sums) != 1:
        return None
    found = _split(weight, sums[0])
    if found is None or found[0] is not sums[0].value:
        return None
    power = _unmasked(found[0], {tops[0].tensor, sums[0].tensor}) if masked else found[0]
    if not _is_power(power, tops[0]):
        return None
    return Softmax(tops[0].tensor, sums[0].tensor, *found)


def _split(weight: Expr, total: Reduction) -> tuple[Expr, Expr] | None:
    """The power of a weight, and what it is multiplied by."""
    if not isinstance(weight.kind, E.Op) or weight.dtype != "f32":
        return None
    if weight.kind.name == "div" and _refs(weight.kind.args[1]) == {total.tensor}:
        one = E.const(1.0, "f32")
        return weight.kind.args[0], E.op("div", one, weight.kind.args[1])
    if weight.kind.name == "mul" and _of_total(weight.kind.args[1], total):
        return weight.kind.args[0], weight.kind.args[1]
    return None


def _unmasked(value: Expr, own: set[Tensor]) -> Expr:
    """What is selected where the condition for 0 does not hold."""
    if not isinstance(value.kind, E.Op) or value.kind.name != "sel":
        return value
    test, zero, power = value.kind.args
    is_zero = isinstance(zero.kind, E.Const) and zero.kind.value == 0
    return power if is_zero and not _refs(test) & own else value


def _is_power(value: Expr, top: Reduction) -> bool:
    """exp(scores - top), where a top of -inf may be replaced: in blocks there is none."""
    below = value.kind.args[0].kind if isinstance(value.kind, E.Op) and value.kind.name == "exp" else None
    if not isinstance(below, E.Op) or below.name != "sub" or below.args[0] is not top.value:
        return False
    taken = below.args[1]
    if isinstance(taken.kind, E.Op) and taken.kind.name == "sel":
        test, zero, taken = taken.kind.args
        if not isinstance(zero.kind, E.Const) or not _is_nothing(test, top.tensor):
            return False
    return isinstance(taken.kind, E.Ref) and taken.kind.tensor is top.tensor


def _is_nothing(test: Expr, top: Tensor) -> bool:
    if not isinstance(test.kind, E.Op) or test.kind.name != "eq":
        return False
    seen, what = test.kind.args
    nothing = isinstance(what.kind, E.Const) and what.kind.value == float("-inf")
    return nothing and isinstance(seen.kind, E.Ref) and seen.kind.tensor is top


def _refs(e: Expr) -> set[Tensor]:
    return {n.kind.tensor for n in E.walk(e) if isinstance(n.kind, E.Ref)}


def _of_total(e: Expr, total: Reduction) -> bool:
    """Made of the sum and constants alone."""
    leaves = [n for n in E.walk(e) if not isinstance(n.kind, E.Op)]
    return _refs(e) == {total.tensor} and all(isinstance(n.kind, (E.Ref, E.Const)) for n in leaves)


def b2b_gemm_writer(producer: Nest, kept: tuple[Tensor, Buffer], consumer: Nest) -> B2bGemmWriter:
    """By blocks where that is known to give the same, and at once elsewhere."""
    if isinstance(consumer.work, PackedGemm):
        return FusedMlpWriter(producer, kept, consumer)
    softmax = softmax_of(producer)
    if softmax is None:
        return B2bGemmWriter(producer, kept, consumer)
    writer = OnlineSoftmaxWriter(producer, kept, consumer, softmax)
    plain = all(buffer.dtype == "f32" for buffer in writer.producer.phases.row_buffers)
    return writer if plain and writer.producer.in_place else B2bGemmWriter(producer, kept, consumer)


class _ProducerWriter(FusedGemmWriter):
    """Powers in place of weights, for the columns from j0 to j1."""

    def __init__(self, nest: Nest, kept: tuple[Tensor, Buffer], softmax: Softmax) -> None:
        (store,) = nest.stores
        super().__init__(replace(nest, stores=[Store(store.buffer, store.offset, softmax.powers)]), kept)
        self.softmax = softmax
        self.low, self.limit = "j0", "j1"

    def _parted(self) -> bool:
        return True

    def _span(self) -> tuple[str, str]:
        return self.low, self.limit

    def _complete(self, reduction: Reduction, name: str, copies: int) -> None:
        super()._complete(reduction, name, copies)
        if reduction.tensor is self.softmax.top:
            made = self._fresh("r")
            self.scopes[-1].lines.append(f"const v_f32 {made} = max_f32({self.results[reduction.tensor]}, {_LOWEST});")
            self.results[reduction.tensor] = made

    def _row_end(self) -> None:
        super()._row_end()
        top, total = (self.results[t] for t in (self.softmax.top, self.softmax.total))
        self.scopes[-1].lines.append(f"seen.tops[u] = lane0_f32({top}); seen.sums[u] = lane0_f32({total});")

    def _unit(self, block: str, ld: str) -> list[str]:
        """Columns go by their own numbers in the block and in the row buffers."""
        near = [f"float *{n} = {n}_all - j0;" for n in (self.row_names[b.uid] for b in self.phases.row_buffers)]
        return [*near, *super()._unit(f"{block} - j0", ld)]

    def row_pointers(self, prefix: str) -> list[str]:
        """As many columns as a block has."""
        lines: list[str] = []
        for place, buffer in enumerate(self.phases.row_buffers):
            name = self.row_names[buffer.uid] = f"{prefix}{place}"
            lines.append(f"float *{name}_all = (float *)row; row += (ld + 16) * 4;")
        return lines

    def block_lines(self) -> list[str]:
        """The product's columns from j0 to j1, then their powers."""
        loop = self.rows_of("block", "ld")
        row = self.var_names[self._rows()[-1]]
        call = self._multiply(*self.left(), "block", "ld", "j0 / 16, (j1 + 15) / 16, j1 + 15")
        return [f"{row} = first;", *call, *loop]

    def mask_bounds(self) -> list[str]:
        return self._mask_bounds(*self.left()) if self.bias is not None else []

    def factor_lines(self, total: str) -> tuple[str, list[str]]:
        """The name of what a row is multiplied by at its end."""
        self._open()
        self.results[self.softmax.total] = total
        name = self._value(self.softmax.factor)
        del self.results[self.softmax.total]
        return name, self.scopes.pop().lines


class OnlineSoftmaxWriter(B2bGemmWriter):
    """The kernel's body around blocks of columns."""

    headers: ClassVar[frozenset[str]] = frozenset((PRODUCT, ONLINE_SOFTMAX))
    form: ClassVar[KernelForm] = products.ONLINE_SOFTMAX

    def __init__(self, producer: Nest, kept: tuple[Tensor, Buffer], consumer: Nest, softmax: Softmax) -> None:
        self.softmax = softmax
        super().__init__(producer, kept, consumer)
        self.consumer.within = True
        self.consumer.low, self.consumer.limit = "j0", "j1"

    def _produce(self, producer: Nest, kept: tuple[Tensor, Buffer]) -> FusedGemmWriter:
        return _ProducerWriter(producer, kept, self.softmax)

    def sizes(self) -> ProductSizes:
        made = super().sizes()
        beside: Ix = self.consumer.columns * 2 + 36
        buffers = len(self.producer.phases.row_buffers)
        return replace(made, b2b=beside, buffers=buffers, extra_bytes=self.consumer.extra_bytes())

    def body(self) -> list[str]:
        first, second = self.producer, self.consumer
        assert isinstance(first, _ProducerWriter)
        head = [
            "const int64_t first = (at % t->row_blocks) * t->block_rows;",
            f"const int64_t count = smelt_min(t->block_rows, ({first.height()}) - first);",
            f"const int64_t ld = t->span, ld2 = {second.width()};",
            *block_pointers(("block", "ld"), ("block2", "ld2"), ("whole", "ld2"), ("room", "4")),
            "const smelt_softmax_state seen = smelt_softmax_state_of(room, t->block_rows);",
            "row = (char *)(((uintptr_t)row + 63) & ~(uintptr_t)63);",
            *first.row_pointers("w"),
            *second.row_pointers("y"),
            f"int64_t low = 0, limit = {first.mask_bounds_end()}, several = 0;",
        ]
        lines = [*first.scoped(self._blocks()), "float *made = several ? whole : block2;"]
        lines += [*first.scoped(self._scaled()), *second.scoped(second.rows_of("made", "ld2"))]
        return self.task_lines([*head, *lines])

    def _blocks(self) -> list[str]:
        """Columns block by block; only where there are several are they added up. Blocks begin at multiples of their
        size whatever columns are left out, so that a row's bits are its own."""
        first, second = self.producer, self.consumer
        assert isinstance(first, _ProducerWriter)
        return [
            *first.mask_bounds(),
            "several = limit > low && low / ld != (limit - 1) / ld;",
            "int64_t j0 = low, j1;",
            "do {",
            "  j1 = smelt_min((j0 / ld + 1) * ld, limit);",
            *("  " + line for line in first.block_lines()),
            *("  " + line for line in second.scoped(second.product_of(("block", "ld"), "block2", "ld2"))),
            "  if (several) smelt_softmax_merge(whole, block2, ld2, count, seen, j0 == low);",
            "  j0 = j1;",
            "} while (j0 < limit);",
        ]

    def _scaled(self) -> list[str]:
        """Rows of no columns stay zeros."""
        assert isinstance(self.producer, _ProducerWriter)
        name, lines = self.producer.factor_lines("total")
        return [
            "const float *sums = several ? seen.all_sums : seen.sums;",
            "for (int64_t u = 0; u < count && limit > low; u++) {",
            "  const v_f32 total = bc_f32(sums[u]);",
            *("  " + line for line in lines),
            f"  smelt_softmax_scale_row(made + u * ld2, ld2, {name});",
            "}",
        ]
