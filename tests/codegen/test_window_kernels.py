"""Convolutions and pools in kernels: geometries, groups, epilogues, layouts between layers, free and odd sizes."""
# ruff: noqa: E501  a graph is written on one line where that reads best

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import Graph, check, floats, whole

import smelt
from smelt.runtime import SessionSettings, session_for

GEOMETRIES = [
    ((2, 3, 9, 11), (16, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 31, 29), (20, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    ((2, 64, 7, 7), (70, 64, 1, 1), {}),
    ((1, 64, 8, 7), (33, 64, 1, 1), {"strides": [2, 2]}),
    ((1, 16, 8, 7), (24, 4, 3, 3), {"group": 4, "pads": [1, 0, 1, 2]}),
    ((1, 16, 18, 17), (16, 1, 3, 3), {"group": 16, "pads": [1, 1, 1, 1]}),
    ((2, 37, 18, 17), (37, 1, 5, 3), {"group": 37, "pads": [2, 1, 2, 1], "strides": [2, 1]}),
    ((2, 6, 5, 6), (12, 1, 3, 3), {"group": 6}),
    ((2, 8, 33), (12, 8, 3), {"pads": [1, 1]}),
    ((2, 8, 33), (12, 2, 1), {"group": 4}),
    ((2, 4, 5, 8, 6), (9, 4, 2, 3, 2), {"pads": [0, 1, 1, 1, 1, 0], "dilations": [1, 2, 1]}),
    ((1, 5, 9, 12), (7, 5, 3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 64, 20, 13), (33, 64, 3, 3), {"pads": [1, 1, 1, 1], "dilations": [2, 2]}),
    ((1, 8, 6, 6), (1, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 48, 9, 40), (70, 24, 3, 5), {"group": 2, "pads": [2, 7, 1, 6], "dilations": [1, 3]}),
    ((1, 32, 3, 13), (49, 32, 3, 3), {"pads": [2, 2, 2, 2], "strides": [2, 1]}),
    ((1, 130, 2, 5), (130, 1, 15, 9), {"group": 130, "pads": [7, 4, 7, 4]}),
    ((0, 8, 6, 6), (4, 8, 3, 3), {}),
    ((1, 8, 2, 2), (4, 8, 3, 3), {"pads": [1, 1, 1, 1], "strides": [3, 3]}),
    ((2, 100, 140), (40, 100, 5), {"pads": [2, 1], "strides": [2]}),
    ((2, 96, 61, 1), (33, 96, 7, 1), {"pads": [3, 0, 2, 0]}),
    ((1, 130, 301), (20, 130, 3), {}),
    ((2, 90, 3, 60), (24, 90, 1, 3), {"pads": [1, 1, 0, 1], "strides": [2, 1]}),
    ((1, 96, 4, 130), (40, 96, 1, 1), {"strides": [2, 2]}),
    ((1, 200, 4), (16, 200, 9), {"pads": [4, 6]}),
    ((2, 24, 900), (24, 1, 3), {"group": 24, "pads": [1, 1]}),
    ((1, 40, 700), (40, 1, 25), {"group": 40, "pads": [12, 12]}),
    ((1, 40, 1, 701), (40, 1, 1, 7), {"group": 40, "pads": [0, 3, 0, 3], "strides": [1, 2]}),
]  # fmt: skip
TRANSPOSED = [
    ((1, 5, 6, 7), (5, 9, 3, 3), {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}),
    ((2, 6, 4, 5), (6, 4, 2, 2), {"group": 2, "strides": [2, 2], "dilations": [2, 1]}),
    ((2, 6, 4, 5), (6, 20, 2, 2), {"strides": [2, 2]}),
    ((2, 6, 4, 5), (6, 20, 3, 3), {"strides": [3, 3], "output_padding": [2, 1]}),
    ((2, 6, 9), (6, 4, 4), {"strides": [2], "pads": [1, 1]}),
]  # fmt: skip
POOLS = [
    ("MaxPool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}),
    ("MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 2], "ceil_mode": 1, "strides": [2, 2]}),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "count_include_pad": 1}),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("LpPool", {"kernel_shape": [2, 3], "p": 2}),
    ("GlobalAveragePool", {}),
    ("GlobalMaxPool", {}),
]


def layer(op: str, x: tuple[int, ...], weights: tuple[int, ...] | None, attrs: dict, *, constant: bool) -> Graph:
    """One window op with free sizes and an activation behind it."""
    sizes = ["N", x[1], *("H", "W", "D")[: len(x) - 2]]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    arrays, inits, names = [floats(*x)], [], ["x"]
    if weights is not None:
        w = floats(*weights, seed=1) / np.float32(np.sqrt(np.prod(weights[1:])))
        columns = weights[0] if op == "Conv" else weights[1] * attrs.get("group", 1)
        names += ["w", "b"]
        inits.append(numpy_helper.from_array(floats(columns, seed=2), "b"))
        if constant:
            inits.append(numpy_helper.from_array(w, "w"))
        else:
            infos.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, weights))
            arrays.append(w)
    nodes = [helper.make_node(op, names, ["c"], **attrs), helper.make_node("Relu", ["c"], ["y"])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", infos, out, inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return Graph(f"{op} {x} {weights} {attrs}", arrays, models=[model])


@pytest.mark.parametrize("levels", ["v2", "v3"])
@pytest.mark.parametrize("constant", [True, False], ids=["packed", "run-time"])
def test_convolutions(constant: bool, levels: str) -> None:
    graphs = [layer("Conv", *g, constant=constant) for g in GEOMETRIES]
    graphs += [layer("ConvTranspose", *g, constant=constant) for g in TRANSPOSED]
    check(*graphs, levels=levels, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [3, 16, 70])
def test_pools(channels: int) -> None:
    check(*(layer(op, (2, channels, 9, 8), None, attrs, constant=False) for op, attrs in POOLS), rtol=1e-5, atol=1e-5)


# Few columns, which are summed up along their windows: lines of taps of whole and of partial vectors, pixels alone, more windows
# than one copy of lines holds, groups, a residual, padding wider than the image.
FEW_COLUMNS = [
    ((2, 8, 9, 41), (8, 8, 3, 19), {"pads": [1, 9, 1, 9]}),
    ((1, 33, 7, 18), (1, 33, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 64, 5, 9), (1, 64, 1, 1), {}),
    ((1, 100, 6, 7), (4, 100, 1, 1), {"strides": [2, 2]}),
    ((2, 1, 3000), (1, 1, 256), {"strides": [2], "pads": [7, 0]}),
    ((1, 1, 999), (5, 1, 100), {"strides": [33]}),
    ((1, 40, 5, 260), (3, 40, 5, 2), {"pads": [2, 1, 2, 0], "dilations": [2, 1], "strides": [1, 3]}),
    ((1, 24, 12, 33), (6, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 24, 12, 33), (7, 24, 3, 3), {"pads": [1, 3, 1, 3]}),
    ((2, 48, 9, 11), (4, 24, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 20, 2, 3, 17), (2, 20, 2, 2, 3), {"pads": [1, 0, 1, 0, 1, 1]}),
    ((1, 64, 2, 1), (2, 64, 3, 5), {"pads": [1, 2, 1, 2]}),
]  # fmt: skip
# Few channels: lines are copied, of all channels or of a group's, with columns that fill their panels or not.
FEW_CHANNELS = [
    ((2, 1, 9, 40), (32, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 12, 20, 125), (12, 12, 5, 5), {"pads": [2, 2, 2, 2]}),
    ((1, 12, 9, 31), (20, 12, 7, 3), {"pads": [3, 1, 3, 1], "strides": [1, 2], "dilations": [2, 1]}),
    ((2, 3, 9, 13), (48, 3, 3, 3), {"strides": [2, 2]}),
    ((1, 80, 4, 37), (40, 80, 3, 1), {"pads": [1, 0, 1, 0]}),
    ((1, 64, 5, 16), (33, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 32, 6, 15), (48, 8, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 32, 6, 30), (64, 16, 3, 3), {"group": 2, "pads": [0, 1, 0, 1]}),
    ((1, 1, 5000), (20, 1, 512), {"strides": [160]}),
    ((1, 1, 6500), (20, 1, 300), {"strides": [16], "pads": [7, 290]}),
    ((2, 5, 700), (9, 5, 3), {"pads": [1, 1]}),
    ((1, 6, 3, 4, 22), (18, 6, 2, 3, 3), {"pads": [1, 1, 1, 0, 1, 1]}),
]  # fmt: skip


# Groups of 2, 4 and 8 channels: three taps at each pixel, other taps and strides, lines of one window to several tiles; columns that
# fill the last panel by half, by whole vectors of some levels only, or not at all.
NARROW = [
    ((2, 64, 9, 33), (64, 2, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}),
    ((1, 128, 5, 18), (128, 4, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}),
    ((1, 128, 7, 7), (128, 8, 3, 3), {"group": 16, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((2, 32, 6, 41), (32, 8, 3, 3), {"group": 4, "pads": [0, 2, 1, 0], "dilations": [2, 1]}),
    ((1, 48, 21), (48, 4, 5), {"group": 12, "pads": [2, 2]}),
    ((1, 32, 6, 5), (32, 8, 1, 1), {"group": 4}),
    ((1, 16, 2, 3, 9), (16, 4, 2, 3, 3), {"group": 4, "pads": [1, 1, 1, 0, 1, 1]}),
    ((1, 32, 4, 1), (32, 4, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
    ((2, 40, 7, 7), (40, 8, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ((1, 24, 9, 13), (24, 8, 3, 3), {"group": 3, "pads": [0, 2, 1, 0], "strides": [2, 2]}),
    ((2, 28, 5, 12), (28, 4, 3, 3), {"group": 7, "pads": [1, 1, 1, 1]}),
    ((1, 22, 3, 6), (22, 2, 2, 5), {"group": 11, "pads": [1, 2, 0, 2]}),
    ((1, 6, 1, 1), (6, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
]  # fmt: skip


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
@pytest.mark.parametrize("geometries", [FEW_COLUMNS, FEW_CHANNELS, NARROW], ids=["columns", "channels", "groups"])
def test_few_columns_and_few_channels(geometries: list, levels: str) -> None:
    check(*(layer("Conv", *g, constant=True) for g in geometries), levels=levels, rtol=1e-5, atol=1e-5)


# Lines of one window to several tiles, padded on either side, both or neither; windows apart; channels of partial vectors.
SIDE_BY_SIDE = [
    ((2, 37, 5, 1), [1, 1, 1, 1], [1, 1]),
    ((1, 16, 4, 2), [1, 1, 1, 1], [1, 2]),
    ((1, 21, 3, 19), [1, 1, 1, 0], [1, 1]),
    ((1, 40, 6, 31), [0, 0, 1, 1], [2, 2]),
    ((2, 24, 3, 9), [0, 0, 0, 0], [1, 1]),
    ((1, 70, 9, 28), [2, 1, 2, 1], [3, 2]),
    ((1, 16, 5, 12), [1, 2, 1, 2], [1, 1]),
    ((1, 112, 29, 28), [1, 1, 1, 1], [1, 1]),
]


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_three_taps_side_by_side(levels: str) -> None:
    graphs = [
        layer("Conv", x, (x[1], 1, 3, 3), {"group": x[1], "pads": pads, "strides": strides}, constant=True)
        for x, pads, strides in SIDE_BY_SIDE
    ]
    graphs.append(layer("Conv", (2, 24, 33), (24, 1, 3), {"group": 24, "pads": [1, 1]}, constant=True))
    graphs.append(
        layer("Conv", (1, 24, 3, 4, 9), (24, 1, 1, 3, 3), {"group": 24, "pads": [0, 1, 1] * 2}, constant=True)
    )
    check(*graphs, levels=levels, rtol=1e-5, atol=1e-5)


# Lines of one window to several tiles of any size, more or less padding than half a filter, images that a filter hangs over on
# both sides or that it does not reach, filters that skip lines, channels of partial vectors, several images.
FIVE_OR_SEVEN = [
    ((2, 37, 5, 1), (7, 7), {"pads": [3, 3, 3, 3]}),
    ((1, 16, 7, 7), (7, 7), {"pads": [3, 3, 3, 3]}),
    ((2, 40, 14, 14), (7, 7), {"pads": [3, 3, 3, 3]}),
    ((1, 21, 9, 31), (7, 7), {"pads": [0, 0, 6, 1]}),
    ((1, 70, 8, 27), (7, 7), {"pads": [1, 2, 5, 3], "strides": [2, 1]}),
    ((1, 16, 3, 2), (7, 7), {"pads": [9, 9, 9, 9]}),
    ((1, 112, 29, 28), (7, 7), {"pads": [3, 3, 3, 3]}),
    ((2, 24, 12, 19), (3, 7), {"pads": [2, 3, 2, 3], "dilations": [2, 1]}),
    ((2, 37, 6, 5), (5, 5), {"pads": [2, 2, 2, 2]}),
    ((1, 16, 5, 40), (5, 5), {"pads": [4, 1, 0, 4]}),
    ((1, 20, 11, 9), (9, 5), {"pads": [4, 0, 4, 0]}),
    ((3, 24, 33), (7,), {"pads": [3, 3]}),
    ((2, 24, 3, 4, 9), (1, 5, 5), {"pads": [0, 2, 2] * 2, "strides": [2, 1, 1]}),
]  # fmt: skip


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_five_or_seven_taps_side_by_side(levels: str) -> None:
    graphs = [
        layer("Conv", x, (x[1], 1, *kernel), {"group": x[1], **attrs}, constant=True)
        for x, kernel, attrs in FIVE_OR_SEVEN
    ]
    check(*graphs, levels=levels, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("taps", [3, 5, 7])
def test_padding_does_not_meet_weights_that_are_not_finite(taps: int) -> None:
    """A window that does not see a tap takes nothing from its weight."""
    w = np.zeros((16, 1, taps, taps), np.float32)
    w[:, :, :, 0] = np.inf
    init = [numpy_helper.from_array(w, "w")]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 4, 1])]
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=16, pads=[taps // 2] * 4)
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph([node], "g", given, out, init), opset_imports=[helper.make_opsetid("", 21)], ir_version=9
    )
    check(Graph("inf", [floats(1, 16, 4, 1)], expected=[np.zeros((1, 16, 4, 1), np.float32)], models=[model]))


def test_maxima_propagate_nan_and_negative_infinity() -> None:
    x = np.full((1, 20, 4, 4), -np.inf, np.float32)
    x[0, 3, 1, 1] = np.nan
    want = np.full((1, 20, 2, 2), -np.inf, np.float32)
    want[0, 3, 0, 0] = np.nan
    check(
        Graph(
            "(float[1,20,4,4] x) => (float[1,20,2,2] y) { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
            [x],
            [want],
        )
    )


RESIZED = """(float[N,%d,H,W] x, float[%d,%d,1,1] w) => (float[N,C,P,Q] y, float[N,C,R,S] z) {
    two = Constant<value = float[4] {1.0, 1.0, 2.0, 3.0}>()  less = Constant<value = float[4] {1.0, 1.0, 0.5, 0.5}>()
    c = Conv(x, w)  r = Resize<%s>(c, , two)  y = Relu(r)  z = Resize<%s>(x, , less) }"""


LINEAR, CUBIC, NEAREST = 'mode = "linear"', 'mode = "cubic"', 'mode = "nearest", nearest_mode = "ceil"'


def resized(channels: int, modes: Sequence[str]) -> None:
    inputs = [floats(2, channels, 7, 9), floats(channels, channels, 1, 1)]
    graphs = [Graph(RESIZED % (channels, channels, channels, m, m), inputs) for m in modes]
    check(*graphs, levels="v3", rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("channels", "modes"), [(3, [LINEAR]), (20, [LINEAR, CUBIC, NEAREST])], ids=str)
def test_images_are_resized_where_they_lie(channels: int, modes: Sequence[str]) -> None:
    """One in NHWC between layers, and one as it comes."""
    resized(channels, modes)


@pytest.mark.full
def test_images_of_few_channels_are_resized_where_they_lie() -> None:
    resized(3, [CUBIC, NEAREST])


@pytest.mark.parametrize(
    "attrs", ["kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]", "kernel_shape = [2, 3]"]
)
def test_places_of_maxima(attrs: str) -> None:
    alone = f"(float[N,C,H,W] x) => (float[N,C,P,Q] y, int64[N,C,P,Q] i) {{ y, i = MaxPool<{attrs}>(x) }}"
    behind = f"(float[N,20,H,W] x, float[20,20,1,1] w) => (float[N,C,P,Q] y, int64[N,C,P,Q] i) {{ c = Conv(x, w)  y, i = MaxPool<{attrs}>(c) }}"
    x = whole(2, 20, 9, 11, low=-2, high=3).astype(np.float32)
    check(Graph(alone, [x]), Graph(behind, [x, np.eye(20, dtype=np.float32).reshape(20, 20, 1, 1)]), levels="v3")


BLOCK = """(float[N,8,H,W] x, float[24,8,1,1] expand, float[24,1,3,3] filter, float[8,24,1,1] project, float[8] b) =>
(float[N,8,H,W] y) {
    e = Conv(x, expand)  r = HardSwish(e)  d = Conv<pads = [1, 1, 1, 1], group = 24>(r, filter)  a = Relu(d)
    p = Conv(a, project, b)  y = Add(p, x) }"""


def test_a_chain_of_layers_moves_no_image() -> None:
    """Transposes only at the borders: between layers, images lie in NHWC."""
    shapes = [(24, 8, 1, 1), (24, 1, 3, 3), (8, 24, 1, 1), (8,)]
    weights = [floats(*s, seed=k) / np.float32(3) for k, s in enumerate(shapes)]
    graph = Graph(BLOCK, [floats(2, 8, 10, 9), *weights])
    check(graph, rtol=1e-5, atol=1e-5)
    model = graph.model(21)
    for name, array in zip(("expand", "filter", "project", "b"), weights, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    keep = [i for i in model.graph.input if i.name == "x"]
    del model.graph.input[:]
    model.graph.input.extend(keep)
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=1) as compiled:
        (entry,) = compiled.result.generated.source.entries
    kinds = [k.kind for k in entry.kernels]
    assert kinds == ["loops", "window", "window", "window", "loops"]


def test_layers_meet_in_sums_concatenations_slices_and_norms() -> None:
    text = """(float[N,6,H,W] x, float[6,6,3,3] w, float[6] s, float[6] b, float[1,5,1,1] scale) => (float[N,C,H,W] y,
    float[N,1,1,1] z) {
        c = Conv<pads = [1, 1, 1, 1]>(x, w)  d = Conv<pads = [1, 1, 1, 1]>(c, w)  sum = Add(c, d)
        n = InstanceNormalization(sum, s, b)  all = Concat<axis = 1>(n, x, c)
        one = Constant<value = int64[1] {1}>()  end = Constant<value = int64[1] {6}>()  axis = Constant<value = int64[1]
        {1}>() part = Slice(all, one, end, axis)  y = Mul(part, scale)  g = GlobalAveragePool(y)  z = ReduceMax<keepdims
        = 1>(g, axis) }"""
    inputs = [
        floats(2, 6, 7, 5),
        floats(6, 6, 3, 3) / np.float32(5),
        floats(6, seed=3),
        floats(6, seed=4),
        floats(1, 5, 1, 1),
    ]
    check(Graph(text, inputs), rtol=2e-5, atol=2e-5)


def test_a_permuted_norm_between_convolutions() -> None:
    """As ConvNeXt does: normalize and multiply in NHWC, then go on with channels first."""
    text = """(float[N,8,H,W] x, float[8,1,7,7] w, float[8] g, float[8] b, float[8,32] up, float[32,8] down) =>
    (float[N,8,H,W] y) {
        c = Conv<pads = [3, 3, 3, 3], group = 8>(x, w)  t = Transpose<perm = [0, 2, 3, 1]>(c)
        n = LayerNormalization<axis = -1>(t, g, b)  u = MatMul(n, up)  a = Gelu(u)  d = MatMul(a, down)
        r = Transpose<perm = [0, 3, 1, 2]>(d)  y = Add(x, r) }"""
    inputs = [
        floats(2, 8, 10, 9),
        floats(8, 1, 7, 7) / np.float32(7),
        floats(8, seed=3),
        floats(8, seed=4),
        floats(8, 32) / np.float32(3),
        floats(32, 8) / np.float32(6),
    ]
    check(Graph(text, inputs), rtol=2e-5, atol=2e-5)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    graph = layer("Conv", (1, 40, 33, 31), (72, 40, 3, 3), {"pads": [1, 1, 1, 1]}, constant=True)
    model = graph.model(21)
    found = []
    for threads in (1, 2, 5):
        with smelt.compile(model, force=True, levels="v3", verify=False, threads=threads) as compiled:
            found.append(compiled.run({"x": graph.inputs[0]})[0])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_one_artifact_serves_all_sizes() -> None:
    graph = layer("Conv", (1, 5, 4, 4), (18, 5, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, constant=True)
    model = graph.model(21)
    stock = session_for(model.SerializeToString(), settings=SessionSettings(threads=1, log_severity=4))
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=1) as compiled:
        for size in [(1, 1, 1), (2, 3, 50), (3, 17, 2), (1, 64, 64)]:
            x = floats(size[0], 5, *size[1:])
            np.testing.assert_allclose(compiled.run({"x": x})[0], stock.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("node", "taken"),
    [
        ('Resize<mode = "cubic">(x, , s)', True),
        ('Resize<mode = "linear">(x, , s)', False),
        ("MaxPool<kernel_shape = [2, 2]>(x)", False),
    ],
)
def test_only_what_onnxruntime_is_slow_at_is_worth_a_region_of_its_own(node: str, taken: bool) -> None:
    text = f"(float[1,3,8,8] x) => (float[N,C,H,W] y) <float[4] s = {{1, 1, 2, 2}}> {{ y = {node} }}"
    with smelt.compile(Graph(text, []).model(21), levels="v3", verify=False) as compiled:
        assert bool(compiled.result.plan.regions) == taken
