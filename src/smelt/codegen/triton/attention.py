"""Attention as one kernel: scores are made block by block, and are never in memory.

Input: a product whose left operand is made, row by row, from the rows of another product. Output: a kernel. Invariant:
a program has ROWS rows of one batch index; scores are made by `tl.dot` in full precision; what does not follow from
them is read from memory. A softmax is online: the columns are walked once, and what is summed up is rescaled by the
running maximum. Anything else walks them once for each reduction that waits for another, and makes the scores anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from smelt.codegen.c.online_softmax import Softmax, softmax_in
from smelt.codegen.cluster import Cluster, Reduction
from smelt.codegen.needs import element_at, iterated, places
from smelt.codegen.resolve import Resolver
from smelt.ir.kernel import (
    Buffer,
    Contraction,
    Expr,
    Ix,
    Map,
    Reduce,
    Tensor,
    Unsupported,
    Var,
    View,
    flat,
    fn,
    ix,
    of,
    product,
)

from .emit import Arguments, LoopWriter, Text, level_of, levels_of
from .spelling import TYPE

T = TypeVar("T")
ROWS, COLUMNS = 32, 64
FEW_DEPTHS, MOST_DEPTH = 64, 128  # of a head; beyond the first one block of keys fits every target's shared memory


@dataclass(frozen=True)
class Attention:
    """`made` is weights @ values, `scores` queries @ keys."""

    made: Tensor
    scores: Tensor

    @property
    def outer(self) -> Contraction:
        assert isinstance(self.made.definition, Contraction)
        return self.made.definition

    @property
    def inner(self) -> Contraction:
        assert isinstance(self.scores.definition, Contraction)
        return self.scores.definition


def attention_of(made: Tensor, operands: Callable[[Tensor], Sequence[Tensor]]) -> Attention | None:
    """The attention that a product is the end of."""
    definition = made.definition
    if not isinstance(definition, Contraction) or made.dtype != "f32":
        return None
    found = [t for t in _below(definition.a, operands) if isinstance(t.definition, Contraction)]
    if len(found) != 1 or found[0].dtype != "f32" or found[0].shape != definition.a.shape:
        return None
    one = Attention(made, found[0])
    depths = [one.inner.a.shape[-1].const, definition.b.shape[-1].const]
    same = definition.a.shape[:-2] == made.shape[:-2]
    return one if same and all(d is not None and 0 < d <= MOST_DEPTH for d in depths) else None


def _below(root: Tensor, operands: Callable[[Tensor], Sequence[Tensor]]) -> list[Tensor]:
    """What follows into a tensor; products are not looked through."""
    found: dict[int, Tensor] = {}
    stack = [root]
    while stack:
        tensor = stack.pop()
        if tensor.uid not in found:
            found[tensor.uid] = tensor
            stack += [] if isinstance(tensor.definition, Contraction) else operands(tensor)
    return list(found.values())


class _Placement:
    """For resolving: maps are inlined, all else is read from `buffer`."""

    def __init__(self, buffer: Callable[[Tensor], Buffer], maps: set[Tensor]) -> None:
        self.inlined, self.readers = maps, Counter[Tensor]()
        self._buffer = buffer
        self.domains: dict[Tensor, tuple[list[Var], Expr]] = {}

    def buffer(self, tensor: Tensor) -> Buffer:
        return self._buffer(tensor)

    def domain(self, tensor: Tensor) -> tuple[list[Var], Expr]:
        if tensor not in self.domains:
            loops = [Var(f"l{tensor.uid}_{axis}", size) for axis, size in enumerate(iterated(tensor))]
            self.domains[tensor] = loops, element_at(tensor, tuple(places(loops).values()))
        return self.domains[tensor]


class AttentionWriter(LoopWriter):
    def __init__(
        self, one: Attention, target: Buffer, arguments: Arguments, operands: Callable[[Tensor], Sequence[Tensor]],
        buffer: Callable[[Tensor], Buffer], *, wide: bool,
    ) -> None:  # fmt: skip
        super().__init__(arguments, wide=wide)
        self.one, self.target, self.form = one, target, ""
        *sizes, rows, columns = one.scores.shape
        self.batch = [Var(f"h{axis}", size) for axis, size in enumerate(sizes)]
        self.row, self.column = Var("m", rows), Var("n", columns)
        self.key, self.depth, self.width = (
            Var("k", columns), Var("d", one.inner.a.shape[-1]), Var("e", one.made.shape[-1])
        )  # fmt: skip
        depends = {t for t in _below(one.outer.a, operands) if one.scores in _below(t, operands)}
        every = _below(one.outer.a, operands) + [
            t for side in (one.inner.a, one.inner.b, one.outer.b) for t in _below(side, operands)
        ]
        maps = {t for t in every if isinstance(t.definition, Map)}
        self.cluster = self._cluster([t for t in depends if isinstance(t.definition, Reduce)])
        self.resolver = Resolver(_Placement(buffer, maps), self.cluster)

    def _cluster(self, reductions: Sequence[Tensor]) -> Cluster:
        loops = [*self.batch, self.row, self.column]
        cluster = Cluster(0, loops, reduced=[self.column])
        where = _index(loops)
        cluster.members[self.one.scores] = where
        for tensor in reductions:
            definition = tensor.definition
            assert isinstance(definition, Reduce)
            if definition.axes != (len(loops) - 1,) or definition.src.shape != self.one.scores.shape:
                raise Unsupported("a reduction of attention scores over other than their rows")
            if definition.kind not in ("sum", "max", "min", "top"):
                raise Unsupported(f"a {definition.kind} of attention scores")
            cluster.members[tensor] = (*where[:-1], ix(0))
            own = [Var(f"l{tensor.uid}_{axis}", size) for axis, size in enumerate(definition.src.shape)]
            cluster.bound[tensor] = dict(zip(own, where, strict=True))
        return cluster

    @property
    def programs(self) -> Ix:
        return product(v.extent for v in self.batch) * fn("floordiv", self.row.extent + (ROWS - 1), ROWS)

    def text(self) -> Text:
        weights = self.resolver.resolve(self.one.outer.a.at(_index([*self.batch, self.row, self.column])))
        self.outer += self._head()
        query = self._tile(self.one.inner.a, self.row, self.depth, "rm", "dm", self.outer)
        self.outer.append(f"q = {query}")
        reductions = list(self.cluster.reductions.values())
        softmax = softmax_in(reductions, weights, masked=True)
        self.form = "online softmax" if softmax is not None else "by passes"
        self.outer.append("acc = tl.zeros((ROWS, WIDTH), tl.float32)")
        if softmax is not None:
            self._online(softmax, self.cluster.reductions[softmax.top])
        else:
            self._by_passes(reductions, weights)
        offset = flat(_index([*self.batch, self.row, self.width]), self.one.made.shape)
        pointer, mask, _ = self._as("rm", "em", lambda: self.access(self.target, offset, frozenset("rc")))
        self.outer.append(f"tl.store({pointer}, acc, mask={mask})")
        sizes = ("ROWS", "BLOCK", "DEPTH", "WIDTH")
        return Text(tuple(self.outer), sizes, frozenset(self.functions), (self.proved, self.guarded))

    def _head(self) -> list[str]:
        rows, columns = self.integer(self.row.extent)[0], self.integer(self.column.extent)[0]
        depth, width = self.depth.extent.const, self.width.extent.const
        self.columns = columns
        lines = [
            f"blocks = (({rows}) + ROWS - 1) // ROWS",
            f"place = (tl.program_id(0) // blocks){self.widened}",
            f"r = (tl.program_id(0) % blocks).to({self.index}) * ROWS + tl.arange(0, ROWS)[:, None]",
            f"rm = r < ({rows})",
            f"d = tl.arange(0, DEPTH)[None, :]{self.widened}\n    dm = d < {depth}",
            f"e = tl.arange(0, WIDTH)[None, :]{self.widened}\n    em = e < {width}",
        ]
        for number, var in reversed(list(enumerate(self.batch))):
            extent = f"tl.maximum({self.integer(var.extent)[0]}, 1)"
            lines += [f"h{number} = place % {extent}", f"place = place // {extent}"]
            self.variables[var] = f"h{number}", frozenset()
        self.variables |= {self.row: ("r", frozenset("r")), self.column: ("c", frozenset("c"))}
        self.variables |= {self.key: ("k", frozenset("r")), self.depth: ("d", frozenset("c"))}
        self.variables[self.width] = "e", frozenset("c")
        return lines

    def _tile(self, tensor: Tensor, row: Var, column: Var, rm: str, cm: str, lines: list[str]) -> str:
        """A block of an operand, zero outside. What it is made of is computed here and nowhere else."""
        rows = [*self.batch, row, column]
        index = tuple(of(v) if v.extent.const != 1 else ix(0) for v in rows)
        aligned = tuple(ix(0) if size.const == 1 else i for i, size in zip(index, tensor.shape, strict=True))
        if any(s != v.extent and s.const != 1 for s, v in zip(tensor.shape, rows, strict=True)):
            raise Unsupported("operands of attention that broadcast in sizes known only at run time")
        element = self.resolver.resolve(tensor.at(aligned))
        held, checked, outer, inner = dict(self.named), dict(self.checked), self.outer, self.inner
        self.outer = self.inner = lines
        name, _ = self._as(rm, cm, lambda: self.value(element))
        self.named, self.checked, self.outer, self.inner = held, checked, outer, inner
        return f"tl.where({rm} & {cm}, {name}, 0.0).to(tl.float32)"

    def _as(self, rm: str, cm: str, make: Callable[[], T]) -> T:
        """With these masks, which are named after the places that they mask."""
        masks, axes = self.masks, self.axes
        self.masks, self.axes = {"r": rm, "c": cm}, {"r": rm.removesuffix("m"), "c": cm.removesuffix("m")}
        made = make()
        self.masks, self.axes = masks, axes
        return made

    def _by_passes(self, reductions: Sequence[Reduction], weights: Expr) -> None:
        levels = levels_of(reductions)
        for phase in range(level_of(weights, levels)):
            self._pass([r for r in reductions if levels[r.tensor] == phase + 1], None)
        self._pass([], weights)

    def _online(self, softmax: Softmax, top: Reduction) -> None:
        """Powers of the scores less the maximum so far; one of -inf, of a row that has seen nothing, counts as 0."""
        self.functions |= {"exponential", "row_maximum", "online_maximum"}
        for name, start in (("top", 'float("-inf")'), ("total", "0.0")):
            self.outer.append(f"{name} = tl.full((ROWS, 1), {start}, tl.float32)")
        lines = self._open()
        score, _ = self.value(top.value)
        lines += [
            f'score = tl.where(rm & cm, {score}, float("-inf")).to(tl.float32)',
            "new = online_maximum(top, row_maximum(score))",
            'base = tl.where(new == float("-inf"), 0.0, new)',
            "scale = exponential(top - base)",
        ]
        self.results[softmax.top] = "base", frozenset("rc")  # differs from block to block
        power, _ = self.value(softmax.powers)
        lines += [
            f"w = tl.where(rm & cm, {power}, 0.0).to(tl.float32)",
            "total = total * scale + tl.sum(w, axis=1, keep_dims=True)",
            "top = new",
        ]
        value = self._tile(self.one.outer.b, self.key, self.width, "km", "em", lines)
        lines.append(f'acc = tl.dot(w, {value}, acc * scale, input_precision="ieee")')
        self._close()
        self.results |= {softmax.top: ("top", frozenset("r")), softmax.total: ("total", frozenset("r"))}
        factor, _ = self.value(softmax.factor)
        self.outer.append(f"acc = acc * {factor}")

    def _pass(self, reductions: Sequence[Reduction], weights: Expr | None) -> None:
        accumulators = [(r, self._accumulator(r)) for r in reductions]
        lines = self._open()
        for reduction, names in accumulators:
            self._accumulate(reduction, names)
        if weights is not None:
            name, _ = self.value(weights)
            lines.append(f"w = tl.where(rm & cm, {name}, 0.0).to({TYPE['f32']})")
            value = self._tile(self.one.outer.b, self.key, self.width, "km", "em", lines)
            lines.append(f'acc = tl.dot(w, {value}, acc, input_precision="ieee")')
        self._close()
        for reduction, names in accumulators:
            self._conclude(reduction, names)

    def _open(self) -> list[str]:
        """The body of a loop over the columns, in which a block of scores is made."""
        self.forget()
        self.inner = lines = [
            f"c = c0 + tl.arange(0, BLOCK)[None, :].to({self.index})", f"cm = c < ({self.columns})",
            f"k = c0 + tl.arange(0, BLOCK)[:, None].to({self.index})", f"km = k < ({self.columns})",
        ]  # fmt: skip
        key = self._tile_of_keys(lines)
        lines.append(f's = tl.dot(q, tl.trans({key}), input_precision="ieee")')
        self.results[self.one.scores] = "s", frozenset("rc")
        return lines

    def _close(self) -> None:
        lines, self.inner = self.inner, self.outer
        self.outer += [f"for c0 in range(0, {self.columns}, BLOCK):", *(f"    {line}" for line in lines)]
        self.forget()

    def _tile_of_keys(self, lines: list[str]) -> str:
        """Keys as rows: the right operand is their transpose."""
        b = self.one.inner.b
        flipped = Tensor((*b.shape[:-2], b.shape[-1], b.shape[-2]), b.dtype, _transposed(b), b.source)
        return self._tile(flipped, self.key, self.depth, "km", "dm", lines)


def _transposed(b: Tensor) -> View:
    return View(lambda w: b.at((*w[:-2], w[-1], w[-2])), b)


def _index(loops: Sequence[Var]) -> tuple[Ix, ...]:
    return tuple(ix(0) if v.extent.const == 1 else of(v) for v in loops)
