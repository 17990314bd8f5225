"""Evaluates tensors of the kernel language with numpy: the meaning of a region without a compiler.

Input: a tensor, arrays for the buffers it reads, numbers for its symbols. Output: an array. Invariant: follows the
definitions literally; a read outside a buffer is an error in both arms of a select, as in generated code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import expr as E
from smelt.ir.kernel.expr import Expr
from smelt.ir.kernel.index import Atom, Fn, Ix, Sym, Val, Var, of, one_not_1
from smelt.ir.kernel.numpy_rules import DTYPE, RULES, Array, convert, divide
from smelt.ir.kernel.slide import convolve, pooled
from smelt.ir.kernel.tensor import (
    Assemble,
    Contraction,
    Convolution,
    Function,
    Lowered,
    Map,
    Pool,
    Reduce,
    Result,
    Scan,
    Stored,
    Tensor,
    View,
)
from smelt.ir.kernel.window import Geometry


def interpret(
    tensor: Tensor, buffers: Mapping[str, Array], symbols: Mapping[str, int] | None = None, *, wide: bool = False
) -> Array:
    """The tensor's elements. `wide` computes in float64 where the tensor says float32 (the numerics reference).

    Symbols named after a buffer (`v3.1`: a dimension, `v3[0]`: an element) are read from it when not given."""
    return Interpreter(buffers, symbols or {}, wide).tensor(tensor)


class Interpreter:
    """Evaluates several tensors over the same buffers, each shared tensor once."""

    def __init__(self, buffers: Mapping[str, Array], symbols: Mapping[str, int], wide: bool = False) -> None:
        self.buffers = buffers
        self.symbols = dict(symbols)
        self.dtypes = {**DTYPE, "f32": DTYPE["f64"]} if wide else DTYPE
        self.done: dict[int, Array] = {}
        self.called: dict[int, Sequence[Array]] = {}

    def number(self, value: Ix) -> int:
        """A size expression without loop variables."""
        return int(_Grid(self, {}).ix(value))

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(self.number(s) for s in tensor.shape)

    def symbol(self, name: str) -> int:
        if name not in self.symbols:
            self.symbols[name] = self._from_buffer(name)
        return self.symbols[name]

    def _from_buffer(self, name: str) -> int:
        if name.endswith("]"):
            base, _, place = name[:-1].rpartition("[")
            return int(self.buffers[base].reshape(-1)[int(place)])
        base, _, axis = name.rpartition(".")
        if base not in self.buffers:
            raise KeyError(f"no value for the symbol {name}")
        return self.buffers[base].shape[int(axis)]

    def tensor(self, tensor: Tensor) -> Array:
        found = self.done.get(tensor.uid)
        if found is None:
            with np.errstate(all="ignore"):
                found = self._evaluate(tensor)
            assert found.shape == self.shape(tensor), f"{found.shape} is not {self.shape(tensor)}"
            self.done[tensor.uid] = found
        return found

    def _evaluate(self, tensor: Tensor) -> Array:
        definition = tensor.definition
        match definition:
            case Stored() | Map() | View():
                return self._elements(tensor)
            case Reduce():
                return self._reduce(definition, self.dtypes[tensor.dtype])
            case Scan():
                return self._scan(definition)
            case Assemble():
                return self._assemble(tensor, definition)
            case Contraction():
                return self.tensor(definition.a) @ self.tensor(definition.b)
            case Convolution():
                weights = self.tensor(definition.b)
                return convolve(definition, self.tensor(definition.a), weights, self._axes(definition.geometry))
            case Pool():
                return pooled(definition, self.tensor(definition.a), self._axes(definition.geometry))
            case Result():
                return self._results(definition.function)[definition.place].astype(self.dtypes[tensor.dtype])
            case Lowered():
                raise TypeError(f"{type(definition).__name__} belongs to a backend")

    def _elements(self, tensor: Tensor) -> Array:
        self._find_sizes(tensor)
        sizes = self.shape(tensor)
        loops = tuple(Var(f"i{tensor.uid}_{axis}", extent) for axis, extent in enumerate(tensor.shape))
        grid = {v.name: _along(axis, len(sizes), size) for axis, (v, size) in enumerate(zip(loops, sizes, strict=True))}
        if 0 in sizes:
            return np.zeros(sizes, self.dtypes[tensor.dtype])
        where = tuple(of(v) for v in loops)
        root = tensor.expand(where) if isinstance(tensor.definition, Map) else tensor.at(where)
        assert root.dtype == tensor.dtype, f"an element is {root.dtype}, its tensor {tensor.dtype}"
        return np.broadcast_to(_Grid(self, grid).expr(root), sizes).copy()

    def _find_sizes(self, tensor: Tensor) -> None:
        """Run the functions that tell the sizes of this tensor, where one is not known yet."""
        definition = tensor.definition
        operands = definition.args if isinstance(definition, Map) else (getattr(definition, "src", None),)
        for operand in operands:
            if operand is None:
                continue
            if isinstance(operand.definition, Result) and operand.definition.function.found:
                self._results(operand.definition.function)
            self._find_sizes(operand)

    def _reduce(self, reduce: Reduce, dtype: np.dtype[Any]) -> Array:
        src = self.tensor(reduce.src)
        if reduce.kind.startswith("arg"):
            return _arg_reduce(reduce.kind, src, reduce.axes[0]).astype(dtype)
        if reduce.kind in ("sum", "prod"):
            total = np.sum if reduce.kind == "sum" else np.prod
            return np.asarray(total(src, axis=reduce.axes, dtype=dtype, keepdims=True))
        extreme = np.min if reduce.kind == "min" else np.max
        return np.asarray(extreme(src, axis=reduce.axes, keepdims=True, initial=_neutral(reduce.kind, src.dtype)))

    def _scan(self, scan: Scan) -> Array:
        src = self.tensor(scan.src)
        rule, neutral = _SCANS[scan.kind]
        flipped = np.flip(src, scan.axis) if scan.reverse else src
        out = rule(flipped, axis=scan.axis, dtype=src.dtype)
        if scan.exclusive:
            first = np.full_like(out[_cut(scan.axis, 0, 1)], neutral)
            out = np.concatenate([first, out[_cut(scan.axis, 0, -1)]], scan.axis) if out.shape[scan.axis] else out
        return np.flip(out, scan.axis) if scan.reverse else out

    def _assemble(self, tensor: Tensor, assembly: Assemble) -> Array:
        sizes = self.shape(tensor)
        out = np.full(sizes, 0 if assembly.fill is None else assembly.fill, self.dtypes[tensor.dtype])
        covered = np.zeros(sizes, bool)
        for offset, piece in assembly.pieces:
            values = self.tensor(piece)
            starts = [self.number(o) for o in offset]
            inside = all(s >= 0 and s + n <= m for s, n, m in zip(starts, values.shape, sizes, strict=True))
            assert inside or not values.size, f"a piece of {values.shape} at {starts} leaves {sizes}"
            place = tuple(slice(s, s + n) for s, n in zip(starts, values.shape, strict=True))
            if values.size:
                out[place], covered[place] = values, True
        assert assembly.fill is not None or covered.all(), "an assembly without fill leaves a gap"
        return out

    def _results(self, function: Function) -> Sequence[Array]:
        """All results of a function, which runs once."""
        key = id(function)
        if key not in self.called:
            operands = [None if t is None else self.tensor(t) for t in function.operands]
            numbers = [self.number(n) for n in function.numbers]
            self.called[key] = function.reference(operands, numbers, function.factors)
            for (shape, _), array in zip(function.results, self.called[key], strict=True):
                sizes = zip(shape, array.shape, strict=True)
                self.symbols |= {s.name: size for s, _ in function.found for ix_, size in sizes if ix_ == of(s)}
        return self.called[key]

    def _axes(self, geometry: Geometry) -> list[list[int]]:
        return [[self.number(i) for i in values] for values in geometry.axes()]


class _Grid:
    """One index grid: loop variables as arrays that broadcast to the tensor's shape."""

    def __init__(self, owner: Interpreter, loops: Mapping[str, Array]) -> None:
        self.owner = owner
        self.loops = loops
        self.values: dict[int, Array] = {}

    def expr(self, root: Expr) -> Array:
        for node in E.walk(root):
            if node.uid not in self.values:
                self.values[node.uid] = self._node(node)
        return self.values[root.uid]

    def _node(self, node: Expr) -> Array:
        dtype = self.owner.dtypes[node.dtype]
        match node.kind:
            case E.Const(value):
                return np.asarray(value).astype(dtype)
            case E.Index(value):
                return self.ix(value).astype(dtype)
            case E.Load(buffer, offset):
                memory = self.owner.buffers[buffer.name].reshape(-1)
                return _read(memory, (self.ix(offset),)).astype(dtype)
            case E.Ref(tensor, index):
                return _read(self.owner.tensor(tensor), tuple(self.ix(i) for i in index))
            case E.Op(name, args):
                operands = [self.values[a.uid] for a in args]
                if name == "cvt":
                    return convert(operands[0], dtype)
                return np.asarray(RULES[name](*operands)).astype(dtype, copy=False)

    def ix(self, value: Ix) -> Array:
        total = np.asarray(0, np.int64)
        for monomial, scale in value.terms:
            part = np.asarray(scale, np.int64)
            for atom in monomial:
                part = part * self._atom(atom)
            total = total + part
        return total

    def _atom(self, atom: Atom) -> Array:
        match atom:
            case Sym() if atom.members:
                return self.ix(one_not_1(atom.members))
            case Sym():
                return np.asarray(self.owner.symbol(atom.name), np.int64)
            case Var():
                return self.loops[atom.name]
            case Fn():
                return _INTEGER[atom.op](*(self.ix(a) for a in atom.args))
            case Val():
                return _wrapped(self.expr(atom.expr).astype(np.int64), self.ix(atom.extent))


