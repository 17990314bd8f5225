"""Random graphs whose sizes are known only at run time, and may broadcast there.

Input: a seed. Output: `SizeGraph`: a model of element-wise, view, reduction, product and Where nodes over one to four
free sizes, and feeds for any binding of them. Invariant: the same seed gives the same graph. Nothing promises that the
sizes fit: stock ONNX Runtime decides which bindings it takes. The names that the file gives to its sizes may lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
FREE = ("a", "b", "c", "d")
UNARY = ("Tanh", "Sigmoid", "Neg", "Abs", "Relu", "Erf", "Cos")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
Size = str | int | None  # a free size, a number, or what only the run tells


@dataclass(frozen=True)
class Value:
    name: str
    shape: tuple[Size, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


class SizeGraph:
    """Grows by random nodes; `model` and `feeds` give the result."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.free = FREE[: self._int(1, 4)]
        self.naming = ("own", "own", "same", "minus", "none")[self._int(0, 4)]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [Value(f"x{i}", self._input_shape()) for i in range(self._int(1, 4))]
        self.values = list(self.inputs)
        wanted = self._int(2, 12)
        for _ in range(60):
            if len(self.nodes) < wanted:
                self._step()
        while not self.nodes:
            self._unary(self.values[0])

    # results

    def model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        made = [v for v in self.values if v not in self.inputs]
        ends = [v for v in made if v.name not in used or self.random.random() < 0.1]
        outputs = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, None) for v in ends]
        inputs = [self._declared(v) for v in self.inputs if v.name in used]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

    def feeds(self, sizes: dict[str, int], model: onnx.ModelProto) -> dict[str, np.ndarray]:
        random = np.random.default_rng(7)
        shapes = {v.name: [sizes.get(s, s) if isinstance(s, str) else s for s in v.shape] for v in self.inputs}
        return {i.name: random.standard_normal(shapes[i.name]).astype(np.float32) for i in model.graph.input}

    def _declared(self, value: Value) -> onnx.ValueInfoProto:
        """A name of the file says nothing: it may be one for all sizes, none at all, or a -1."""
        name: Callable[[str], Any] = {
            "own": lambda s: s,
            "same": lambda _: "?",
            "minus": lambda _: -1,
            "none": lambda _: None,
        }[self.naming]
        return helper.make_tensor_value_info(
            value.name, TensorProto.FLOAT, [name(s) if isinstance(s, str) else s for s in value.shape]
        )

    # growing

    def _int(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def _one_of(self, things: Any) -> Any:
        return things[self._int(0, len(things) - 1)]

    def _input_shape(self) -> tuple[Size, ...]:
        sizes: tuple[Size, ...] = (*self.free, *self.free, 1, 3)
        return tuple(self._one_of(sizes) for _ in range(self._int(1, 3)))

    def _constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _add(self, op: str, inputs: list[str], shape: tuple[Size, ...], **attributes: Any) -> Value:
        value = Value(f"t{len(self.nodes)}", shape)
        self.nodes.append(helper.make_node(op, inputs, [value.name], **attributes))
        self.values.append(value)
        return value

    def _hidden(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """A node whose result is no operand of later random nodes."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def _step(self) -> None:
        recent = self.values[-4:] if self._int(0, 1) else self.values
        _STEPS[self._int(0, len(_STEPS) - 1)](self, self._one_of(recent))

    def _unary(self, x: Value) -> None:
        self._add(self._one_of(UNARY), [x.name], x.shape)

    def _binary(self, x: Value) -> None:
        fitting = [(v, _joined(x.shape, v.shape)) for v in self.values]
        other, shape = self._one_of([(v, s) for v, s in fitting if s is not None])
        names = [x.name, other.name] if self._int(0, 1) else [other.name, x.name]
        self._add(self._one_of(BINARY), names, shape)

    def _where(self, x: Value) -> None:
        fitting = [(v, _joined(x.shape, v.shape)) for v in self.values]
        other, shape = self._one_of([(v, s) for v, s in fitting if s is not None])
        third = self._one_of([v for v in self.values if _joined(shape, v.shape) is not None])
        truth = self._hidden("Greater", [self._one_of(self.inputs).name if self._int(0, 1) else x.name, other.name])
        tested = next(n for n in self.nodes if n.output[0] == truth)
        first = next(v for v in self.values if v.name == tested.input[0])
        inner = _joined(first.shape, other.shape)
        whole = None if inner is None else _joined(_joined(inner, x.shape) or (), third.shape)
        if inner is None or _joined(inner, x.shape) is None or whole is None or first not in self.inputs:
            self.nodes.pop()
            return
        self._add("Where", [truth, x.name, third.name], whole)

    def _reduce(self, x: Value) -> None:
        if x.rank:
            axes = sorted({self._int(0, x.rank - 1) for _ in range(self._int(1, 2))})
            keep = self._int(0, 1)
            shape = tuple(1 if d in axes else s for d, s in enumerate(x.shape) if keep or d not in axes)
            self._add(self._one_of(REDUCE), [x.name, self._constant(np.array(axes))], shape, keepdims=keep)

    def _softmax(self, x: Value) -> None:
        if x.rank:
            self._add("Softmax", [x.name], x.shape, axis=self._int(0, x.rank - 1))

    def _transpose(self, x: Value) -> None:
        perm = [int(p) for p in self.random.permutation(x.rank)]
        if x.rank > 1:
            self._add("Transpose", [x.name], tuple(x.shape[p] for p in perm), perm=perm)

    def _unsqueeze(self, x: Value) -> None:
        if x.rank < 4:
            axis = self._int(0, x.rank)
            shape = (*x.shape[:axis], 1, *x.shape[axis:])
            self._add("Unsqueeze", [x.name, self._constant(np.array([axis]))], shape)

    def _flatten(self, x: Value) -> None:
        if not x.rank:
            return
        kept = self._int(0, min(x.rank - 1, 2))
        target = [*([0] * kept), -1] if self._int(0, 2) else [-1]
        shape = (*x.shape[: len(target) - 1], None) if len(target) < x.rank else x.shape
        self._add("Reshape", [x.name, self._constant(np.array(target))], shape)

    def _reshape_like(self, x: Value) -> None:
        """Back to the shape of a value, which only the run tells."""
        other = self._one_of(self.values)
        if other.rank:
            flat = self._hidden("Reshape", [x.name, self._constant(np.array([-1]))])
            shape = self._hidden("Shape", [other.name])
            self._add("Reshape", [flat, shape], other.shape)

    def _slice(self, x: Value) -> None:
        if x.rank:
            axis = self._int(0, x.rank - 1)
            start, end, step = self._one_of(((0, 2, 1), (1, 1000, 2), (-1, -1000, -1), (-3, 1000, 1), (0, -1, 1)))
            parts = [self._constant(np.array([v])) for v in (start, end, axis, step)]
            whole = (start, step) == (-1, -1)
            shape = tuple(s if d != axis or whole else None for d, s in enumerate(x.shape))
            self._add("Slice", [x.name, *parts], shape)

    def _expand(self, x: Value) -> None:
        other = self._one_of([v for v in self.values if _joined(x.shape, v.shape) is not None])
        if self._int(0, 1) and other.rank:
            shape = self._hidden("Shape", [other.name])
            self._add("Expand", [x.name, shape], _joined(x.shape, other.shape) or ())
        elif x.rank:
            lead = self._one_of((1, 2, 3))
            target = (lead, *([1] * x.rank)) if x.rank < 4 and self._int(0, 1) else (lead, *([1] * (x.rank - 1)))
            self._add("Expand", [x.name, self._constant(np.array(target))], _joined(x.shape, target) or x.shape)

    def _concat(self, x: Value) -> None:
        """Of two values that may agree off the axis."""
        if x.rank:
            axis = self._int(0, x.rank - 1)
            shape = tuple(None if d == axis else s for d, s in enumerate(x.shape))
            others = [v for v in self.values if v.rank == x.rank and all(map(_fits, _off(v, axis), _off(x, axis)))]
            names = [x.name, *(self._one_of(others).name for _ in range(self._int(1, 2)))]
            self._add("Concat", names, shape, axis=axis)

    def _product(self, x: Value) -> None:
        """Of two values, the right one perhaps transposed so that the inner sizes may fit."""
        fitting = [v for v in self.values if v.rank >= 2 and x.rank >= 2 and v.rank + x.rank < 7]
        if not fitting:
            return
        y = self._one_of(fitting)
        if x.shape[-1] != y.shape[-2] and x.shape[-1] == y.shape[-1]:
            perm = [*range(y.rank - 2), y.rank - 1, y.rank - 2]
            y = self._add("Transpose", [y.name], tuple(y.shape[p] for p in perm), perm=perm)
        batch = _joined(x.shape[:-2], y.shape[:-2])
        if batch is not None and _fits(x.shape[-1], y.shape[-2]):
            made = self._add("MatMul", [x.name, y.name], (*batch, x.shape[-2], y.shape[-1]))
            self._add("Tanh", [made.name], made.shape)

    def _dense(self, x: Value) -> None:
        if x.rank >= 2 and isinstance(x.shape[-1], int | None):
            depth = x.shape[-1] if isinstance(x.shape[-1], int) else 2
            weight = self._constant(self.random.normal(0, 0.5, (depth, 5)).astype(np.float32))
            self._add("MatMul", [x.name, weight], (*x.shape[:-1], 5))

    def _gather(self, x: Value) -> None:
        if x.rank:
            axis = self._int(0, x.rank - 1)
            index = np.array(self._one_of(([0, 0], [0], [-1, 0, -1])))
            shape = (*x.shape[:axis], len(index), *x.shape[axis + 1 :])
            self._add("Gather", [x.name, self._constant(index)], shape, axis=axis)

    def _tile(self, x: Value) -> None:
        if x.rank:
            times = [self._int(1, 2) for _ in range(x.rank)]
            shape = tuple(s if t == 1 else None for s, t in zip(x.shape, times, strict=True))
            self._add("Tile", [x.name, self._constant(np.array(times))], shape)


_STEPS: tuple[Callable[[SizeGraph, Value], None], ...] = (
    SizeGraph._unary, SizeGraph._unary, SizeGraph._binary, SizeGraph._binary, SizeGraph._binary, SizeGraph._binary,
    SizeGraph._where, SizeGraph._reduce, SizeGraph._reduce, SizeGraph._softmax, SizeGraph._transpose,
    SizeGraph._unsqueeze, SizeGraph._flatten, SizeGraph._reshape_like, SizeGraph._slice, SizeGraph._expand,
    SizeGraph._concat, SizeGraph._product, SizeGraph._product, SizeGraph._dense, SizeGraph._gather, SizeGraph._tile,
)  # fmt: skip


def _off(value: Value, axis: int) -> tuple[Size, ...]:
    return value.shape[:axis] + value.shape[axis + 1 :]


def _fits(a: Size, b: Size) -> bool:
    return a == b or not (isinstance(a, int) and isinstance(b, int))


def _joined(a: tuple[Size, ...], b: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The shape of a broadcast that some binding of the sizes allows, else None."""
    rank = max(len(a), len(b))
    pairs = zip([*[1] * (rank - len(a)), *a], [*[1] * (rank - len(b)), *b], strict=True)
    out: list[Size] = []
    for p, q in pairs:
        if p != 1 and q != 1 and not _fits(p, q):
            return None
        known = [s for s in (p, q) if isinstance(s, int) and s != 1]
        out.append(p if p == q else q if p == 1 else p if q == 1 else known[0] if known else None)
    return tuple(out)
