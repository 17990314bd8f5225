"""A loop nest as a Triton function: a block of rows per program, reductions along the block's columns.

Input: a `Nest` without products. Output: `Text`: the function, its buffers and sizes in the order of its arguments.
Invariant: every access is masked by the loop variables that it depends on, and by its buffer's size where the range of
its offset is not proved; names are generated, so that equal nests give equal text.

Without inner loops a program computes BLOCK elements. With them it has ROWS rows, and either walks their columns BLOCK
at a time, once for each reduction that waits for another, or holds a whole row in its block and computes it once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from smelt.codegen.cluster import Reduction, Store
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Expr, Ix, Scan, Sym, Tensor, Unsupported, Val, Var, of, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, Fn, at_least, nonneg

from .spelling import TYPE, constant, number, operation

Dims = frozenset[str]  # of "r" and "c": whether a value differs between rows, between columns
NONE: Dims = frozenset()


@dataclass
class Arguments:
    """What the forms of a kernel are called with: buffers, then sizes, which the host computes."""

    buffers: dict[int, tuple[str, Buffer]] = field(default_factory=dict[int, "tuple[str, Buffer]"])
    sizes: dict[Ix, str] = field(default_factory=dict[Ix, str])

    def names(self) -> list[str]:
        return [*(name for name, _ in self.buffers.values()), *self.sizes.values()]


@dataclass(frozen=True)
class Text:
    """The body of a function, and the constants that it is given. `accesses` counts loads and stores: those whose range
    is proved, and those that a bound on the offset guards."""

    lines: tuple[str, ...]
    constants: tuple[str, ...]
    functions: frozenset[str]
    accesses: tuple[int, int]

    def function(self, arguments: Arguments) -> str:
        given = ", ".join((*arguments.names(), *(f"{name}: tl.constexpr" for name in self.constants)))
        return "\n".join(("@triton.jit", f"def @KERNEL@({given}):", *(f"    {line}" for line in self.lines), ""))


def write(nest: Nest, arguments: Arguments, *, whole: bool, wide: bool) -> Text:
    """`whole`: rows fit the block. `wide`: indices of 64 bits."""
    if nest.products:
        raise Unsupported("a product is not a loop nest")
    return _Writer(nest, arguments, whole=whole, wide=wide).text()


class BlockWriter:
    """Expressions over blocks: names, masks, and the lines that they need."""

    def __init__(self, arguments: Arguments, *, wide: bool) -> None:
        self.arguments = arguments
        self.index = "tl.int64" if wide else "tl.int32"
        self.widened = ".to(tl.int64)" if wide else ""  # of what has 32 bits by itself
        self.functions: set[str] = set()
        self.variables: dict[Var, tuple[str, Dims]] = {}
        self.results: dict[Tensor, tuple[str, Dims]] = {}
        self.named: dict[int, tuple[str, Dims]] = {}
        self.checked: dict[str, tuple[str, Dims]] = {}
        self.outer: list[str] = []
        self.inner: list[str] = self.outer
        self.count = 0
        self.proved = self.guarded = 0
        self.masks = {"r": "rm", "c": "cm"}
        self.axes = {"r": "r", "c": "c"}

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, dims: Dims, text: str) -> None:
        """What all columns share is computed before the loop over them."""
        (self.inner if "c" in dims else self.outer).append(text)

    def buffer(self, buffer: Buffer) -> str:
        held = self.arguments.buffers
        return held.setdefault(buffer.uid, (f"b{len(held)}", buffer))[0]

    def size(self, size: Ix) -> str:
        """What no loop changes is computed by the host, in 64 bits."""
        held = self.arguments.sizes
        return held.setdefault(size, f"s{len(held)}")

    # integers

    def integer(self, value: Ix) -> tuple[str, Dims]:
        if not value.terms:
            return "0", NONE
        parts: list[str] = []
        dims: Dims = NONE
        for monomial, scale in reversed(value.terms):
            factors: list[str] = []
            for atom in monomial:
                text, own = self._atom(atom)
                factors.append(text)
                dims |= own
            if scale != 1 or not factors:
                factors.append(str(scale) if scale >= 0 else f"({scale})")
            parts.append(" * ".join(factors))
        return " + ".join(parts), dims

    def _atom(self, atom: Atom) -> tuple[str, Dims]:
        if isinstance(atom, Sym) or (isinstance(atom, Fn) and _is_steady(atom)):
            return self.size(of(atom)), NONE
        if isinstance(atom, Var):
            return self.variables[atom]
        if isinstance(atom, Val):
            return self._data(atom)
        args = [self.integer(a) for a in atom.args]
        dims = frozenset[str]().union(*(d for _, d in args))
        return self._function(atom, [f"({t})" for t, _ in args]), dims

    def _function(self, atom: Fn, args: Sequence[str]) -> str:
        if atom.op in ("floordiv", "mod"):
            if nonneg(atom.args[0]) and (atom.args[1].const or 0) > 0:
                return f"({args[0]} {'//' if atom.op == 'floordiv' else '%'} {args[1]})"
            name = "floor_divide" if atom.op == "floordiv" else "floor_modulo"
            self.functions.add(name)
            return f"{name}({self._block(args[0])}, {args[1]})"
        if atom.op == "truncdiv":
            self.functions.add("whole_divide")
            return f"whole_divide({self._block(args[0])}, {self._block(args[1])})"
        simple = {
            "min": lambda: f"tl.minimum({args[0]}, {args[1]})",
            "max": lambda: f"tl.maximum({args[0]}, {args[1]})",
            "ne1": lambda: f"tl.where({args[0]} != 1, 1, 0)",
            "eq": lambda: f"tl.where({args[0]} == {args[1]}, 1, 0)",
            "lt": lambda: f"tl.where({args[0]} < {args[1]}, 1, 0)",
            "sel": lambda: f"tl.where({args[0]} != 0, {args[1]}, {args[2]})",
        }
        return simple[atom.op]()

    def _block(self, text: str) -> str:
        """Functions ask for the type of an operand, which a bare number has not."""
        return f"tl.cast({text}, {self.index})"

    def _data(self, atom: Val) -> tuple[str, Dims]:
        """An index read from data; negative ones count from the end."""
        key = f"v{atom.key}"
        if key not in self.checked:
            value, dims = self.value(atom.expr)
            extent, _ = self.integer(atom.extent)
            name = self.fresh("g")
            self.line(dims, f"{name} = {value}")
            self.line(dims, f"{name} = tl.where({name} < 0, {name} + ({extent}), {name})")
            if atom.checked:
                self.line(dims, f"{name}_ok = ({name} >= 0) & ({name} < ({extent}))")
                self.line(dims, f"{name} = tl.where({name}_ok, {name}, 0)")
            self.line(dims, f"{name} = {name}.to({self.index})")
            self.checked[key] = name, dims
        return self.checked[key]

    # memory

    def access(self, buffer: Buffer, offset: Ix, least: Dims = NONE) -> tuple[str, str, Dims]:
        """Pointer, mask ("" where a scalar is proved to be there) and dims, at least those of `least`."""
        text, dims = self.integer(offset)
        masks = [f"{self._data(v)[0]}_ok" for v in _below(offset) if v.checked]
        if in_range(offset, buffer):
            self.proved += 1
        else:
            size, _ = self.integer(buffer.elements)
            name = self.fresh("o")
            self.line(dims, f"{name} = {text}")
            masks.append(f"({name} >= 0) & ({name} < ({size}))")
            text = name
            self.guarded += 1
        for dim in sorted(least - dims):
            text += f" + {self.axes[dim]} * 0"
        dims |= least
        masks = [self.masks[dim] for dim in sorted(dims, reverse=True)] + masks
        return f"{self.buffer(buffer)} + ({text})", " & ".join(_bracketed(m) for m in masks), dims

    def load(self, buffer: Buffer, offset: Ix) -> tuple[str, Dims]:
        pointer, mask, dims = self.access(buffer, offset)
        text = f"tl.load({pointer}, mask={mask}, other=0)" if mask else f"tl.load({pointer})"
        return (f"({text} != 0)" if buffer.dtype == "b" else text), dims

    def store(self, store: Store, least: Dims) -> None:
        value, _ = self.value(store.value)
        pointer, mask, _ = self.access(store.buffer, store.offset, least)
        value = f"{value}.to(tl.uint8)" if store.buffer.dtype == "b" else value
        (self.inner if "c" in least else self.outer).append(f"tl.store({pointer}, {value}, mask={mask})")

    # values

    def value(self, root: Expr) -> tuple[str, Dims]:
        """The name of an expression's block. Iterative: chains may be very long."""
        for node in E.walk(root, known=self.named):
            if node.uid not in self.named:
                self.named[node.uid] = self._emit(node)
        return self.named[root.uid]

    def _emit(self, node: Expr) -> tuple[str, Dims]:
        kind = node.kind
        if isinstance(kind, E.Ref):
            if kind.tensor not in self.results:
                raise Unsupported("a value of another kernel is read in place")
            return self.results[kind.tensor]
        text, dims = self._text(node)
        name = self.fresh("e")
        self.line(dims, f"{name} = {text}")
        return name, dims

    def _text(self, node: Expr) -> tuple[str, Dims]:
        kind = node.kind
        if isinstance(kind, E.Const):
            return constant(kind.value, node.dtype), NONE
        if isinstance(kind, E.Load):
            return self.load(kind.buffer, kind.offset)
        if isinstance(kind, E.Index):
            text, dims = self.integer(kind.ix)
            return f"tl.cast({text}, {TYPE[node.dtype]})", dims
        assert isinstance(kind, E.Op)
        args = [self.named[a.uid] for a in kind.args]
        operand = node.dtype if kind.name == "sel" else kind.args[0].dtype
        text, function = self._op(kind, node.dtype, operand, [name for name, _ in args])
        self.functions |= {function} if function else set()
        return text, frozenset[str]().union(*(d for _, d in args))

    def _op(self, kind: E.Op, dtype: str, operand: str, args: Sequence[str]) -> tuple[str, str | None]:
        if kind.name == "pow" and operand in E.FLOATS and isinstance(kind.args[1].kind, E.Const):
            simple = _small_power(float(kind.args[1].kind.value), args[0])
            if simple is not None:
                return simple
        return operation(kind.name, dtype, operand, args)