def _along(axis: int, rank: int, size: int) -> Array:
    return np.arange(size, dtype=np.int64).reshape([size if a == axis else 1 for a in range(rank)])


def _read(memory: Array, index: tuple[Array, ...]) -> Array:
    for i, size in zip(index, memory.shape, strict=True):
        if i.size and (i.min() < 0 or i.max() >= size):
            raise IndexError(f"a read at {int(i.min())}..{int(i.max())} leaves an axis of {size}")
    return memory[index]


def _wrapped(index: Array, extent: Array) -> Array:
    wrapped = np.where(index < 0, index + extent, index)
    if np.any((wrapped < 0) | (wrapped >= extent)):
        raise IndexError(f"an index read from data is out of range for an axis of {extent.max()}")
    return wrapped


def _cut(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))


def _neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    low = kind in ("max", "top")
    if dtype.kind == "f":
        return -np.inf if low else np.inf
    if dtype.kind == "b":
        return not low
    return np.iinfo(dtype).min if low else np.iinfo(dtype).max


def _arg_reduce(kind: str, src: Array, axis: int) -> Array:
    find = np.argmax if kind.startswith("argmax") else np.argmin
    if not kind.endswith("_last"):
        return np.asarray(find(src, axis=axis, keepdims=True))
    return src.shape[axis] - 1 - np.asarray(find(np.flip(src, axis), axis=axis, keepdims=True))


def _floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


def _truth(rule: Callable[..., Any]) -> Callable[..., Array]:
    def apply(*args: Array) -> Array:
        return np.asarray(rule(*args)).astype(np.int64)

    return apply


def _not_one(size: Array) -> Array:
    return np.not_equal(size, 1).astype(np.int64)


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition != 0, yes, no)


_INTEGER: dict[str, Callable[..., Array]] = {
    "floordiv": _floordiv, "truncdiv": divide, "mod": _mod, "min": np.minimum, "max": np.maximum,
    "ne1": _not_one, "eq": _truth(np.equal), "lt": _truth(np.less), "sel": _choose,
}  # fmt: skip
_SCANS: dict[str, tuple[Callable[..., Array], int]] = {"sum": (np.cumsum, 0), "prod": (np.cumprod, 1)}
