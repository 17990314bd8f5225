"""Random graphs of element-wise, reducing and data-moving ops over symbolic dims.

Input: a function that draws integers. Output: `RandomGraph`: a model, and inputs for any sizes of its dims. Invariant:
the same draws give the same graph; values stay of moderate size, and step functions (floor, comparisons, casts to
integers, arg) read only values that have no rounding error, so that results can be compared within a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Draw = Callable[[int], int]  # draw(n) is in [0, n)
DIMS = ("a", "b", "c")
OPSET = 18
EXACT_UNARY = ("Relu", "Neg", "Abs", "Floor", "Round", "Sign")
FLOAT_UNARY = ("Tanh", "Sigmoid", "Erf", "Cos", "HardSwish", "Softplus", "Elu", "Neg", "Abs", "Relu")
INEXACT = frozenset((*FLOAT_UNARY[:7], "Add", "Sub", "Mul", "Softmax", "LogSoftmax", "CumSum", "LayerNormalization"))
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
COMPARE = ("Less", "GreaterOrEqual", "Equal")
REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1")
TYPES = {
    "f": TensorProto.FLOAT,
    "i": TensorProto.INT64,
    "s": TensorProto.INT32,
    "d": TensorProto.DOUBLE,
    "y": TensorProto.INT8,
}
NUMPY = {"f": np.float32, "i": np.int64, "s": np.int32, "d": np.float64, "y": np.int8}


@dataclass
class Value:
    """`shape` holds dim names, numbers, or None where only the run tells."""

    name: str
    kind: str
    shape: tuple[Any, ...]
    exact: bool = True

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class RandomGraph:
    draw: Draw
    inputs: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        outputs = [v for v in self.values if v.name not in used] or self.values[-1:]
        outputs += [v for v in self.values if v.name in used and v not in self.inputs][: self.draw(2)]
        fed = [v for v in self.inputs if v.name in used]
        graph = helper.make_graph(
            self.nodes,
            "g",
            [_info(v) for v in fed],
            [_untyped(v) for v in outputs if v not in self.inputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

    def feeds(self, sizes: dict[str, int], model: onnx.ModelProto, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        by_name = {v.name: v for v in self.inputs}
        return [_array(rng, by_name[i.name], sizes) for i in model.graph.input]

    # building

    def add_input(self) -> Value:
        rank = 1 + self.draw(4)
        shape = tuple([*DIMS, *DIMS, 1, 3][self.draw(8)] for _ in range(rank))
        value = Value(f"x{len(self.inputs)}", "ffffids"[self.draw(7)], shape)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def emit(self, op: str, inputs: list[str], kind: str, shape: tuple[Any, ...], **attributes: Any) -> Value:
        inexact = {v.name for v in self.values if not v.exact}
        rounded = op in INEXACT or (op.startswith("Reduce") and op not in ("ReduceMax", "ReduceMin"))
        exact = kind not in "fd" or not (rounded or inexact & set(inputs))
        value = Value(f"t{len(self.nodes)}", kind, shape, exact)
        self.nodes.append(helper.make_node(op, inputs, [value.name], **attributes))
        self.values.append(value)
        return value

    def pick(self, kinds: str = "fidsyb", rank: int = 0, exact: bool = False) -> Value | None:
        fitting = [v for v in self.values if v.kind in kinds and v.rank >= rank and (v.exact or not exact)]
        return fitting[max(0, len(fitting) - 1 - self.draw(4))] if fitting else None

    def step(self) -> None:
        STEPS[self.draw(len(STEPS))](self)


def build(draw: Draw, steps: int) -> RandomGraph:
    graph = RandomGraph(draw)
    for _ in range(1 + draw(2)):
        graph.add_input()
    while len(graph.nodes) < steps:
        graph.step()
    return graph


# one function per kind of step; each does nothing where it does not apply


def _unary(g: RandomGraph) -> None:
    x = g.pick("f")
    if x is not None:
        names = FLOAT_UNARY + (EXACT_UNARY if x.exact else ())
        g.emit(names[g.draw(len(names))], [x.name], x.kind, x.shape)


def _integer_unary(g: RandomGraph) -> None:
    x = g.pick("is")
    if x is not None:
        g.emit(("Neg", "Abs", "Sign")[g.draw(3)], [x.name], x.kind, x.shape)


def _binary(g: RandomGraph) -> None:
    x = g.pick("fids")
    if x is None:
        return
    others = [v for v in g.values if v.kind == x.kind and _broadcastable(v.shape, x.shape) is not None]
    y = others[g.draw(len(others))]
    shape = _broadcastable(x.shape, y.shape)
    assert shape is not None
    made = g.emit(BINARY[g.draw(len(BINARY))], [x.name, y.name], x.kind, shape)
    if x.kind == "f" and g.nodes[-1].op_type == "Mul":
        g.emit("Tanh", [made.name], "f", shape)


def _compare(g: RandomGraph) -> None:
    x = g.pick("fids", exact=True)
    if x is None:
        return
    others = [v for v in g.values if v.kind == x.kind and v.exact and _broadcastable(v.shape, x.shape) is not None]
    y = others[g.draw(len(others))]
    shape = _broadcastable(x.shape, y.shape)
    assert shape is not None
    mask = g.emit(COMPARE[g.draw(3)], [x.name, y.name], "b", shape)
    if g.draw(2):
        g.emit("Where", [mask.name, x.name, y.name], x.kind, shape)


def _cast(g: RandomGraph) -> None:
    x = g.pick(exact=True)
    if x is not None:
        kind = "fidsy"[g.draw(5)]
        g.emit("Cast", [x.name], kind, x.shape, to=TYPES[kind])


def _reduce(g: RandomGraph) -> None:
    x = g.pick("fd", 1)
    if x is None:
        return
    axes, keep = _axes(g, x.rank), g.draw(2)
    op = REDUCE[g.draw(len(REDUCE))]
    g.emit(op, [x.name, g.constant(np.array(axes))], x.kind, _reduced(x.shape, axes, keep), keepdims=keep)


def _arg(g: RandomGraph) -> None:
    x = g.pick("fi", 1, exact=True)
    if x is not None:
        axis, keep = g.draw(x.rank), g.draw(2)
        last = {"select_last_index": g.draw(2)}
        g.emit(
            ("ArgMax", "ArgMin")[g.draw(2)],
            [x.name],
            "i",
            _reduced(x.shape, [axis], keep),
            axis=axis,
            keepdims=keep,
            **last,
        )


def _softmax(g: RandomGraph) -> None:
    x = g.pick("f", 1)
    if x is not None:
        g.emit(("Softmax", "LogSoftmax")[g.draw(2)], [x.name], x.kind, x.shape, axis=g.draw(x.rank))


def _cumsum(g: RandomGraph) -> None:
    x = g.pick("fis", 1)
    if x is not None:
        axis = g.constant(np.array(g.draw(x.rank)))
        g.emit("CumSum", [x.name, axis], x.kind, x.shape, exclusive=g.draw(2), reverse=g.draw(2))
        if x.kind == "f":
            g.emit("Tanh", [g.values[-1].name], "f", x.shape)


def _transpose(g: RandomGraph) -> None:
    x = g.pick(rank=2)
    if x is not None:
        perm = _permutation(g, x.rank)
        g.emit("Transpose", [x.name], x.kind, tuple(x.shape[p] for p in perm), perm=perm)


def _flatten(g: RandomGraph) -> None:
    x = g.pick(rank=2)
    if x is None:
        return
    at = g.draw(x.rank - 1)
    target = [*([0] * at), -1, *([0] * 0)]
    if g.draw(2) and at + 2 < x.rank and isinstance(x.shape[-1], int):
        target.append(x.shape[-1])
    last = (x.shape[-1],) if len(target) > at + 1 else ()
    g.emit("Reshape", [x.name, g.constant(np.array(target))], x.kind, (*x.shape[:at], None, *last))


def _unsqueeze(g: RandomGraph) -> None:
    x = g.pick()
    if x is not None and x.rank < 5:
        axis = g.draw(x.rank + 1)
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        g.emit("Unsqueeze", [x.name, g.constant(np.array([axis]))], x.kind, shape)


def _squeeze(g: RandomGraph) -> None:
    x = g.pick()
    if x is not None and 1 in x.shape:
        axis = x.shape.index(1)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        g.emit("Squeeze", [x.name, g.constant(np.array([axis]))], x.kind, shape)


def _concat(g: RandomGraph) -> None:
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.draw(x.rank)
    fitting = [v for v in g.values if v.kind == x.kind and v.rank == x.rank and None not in v.shape
               and all(p == q for d, (p, q) in enumerate(zip(v.shape, x.shape, strict=True)) if d != axis)]  # fmt: skip
    others = [fitting[g.draw(len(fitting))]] if fitting and g.draw(2) else [x]
    names = [x.name, *(o.name for o in others)]
    g.emit("Concat", names, x.kind, (*x.shape[:axis], None, *x.shape[axis + 1 :]), axis=axis)


def _slice(g: RandomGraph) -> None:
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.draw(x.rank)
    start, end, step = ((0, 2, 1), (1, 1000, 2), (-1, -1000, -1), (-3, 1000, 1), (1000, -1000, -2), (0, -1, 1))[
        g.draw(6)
    ]
    names = [g.constant(np.array([n])) for n in (start, end, axis, step)]
    g.emit("Slice", [x.name, *names], x.kind, (*x.shape[:axis], None, *x.shape[axis + 1 :]))


def _gather(g: RandomGraph) -> None:
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.draw(x.rank)
    if not isinstance(x.shape[axis], int):
        return
    indices = np.array([[0], [-1, 0], [[0, 0], [-1, 0]], 0][g.draw(4)] if g.draw(2) else [0, 0, -1])
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    g.emit("Gather", [x.name, g.constant(indices)], x.kind, shape, axis=axis)


def _pad(g: RandomGraph) -> None:
    x = g.pick("fids", rank=1)
    if x is None:
        return
    before, after = ([g.draw(3) for _ in range(x.rank)] for _ in range(2))
    shape = tuple(s if b == a == 0 else None for s, b, a in zip(x.shape, before, after, strict=True))
    g.emit(
        "Pad", [x.name, g.constant(np.array([*before, *after]))], x.kind, shape, mode=("constant", "edge")[g.draw(2)]
    )


def _tile(g: RandomGraph) -> None:
    x = g.pick("fids", rank=1)
    if x is not None:
        times = [1 + g.draw(2) for _ in range(x.rank)]
        shape = tuple(s if t == 1 else None for s, t in zip(x.shape, times, strict=True))
        g.emit("Tile", [x.name, g.constant(np.array(times))], x.kind, shape)


def _layer_norm(g: RandomGraph) -> None:
    x = g.pick("f", rank=1, exact=True)  # others may be nearly constant, and then only noise is left of them
    if x is not None:
        g.emit("LayerNormalization", [x.name, g.constant(np.float32(1.5).reshape(1))], "f", x.shape, axis=-1)


STEPS: tuple[Callable[[RandomGraph], None], ...] = (
    _unary, _unary, _binary, _binary, _binary, _compare, _cast, _reduce, _reduce, _reduce, _arg, _softmax, _cumsum,
    _transpose, _transpose, _flatten, _unsqueeze, _squeeze, _concat, _slice, _gather, _pad, _tile, _layer_norm,
    _integer_unary,
)  # fmt: skip


def _broadcastable(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if None in a or None in b:
        return a if a is b else None
    rank = max(len(a), len(b))
    pairs = zip([*[1] * (rank - len(a)), *a], [*[1] * (rank - len(b)), *b], strict=True)
    out = [q if p == 1 else p if q in (1, p) else None for p, q in pairs]
    return None if None in out else tuple(out)


def _reduced(shape: tuple[Any, ...], axes: list[int], keep: int) -> tuple[Any, ...]:
    return tuple(1 if d in axes else s for d, s in enumerate(shape) if keep or d not in axes)


def _axes(g: RandomGraph, rank: int) -> list[int]:
    first = g.draw(rank)
    return sorted({first, *(g.draw(rank) for _ in range(g.draw(3)))})


def _permutation(g: RandomGraph, rank: int) -> list[int]:
    left = list(range(rank))
    return [left.pop(g.draw(len(left))) for _ in range(rank)]


def _info(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, TYPES[value.kind], value.shape)


def _untyped(value: Value) -> onnx.ValueInfoProto:
    kind = TensorProto.BOOL if value.kind == "b" else TYPES[value.kind]
    return helper.make_tensor_value_info(value.name, kind, None)


def _array(rng: np.random.Generator, value: Value, sizes: dict[str, int]) -> np.ndarray:
    shape = tuple(sizes.get(d, d) for d in value.shape)
    if value.kind in "fd":
        return rng.standard_normal(shape).astype(NUMPY[value.kind])
    return rng.integers(-5, 6, shape).astype(NUMPY[value.kind])