def _small_power(exponent: float, x: str) -> tuple[str, str | None] | None:
    """Exponents that need no logarithm."""
    if exponent in (1.0, 2.0, 3.0):
        return " * ".join([x] * int(exponent)), None
    if exponent == -1.0:
        return f"divide(tl.zeros_like({x}) + 1, {x})", "divide"
    return None


def _bracketed(mask: str) -> str:
    return mask if mask.isidentifier() else f"({mask})"


def _is_steady(atom: Fn) -> bool:
    """Whether a function depends on sizes alone."""
    return not any(isinstance(inner, (Var, Val)) for inner in of(atom).atoms)


def _below(offset: Ix) -> Sequence[Val]:
    return offset.data


def in_range(offset: Ix, buffer: Buffer) -> bool:
    """Whether the offset lies in the buffer for every value of the loop variables, which masks keep below their
    extents."""
    elements = buffer.elements
    if offset.const is not None and elements.const is not None:
        return 0 <= offset.const < elements.const
    if not any(isinstance(a, Var) for a in offset.atoms) and elements.const is None:
        return False  # nothing says that there is an element at all
    return nonneg(offset) and at_least(elements - 1 - offset, 0)


class LoopWriter(BlockWriter):
    """Reductions along the columns of a block."""

    def forget(self) -> None:
        """What was computed in a loop over columns is gone after it."""
        self.named = {uid: one for uid, one in self.named.items() if "c" not in one[1]}
        self.checked = {key: one for key, one in self.checked.items() if "c" not in one[1]}

    def _masked(self, value: str, dtype: str, neutral: str) -> str:
        kind = "tl.int32" if dtype == "b" else TYPE[dtype]
        value = f"{value}.to(tl.int32)" if dtype == "b" else value
        return f"tl.where(rm & cm, {value}, {neutral}).to({kind})"

    def _reduced(self, reduction: Reduction) -> tuple[str, str, str]:
        """The value in the type of the result, that type, and what an absent element counts as."""
        dtype = reduction.tensor.dtype if reduction.kind in ("sum", "prod") else reduction.value.dtype
        value, _ = self.value(reduction.value if reduction.value.dtype == dtype else E.cast(reduction.value, dtype))
        return value, dtype, _neutral(reduction.kind, dtype)

    def _accumulator(self, reduction: Reduction) -> tuple[str, str]:
        dtype = reduction.tensor.dtype if reduction.kind in ("sum", "prod") else reduction.value.dtype
        kind = "tl.int32" if dtype == "b" else TYPE[dtype]
        name, place = self.fresh("a"), ""
        self.outer.append(f"{name} = tl.full((ROWS, BLOCK), {_neutral(reduction.kind, dtype)}, {kind})")
        if reduction.kind.startswith("arg"):
            place = self.fresh("p")
            self.outer.append(f"{place} = tl.full((ROWS, BLOCK), 0, tl.int64)")
            self.outer.append(f"{place}_new = tl.full((ROWS, BLOCK), 1, tl.int32)")
        return name, place

    def _accumulate(self, reduction: Reduction, names: tuple[str, str]) -> None:
        value, dtype, neutral = self._reduced(reduction)
        name, place = names
        if place:
            self._accumulate_place(reduction, value, name, place)
            return
        made = self._masked(value, dtype, neutral)
        if reduction.kind in ("sum", "prod"):
            self.inner.append(f"{name} = ({name} {'+' if reduction.kind == 'sum' else '*'} {made}).to({name}.dtype)")
            return
        function = "tl.minimum" if reduction.kind == "min" else "tl.maximum"
        nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype in E.FLOATS and reduction.kind != "top" else ""
        self.inner.append(f"{name} = {function}({name}, {made}{nan})")

    def _accumulate_place(self, reduction: Reduction, value: str, name: str, place: str) -> None:
        assert reduction.position is not None
        position, _ = self.value(reduction.position)
        sign = ">" if reduction.kind.startswith("argmax") else "<"
        sign += "=" if reduction.kind.endswith("_last") else ""
        last = reduction.kind.endswith("_last")
        nan = f"({value} != {value})" + ("" if last else f" & ({name} == {name})")
        held = f" & ({name} == {name})"  # a NaN is not beaten by a number
        better = f"((({value} {sign} {name}){held}) | ({nan}) | ({place}_new != 0)) & rm & cm"
        self.inner += [
            f"{place}_hit = {better}",
            f"{name} = tl.where({place}_hit, {value}, {name}).to({name}.dtype)",
            f"{place} = tl.where({place}_hit, {position}, {place})",
            f"{place}_new = tl.where({place}_hit, 0, {place}_new)",
        ]

    def _conclude(self, reduction: Reduction, names: tuple[str, str]) -> None:
        name, place = names
        dtype = reduction.tensor.dtype if reduction.kind in ("sum", "prod") else reduction.value.dtype
        if place:
            self._find_place(reduction, name, place, f"({place}_new == 0)", dtype)
        else:
            self._reduce_block(reduction, name, dtype)

    def _reduce_whole(self, reduction: Reduction) -> None:
        value, dtype, neutral = self._reduced(reduction)
        name = self.fresh("a")
        self.outer.append(f"{name} = {self._masked(value, dtype, neutral)}")
        if not reduction.kind.startswith("arg"):
            self._reduce_block(reduction, name, dtype)
            return
        assert reduction.position is not None
        position, _ = self.value(reduction.position)
        place = self.fresh("p")
        self.outer.append(f"{place} = tl.where(rm & cm, {position}, 0)")
        self._find_place(reduction, name, place, "(rm & cm)", dtype)

    def _find_place(self, reduction: Reduction, name: str, place: str, there: str, dtype: str) -> None:
        """Among lanes that hold something, the first (or last) place of the best value."""
        top = reduction.kind.startswith("argmax")
        best, made = self.fresh("q"), self.fresh("t")
        if dtype in E.FLOATS:
            function = "row_maximum" if top else "row_minimum"
            self.functions.add(function)
            self.outer.append(f"{best} = {function}({name})")
        else:
            self.outer.append(f"{best} = tl.{'max' if top else 'min'}({name}, axis=1, keep_dims=True)")
        last = reduction.kind.endswith("_last")
        function = "row_last" if last else "row_first"
        self.functions.add(function)
        beyond = "-1" if last else "9223372036854775807"
        self.outer.append(f"{place} = tl.where({there}, {place}, {beyond})")
        self.outer.append(f"{made} = {function}({name}, {place}, {best}).to({TYPE[reduction.tensor.dtype]})")
        self.results[reduction.tensor] = made, frozenset("r")

    def _reduce_block(self, reduction: Reduction, name: str, dtype: str) -> None:
        made, kind = self.fresh("t"), reduction.kind
        if kind == "sum":
            text = f"tl.sum({name}, axis=1, keep_dims=True)"
        elif kind == "prod":
            self.functions.add("multiply_two")
            text = f"tl.reduce({name}, 1, multiply_two, keep_dims=True)"
        elif kind in ("max", "min") and dtype in E.FLOATS:
            function = "row_maximum" if kind == "max" else "row_minimum"
            self.functions.add(function)
            text = f"{function}({name})"
        else:
            text = f"tl.{'min' if kind == 'min' else 'max'}({name}, axis=1, keep_dims=True)"
        text = f"({text} != 0)" if dtype == "b" else f"{text}.to({TYPE[dtype]})"
        self.outer.append(f"{made} = {text}")
        self.results[reduction.tensor] = made, frozenset("r")


