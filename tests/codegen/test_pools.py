"""Pools of any window over few and many channels: window by window and line by line, alone and with an epilogue."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from region_check import Graph, check, floats

# Large windows of few channels, one of many channels (line by line in parts of them), one of more than 128 taps, lines
# that are longer than a part, gaps, and windows that see padding alone but for one element.
LARGE: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 48, 48), {"kernel_shape": [9, 9], "pads": [4, 4, 4, 4]}),
    ((2, 3, 20, 23), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}),
    ((1, 200, 13, 13), {"kernel_shape": [13, 13], "pads": [6, 6, 6, 6]}),
    ((1, 1100, 5, 6), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}),
    ((1, 5, 3, 3000), {"kernel_shape": [2, 9], "pads": [1, 4, 0, 4]}),
    ((1, 2, 9, 40), {"kernel_shape": [3, 7], "dilations": [2, 3], "pads": [2, 6, 2, 6]}),
    ((1, 2, 9, 40), {"kernel_shape": [5, 7], "strides": [2, 3], "pads": [2, 6, 4, 6]}),
    ((2, 1, 700), {"kernel_shape": [25]}),
    ((1, 3, 6, 7, 8), {"kernel_shape": [3, 3, 5], "pads": [1, 1, 2, 1, 1, 2]}),
    ((1, 33, 2, 40), {"kernel_shape": [2, 100], "pads": [1, 99, 0, 99], "strides": [1, 2]}),
]


def pool(op: str, shape: tuple[int, ...], attrs: dict[str, Any], epilogue: bool, x: np.ndarray) -> Graph:
    sizes = ["N", shape[1], *("H", "W", "D")[: len(shape) - 2]]
    nodes = [helper.make_node(op, ["x"], ["c" if epilogue else "y"], **attrs)]
    if epilogue:
        nodes.append(helper.make_node("Tanh", ["c"], ["y"]))
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", infos, out)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    expected = [np.tanh(maxima(x, attrs)) if epilogue else maxima(x, attrs)] if np.isnan(x).any() else None
    return Graph(f"{op} {shape} {attrs}", [x], expected, models=[model])


def maxima(x: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """What each window sees at most, NaN where it sees one."""
    kernel = attrs["kernel_shape"]
    rank = len(kernel)
    strides, dilations = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    pads = attrs.get("pads", [0] * 2 * rank)
    wide = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)], constant_values=-np.inf)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(n - e) // s + 1 for n, e, s in zip(wide.shape[2:], extents, strides, strict=True)]
    found = np.full((*x.shape[:2], *out), -np.inf, x.dtype)
    for tap in itertools.product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        part = tuple(slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, out, strides, strict=True))
        found = np.maximum(found, wide[(slice(None), slice(None), *part)])
    return found


def random_pool(rng: np.random.Generator) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    rank = int(rng.integers(1, 4))
    op = str(rng.choice(["MaxPool", "MaxPool", "AveragePool"]))
    most = {1: 40, 2: 12, 3: 4}[rank]
    kernel = [int(n) for n in rng.integers(1, most, rank)]
    dilations = [int(n) for n in rng.integers(1, 3, rank)] if op == "MaxPool" else [1] * rank
    pads = [int(rng.integers(0, k)) for k in kernel * 2]
    least = [
        max(1, (k - 1) * d + 1 - a - b) for k, d, a, b in zip(kernel, dilations, pads[:rank], pads[rank:], strict=True)
    ]
    spatial = [n + int(rng.integers(0, {1: 200, 2: 30, 3: 9}[rank])) for n in least]
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "pads": pads,
        "strides": [int(n) for n in rng.integers(1, 4, rank)],
    }
    if rng.random() < 0.5:
        attrs["strides"] = [1] * rank
    if op == "MaxPool":
        attrs["dilations"] = dilations
    else:
        attrs["count_include_pad"] = int(rng.integers(0, 2))
    channels = int(rng.choice([1, 2, 3, 5, 16, 17, 70]))
    return op, (int(rng.integers(1, 3)), channels, *spatial), attrs


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_large_windows(levels: str) -> None:
    graphs = [pool("MaxPool", s, attrs, e, floats(*s)) for s, attrs in LARGE for e in (False, True)]
    graphs += [
        pool("AveragePool", (2, 3, 6, 90), {"kernel_shape": [3, 25]}, e, floats(2, 3, 6, 90)) for e in (False, True)
    ]
    check(*graphs, levels=levels, rtol=1e-5, atol=1e-5)


def test_nan_of_a_large_window() -> None:
    graphs: list[Graph] = []
    for shape, attrs in LARGE[:7]:
        x = floats(*shape)
        x.flat[:: max(x.size // 5, 1)] = np.nan
        graphs.append(pool("MaxPool", shape, attrs, False, x))
    check(*graphs)


@pytest.mark.parametrize("seed", range(2))
def test_random_pools(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = [random_pool(rng) for _ in range(25)]
    graphs = [pool(op, s, attrs, bool(i % 2), floats(*s, seed=i)) for i, (op, s, attrs) in enumerate(drawn)]
    check(*graphs, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 30))
def test_many_random_pools(seed: int) -> None:
    test_random_pools(seed)
