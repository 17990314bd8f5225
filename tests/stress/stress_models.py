"""Models that hold one of everything that is hard to get right at odd sizes, and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

Feeds = dict[str, np.ndarray]

WIDTH, HEADS, INNER, CHANNELS = 48, 4, 100, 20

_TRANSFORMER = f"""
<ir_version: 8, opset_import: ["" : 17]>
transformer (float[batch, seq, {WIDTH}] x, float[batch, 1, 1, seq] mask) => (float[batch, seq, {WIDTH}] y)
<float scale = {{{1 / np.sqrt(WIDTH // HEADS)}}}, float half = {{0.5}}, float one = {{1.0}},
 float root2 = {{1.4142135}}, int64[4] split = {{0, 0, {HEADS}, {WIDTH // HEADS}}},
 int64[3] join = {{0, 0, {WIDTH}}}> {{
    n = LayerNormalization<axis = -1>(x, gain, shift)
    q0 = MatMul(n, wq)  k0 = MatMul(n, wk)  v0 = MatMul(n, wv)
    q1 = Add(q0, bq)
    q2 = Reshape(q1, split)  k2 = Reshape(k0, split)  v2 = Reshape(v0, split)
    q = Transpose<perm = [0, 2, 1, 3]>(q2)
    k = Transpose<perm = [0, 2, 3, 1]>(k2)
    v = Transpose<perm = [0, 2, 1, 3]>(v2)
    s0 = MatMul(q, k)
    s1 = Mul(s0, scale)
    s2 = Add(s1, mask)
    p = Softmax<axis = -1>(s2)
    c0 = MatMul(p, v)
    c1 = Transpose<perm = [0, 2, 1, 3]>(c0)
    c2 = Reshape(c1, join)
    o0 = MatMul(c2, wo)
    o = Add(o0, x)
    m = LayerNormalization<axis = -1>(o, gain, shift)
    u0 = MatMul(m, wu)
    u = Add(u0, bu)
    e0 = Div(u, root2)  e1 = Erf(e0)  e2 = Add(e1, one)  e3 = Mul(u, e2)  g = Mul(e3, half)
    d = MatMul(g, wd)
    y = Add(o, d)
}}"""

_CNN = f"""
<ir_version: 8, opset_import: ["" : 17]>
cnn (float[batch, 3, high, wide] x) => (float[batch, 7] y, float[batch, {CHANNELS}, h2, w2] z) {{
    a0 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w1, b1)
    a = Relu(a0)
    d0 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2], group = {CHANNELS}>(a, w2, b2)
    d = HardSwish(d0)
    e0 = Conv<kernel_shape = [1, 1]>(d, w3, b2)
    z = Add(e0, d)
    m = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(z)
    g = GlobalAveragePool(m)
    f = Flatten(g)
    y = Gemm<transB = 1>(f, w4, b4)
}}"""

_ROWS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[rows, columns] x, float[columns] w) => (float[rows, columns] y, float[rows] s, float[columns] t) {
    a = Mul(x, w)
    b = Tanh(a)
    p = Softmax<axis = -1>(b)
    l = Sigmoid(x)
    c = Mul(p, l)
    q = Exp(b)
    r = Sqrt(q)
    y = Add(c, r)
    s = ReduceMax<axes = [1], keepdims = 0>(y)
    t = ReduceMean<axes = [0], keepdims = 0>(y)
}"""

Shape = tuple[int, ...]
_WEIGHTS: Mapping[str, Mapping[str, Shape]] = {
    "transformer": {
        "gain": (WIDTH,), "shift": (WIDTH,), "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH),
        "bq": (WIDTH,), "wo": (WIDTH, WIDTH), "wu": (WIDTH, INNER), "bu": (INNER,), "wd": (INNER, WIDTH),
    },
    "cnn": {
        "w1": (CHANNELS, 3, 3, 3), "b1": (CHANNELS,), "w2": (CHANNELS, 1, 3, 3), "b2": (CHANNELS,),
        "w3": (CHANNELS, CHANNELS, 1, 1), "w4": (7, CHANNELS), "b4": (7,),
    },
    "rows": {},
}  # fmt: skip


@dataclass(frozen=True)
class StressModel:
    """`sizes` are values of the free dims, odd ones first."""

    name: str
    text: str
    inputs: Mapping[str, tuple[str | int, ...]]
    sizes: tuple[Mapping[str, int], ...]

    def proto(self) -> onnx.ModelProto:
        model = onnx.parser.parse_model(self.text)
        rng = np.random.default_rng(11)
        for name, shape in _WEIGHTS[self.name].items():
            spread = 1 / np.sqrt(max(1, np.prod(shape[:-1]) if len(shape) == 2 else np.prod(shape[1:])))
            weight = rng.standard_normal(shape) * (spread if len(shape) > 1 else 0.5)
            model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
        return model

    def feeds(self, size: Mapping[str, int], seed: int = 0) -> Feeds:
        rng = np.random.default_rng(seed)
        shapes = {
            name: [size.get(d, d) if isinstance(d, str) else d for d in dims] for name, dims in self.inputs.items()
        }
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _sizes(*names: str, values: list[tuple[int, ...]]) -> tuple[Mapping[str, int], ...]:
    return tuple(dict(zip(names, value, strict=True)) for value in values)


MODELS = {
    model.name: model
    for model in (
        StressModel(
            "transformer", _TRANSFORMER, {"x": ("batch", "seq", WIDTH), "mask": ("batch", 1, 1, "seq")},
            _sizes(
                "batch", "seq",
                values=[(1, 1), (1, 2), (3, 7), (2, 17), (1, 37), (5, 1), (1, 129), (2, 64), (1, 300)],
            ),
        ),
        StressModel(
            "cnn", _CNN, {"x": ("batch", 3, "high", "wide")},
            _sizes(
                "batch", "high", "wide",
                values=[(1, 1, 1), (1, 2, 3), (2, 5, 1), (3, 7, 9), (1, 16, 33), (2, 31, 17)],
            ),
        ),
        StressModel(
            "rows", _ROWS, {"x": ("rows", "columns"), "w": ("columns",)},
            _sizes("rows", "columns", values=[(1, 1), (2, 3), (7, 15), (1, 16), (17, 33), (3, 1000), (129, 65)]),
        ),
    )
}  # fmt: skip

SPECIAL = {"nan": np.nan, "plus_infinity": np.inf, "minus_infinity": -np.inf, "large": 1e15, "denormal": 1e-41}


def planted(feeds: Feeds, value: float, seed: int) -> Feeds:
    """The same inputs with the value in a few places of the first."""
    rng = np.random.default_rng(seed)
    name = next(iter(feeds))
    array = feeds[name].copy()
    array.reshape(-1)[rng.integers(0, array.size, max(1, array.size // 50))] = value
    return {**feeds, name: array}