class _Writer(LoopWriter):
    def __init__(self, nest: Nest, arguments: Arguments, *, whole: bool, wide: bool) -> None:
        super().__init__(arguments, wide=wide)
        self.nest, self.whole = nest, whole
        self.flat = not nest.inner and nest.scan is None

    def text(self) -> Text:
        head = self._head()
        if self.nest.scan is not None:
            self._scan(self.nest.scan)
        elif self.flat:
            for store in self.nest.stores:
                self.store(store, frozenset("r"))
        else:
            self._phases()
        sizes = ("BLOCK",) if self.flat else ("ROWS", "BLOCK")
        return Text((*head, *self.outer), sizes, frozenset(self.functions), (self.proved, self.guarded))

    # rows

    def _head(self) -> list[str]:
        size = "BLOCK" if self.flat else "ROWS"
        block = f"tl.arange(0, {size})" if self.flat else f"tl.arange(0, {size})[:, None]"
        rows, _ = self.integer(product(v.extent for v in self.nest.outer))
        lines = [f"r = tl.program_id(0).to({self.index}) * {size} + {block}", f"rm = r < ({rows})"]
        return lines + self._decode(self.nest.outer, "r", "i")

    def _decode(self, loops: Sequence[Var], place: str, stem: str) -> list[str]:
        """The loop variables of a place in their order."""
        lines: list[str] = []
        dims = frozenset(place)
        for number_, var in reversed(list(enumerate(loops))):
            name = f"{stem}{number_}"
            self.variables[var] = name, dims
            if number_ == 0:
                lines.append(f"{name} = {place}")
                break
            extent, _ = self.integer(var.extent)
            by = f"tl.maximum({extent}, 1)" if var.extent.const is None else f"({extent})"
            left = self.fresh(place)
            lines += [f"{name} = {place} % {by}", f"{left} = {place} // {by}"]
            place = left
        return lines

    # reductions

    def _phases(self) -> None:
        levels = levels_of(self.nest.reductions)
        inner = frozenset(self.nest.inner)
        deep = [s for s in self.nest.stores if s.offset.vars & inner]
        last = max([*levels.values(), *(level_of(s.value, levels) for s in deep), 0])
        if self.whole:
            self.outer += self._columns(f"tl.arange(0, BLOCK)[None, :]{self.widened}")
        for phase in range(last + 1):
            reductions = [r for r in self.nest.reductions if levels[r.tensor] == phase + 1]
            stores = [s for s in deep if level_of(s.value, levels) == phase]
            if reductions or stores:
                self._phase(reductions, stores)
        for store in self.nest.stores:
            if store not in deep:
                self.store(store, frozenset("r"))

    def _columns(self, place: str) -> list[str]:
        columns, _ = self.integer(product(v.extent for v in self.nest.inner))
        return [f"c = {place}", f"cm = c < ({columns})", *self._decode(self.nest.inner, "c", "n")]

    def _phase(self, reductions: Sequence[Reduction], stores: Sequence[Store]) -> None:
        if self.whole:
            for store in stores:
                self.store(store, frozenset("rc"))
            for reduction in reductions:
                self._reduce_whole(reduction)
            return
        accumulators = [(r, self._accumulator(r)) for r in reductions]
        self._open()
        for store in stores:
            self.store(store, frozenset("rc"))
        for reduction, names in accumulators:
            self._accumulate(reduction, names)
        self._close()
        for reduction, names in accumulators:
            self._conclude(reduction, names)

    def _open(self) -> None:
        """Lines go to the body of a loop over the columns; what was computed in another one is gone."""
        self.inner = self._columns(f"c0 + tl.arange(0, BLOCK)[None, :].to({self.index})")
        self.forget()

    def _close(self) -> None:
        columns, _ = self.integer(product(v.extent for v in self.nest.inner))
        body, self.inner = self.inner, self.outer
        self.outer += [f"for c0 in range(0, {columns}, BLOCK):", *(f"    {line}" for line in body)]
        self.forget()

    # scans

    def _scan(self, scan: Scan) -> None:
        """Blocks of columns one after the other, each begun with the total of those before."""
        reduction = self.nest.reductions[0]
        dtype, loops = reduction.tensor.dtype, self.nest.inner
        size, _ = self.integer(product(v.extent for v in loops))
        neutral = "0" if scan.kind == "sum" else "1"
        carry, made = self.fresh("a"), self.fresh("t")
        self.outer.append(f"{carry} = tl.full((ROWS, 1), {neutral}, {TYPE[dtype]})")
        first = 1 if scan.exclusive else 0
        self.inner = [
            f"t = c0 + tl.arange(0, BLOCK)[None, :].to({self.index})",
            f"tm = t < ({size})",
            f"cm = tm & (t >= {first})",
            f"c = ({size}) - 1 - (t - {first})" if scan.reverse else f"c = t - {first}",
        ]
        for var in loops:
            self.variables[var] = "c", frozenset("c")
        value, _ = self.value(reduction.value)
        step, rule = ("cumsum", "tl.sum") if scan.kind == "sum" else ("cumprod", "")
        masked = self.fresh("x")
        self.inner.append(f"{masked} = tl.where(rm & cm, {value}, {neutral}).to({TYPE[dtype]})")
        sign = "+" if scan.kind == "sum" else "*"
        self.inner.append(f"{made} = ({carry} {sign} tl.{step}({masked}, axis=1)).to({TYPE[dtype]})")
        if rule:
            total = f"tl.sum({masked}, axis=1, keep_dims=True)"
        else:
            self.functions.add("multiply_two")
            total = f"tl.reduce({masked}, 1, multiply_two, keep_dims=True)"
        self.inner.append(f"{carry} = ({carry} {sign} {total}).to({TYPE[dtype]})")
        self.inner += [f"c = ({size}) - 1 - t" if scan.reverse else "c = t", "cm = tm"]
        self.results[reduction.tensor] = made, frozenset("rc")
        for store in self.nest.stores:
            self.store(store, frozenset("rc"))
        body, self.inner = self.inner, self.outer
        self.outer += [f"for c0 in range(0, {size}, BLOCK):", *(f"    {line}" for line in body)]


