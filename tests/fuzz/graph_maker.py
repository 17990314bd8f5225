"""Random graphs that are valid by construction.

Input: a seed. Output: a ModelProto with free and fixed dims, and feeds of several sizes. Invariant: every value's shape
is known for the sizes chosen, so that no graph is refused for its shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NUMPY = {F: np.float32, I64: np.int64, B: np.bool_}
Shape = tuple[Any, ...]  # an int, or the name of a free dim

UNARY = ("Exp", "Tanh", "Sigmoid", "Erf", "Neg", "Abs", "Relu", "Softplus", "Floor", "Sin", "Cos", "Sqrt", "Round")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Div")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")


@dataclass(frozen=True)
class Value:
    name: str
    shape: Shape
    dtype: int = F


class Maker:
    """Adds random nodes to a growing graph."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.count = 0
        self.free = ["n", "m"][: int(self.random.integers(1, 3))]
        inputs = int(self.random.integers(1, 4))
        self.inputs = [Value(f"x{i}", self._shape()) for i in range(inputs)]
        self.values = list(self.inputs)
        for _ in range(int(self.random.integers(2, 18))):
            self._step()

    def _shape(self) -> Shape:
        sizes: list[Any] = [*self.free, 1, 3, 4, 8, 17]
        return tuple(sizes[int(self.random.integers(len(sizes)))] for _ in range(int(self.random.integers(1, 4))))

    def _step(self) -> None:
        steps: list[Callable[[Value], None]] = [
            self._unary, self._unary, self._binary, self._binary, self._binary, self._scaled, self._reduction,
            self._softmax, self._transpose, self._unsqueeze, self._concat, self._slice, self._where, self._normalized,
            self._gather, self._flat, self._cast, self._dense, self._cumulated, self._expand,
        ]  # fmt: skip
        floats = [v for v in self.values if v.dtype == F]
        steps[int(self.random.integers(len(steps)))](floats[int(self.random.integers(len(floats)))])

    # one method per kind of node

    def _unary(self, x: Value) -> None:
        self._add(self._one_of(UNARY), [x.name], x.shape)

    def _binary(self, x: Value) -> None:
        fitting = [v for v in self.values if v.dtype == F and self._broadcast(x.shape, v.shape) is not None]
        other = fitting[int(self.random.integers(len(fitting)))]
        self._add(self._one_of(BINARY), [x.name, other.name], self._broadcast(x.shape, other.shape) or ())

    def _scaled(self, x: Value) -> None:
        last = x.shape[-1] if x.shape and isinstance(x.shape[-1], int) else 1
        name = self._constant(self.random.normal(0, 1, (last,)).astype(np.float32))
        self._add(self._one_of(("Add", "Mul")), [x.name, name], x.shape or (last,))

    def _reduction(self, x: Value) -> None:
        if not x.shape:
            return
        axis = int(self.random.integers(len(x.shape)))
        keep = int(self.random.integers(2))
        shape = tuple(1 if i == axis else s for i, s in enumerate(x.shape) if keep or i != axis)
        self._add(self._one_of(REDUCTIONS), [x.name, self._constant(np.array([axis]))], shape, keepdims=keep)

    def _softmax(self, x: Value) -> None:
        if x.shape:
            axis = int(self.random.integers(-len(x.shape), len(x.shape)))
            self._add(self._one_of(("Softmax", "LogSoftmax")), [x.name], x.shape, axis=axis)

    def _transpose(self, x: Value) -> None:
        perm = [int(p) for p in self.random.permutation(len(x.shape))]
        if perm:
            self._add("Transpose", [x.name], tuple(x.shape[p] for p in perm), perm=perm)

    def _unsqueeze(self, x: Value) -> None:
        if len(x.shape) < 4:
            axis = int(self.random.integers(len(x.shape) + 1))
            shape = (*x.shape[:axis], 1, *x.shape[axis:])
            self._add("Unsqueeze", [x.name, self._constant(np.array([axis]))], shape)

    def _concat(self, x: Value) -> None:
        fixed = [i for i, s in enumerate(x.shape) if isinstance(s, int)]
        if fixed:
            axis = fixed[int(self.random.integers(len(fixed)))]
            shape = tuple(2 * s if i == axis else s for i, s in enumerate(x.shape))
            self._add("Concat", [x.name, x.name], shape, axis=axis)

    def _slice(self, x: Value) -> None:
        fixed = [i for i, s in enumerate(x.shape) if isinstance(s, int) and s > 1]
        if not fixed:
            return
        axis = fixed[int(self.random.integers(len(fixed)))]
        start, step = int(self.random.integers(0, x.shape[axis])), int(self.random.integers(1, 3))
        size = len(range(start, x.shape[axis], step))
        parts = [self._constant(np.array([v])) for v in (start, 2**40, axis, step)]
        self._add("Slice", [x.name, *parts], tuple(size if i == axis else s for i, s in enumerate(x.shape)))

    def _where(self, x: Value) -> None:
        test = self._add("Greater", [x.name, self._constant(np.zeros(1, np.float32))], x.shape or (1,), dtype=B)
        self._add("Where", [test.name, x.name, self._constant(np.full(1, 0.25, np.float32))], x.shape or (1,))

    def _normalized(self, x: Value) -> None:
        if x.shape and isinstance(x.shape[-1], int) and x.shape[-1] > 1:
            scale = self._constant(self.random.normal(1, 0.1, x.shape[-1]).astype(np.float32))
            self._add("LayerNormalization", [x.name, scale], x.shape, axis=-1, epsilon=1e-3)

    def _gather(self, x: Value) -> None:
        fixed = [i for i, s in enumerate(x.shape) if isinstance(s, int)]
        if fixed:
            axis = fixed[int(self.random.integers(len(fixed)))]
            index = self.random.integers(-x.shape[axis], x.shape[axis], 5)
            shape = tuple(5 if i == axis else s for i, s in enumerate(x.shape))
            self._add("Gather", [x.name, self._constant(index.astype(np.int64))], shape, axis=axis)

    def _flat(self, x: Value) -> None:
        if len(x.shape) == 2:
            back = self._add("Reshape", [x.name, self._constant(np.array([-1]))], ("?",))
            size = [-1, x.shape[1]] if isinstance(x.shape[1], int) else None
            self.values.remove(back)
            if size is not None and x.shape[1]:
                self._add("Reshape", [back.name, self._constant(np.array(size))], x.shape)

    def _cast(self, x: Value) -> None:
        clipped = [self._constant(np.array(v, np.float32)) for v in (-50, 50)]
        small = self._add("Clip", [x.name, *clipped], x.shape)
        whole = self._add("Cast", [small.name], x.shape, dtype=I64, to=I64)
        more = self._add("Mul", [whole.name, self._constant(np.array([3]))], x.shape or (1,), dtype=I64)
        self._add("Cast", [more.name], more.shape, to=F)

    def _dense(self, x: Value) -> None:
        if len(x.shape) >= 2 and isinstance(x.shape[-1], int):
            weight = self._constant(self.random.normal(0, 0.5, (x.shape[-1], 8)).astype(np.float32))
            self._add("MatMul", [x.name, weight], (*x.shape[:-1], 8))

    def _cumulated(self, x: Value) -> None:
        if x.shape:
            axis = int(self.random.integers(len(x.shape)))
            self._add("CumSum", [x.name, self._constant(np.array(axis))], x.shape)

    def _expand(self, x: Value) -> None:
        shape = tuple(2 if s == 1 else s for s in x.shape)
        if all(isinstance(s, int) for s in shape):
            self._add("Expand", [x.name, self._constant(np.array(shape, np.int64))], shape)

    # parts of a graph

    def _one_of(self, names: tuple[str, ...]) -> str:
        return names[int(self.random.integers(len(names)))]

    def _add(self, op: str, inputs: list[str], shape: Shape, dtype: int = F, **attributes: Any) -> Value:
        made = Value(f"v{self.count}", shape, dtype)
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [made.name], **attributes))
        self.values.append(made)
        return made

    def _constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    @staticmethod
    def _broadcast(a: Shape, b: Shape) -> Shape | None:
        rank = max(len(a), len(b))
        one, other = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
        if any(s != t and 1 not in (s, t) for s, t in zip(one, other, strict=True)):
            return None
        return tuple(t if s == 1 else s for s, t in zip(one, other, strict=True))

    # results

    def model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        made = {name for node in self.nodes for name in node.output}
        ends = [v for v in self.values if v.name in made and (v.name not in used or self.random.random() < 0.15)]
        outputs = [helper.make_tensor_value_info(v.name, v.dtype, None) for v in ends]
        inputs = [helper.make_tensor_value_info(v.name, F, v.shape) for v in self.inputs]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    def feeds(self) -> list[dict[str, np.ndarray]]:
        calls = []
        for n, m in ((2, 5), (1, 1), (19, 3)):
            sizes = {"n": n, "m": m}
            shapes = {v.name: [sizes.get(s, s) for s in v.shape] for v in self.inputs}
            calls.append({k: self.random.normal(0, 1, s).astype(np.float32) for k, s in shapes.items()})
        return calls