def _neutral(kind: str, dtype: str) -> str:
    if kind == "sum":
        return number("f32" if dtype in E.FLOATS else "i32", 0)
    if kind == "prod":
        return number("f32" if dtype in E.FLOATS else "i32", 1)
    low = kind in ("max", "top") or kind.startswith("argmax")
    if dtype in E.FLOATS:
        return number("f32", -math.inf if low else math.inf)
    if dtype == "b":
        return "0" if low else "1"
    bits = 8 * E.SIZE_BYTES[dtype]
    least, most = (0, 2**bits - 1) if dtype in E.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return str(least if low else most)


def levels_of(reductions: Sequence[Reduction]) -> dict[Tensor, int]:
    """For each reduction the passes over the columns until it is known."""
    levels: dict[Tensor, int] = {}
    own, waiting = {r.tensor for r in reductions}, list(reductions)
    while waiting:
        ready = [r for r in waiting if _refs(r.value) & own <= levels.keys()]
        assert ready, "reductions depend on each other in a circle"
        for reduction in ready:
            levels[reduction.tensor] = level_of(reduction.value, levels) + 1
        waiting = [r for r in waiting if r.tensor not in levels]
    return levels


def _refs(value: Expr) -> set[Tensor]:
    return {e.kind.tensor for e in E.walk(value) if isinstance(e.kind, E.Ref)}


def level_of(value: Expr, levels: Mapping[Tensor, int]) -> int:
    return max((levels.get(e.kind.tensor, 0) for e in E.walk(value) if isinstance(e.kind, E.Ref)), default=0)
