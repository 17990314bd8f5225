"""Epilogues that convolutions do in registers: bias, residual, limits, and nothing else; right for every form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from region_check import Graph, check, floats, generated, traits

import smelt

Attributes = dict[str, Any]

# Pixels of one and of several blocks of depth, columns that fill their panels and that do not; planes; filters by
# channel; gathered windows, taps in place, groups.
FORMS: list[tuple[tuple[int, ...], tuple[int, ...], Attributes]] = [
    ((2, 24, 9, 13), (24, 24, 1, 1), {}),
    ((1, 40, 7, 7), (64, 40, 1, 1), {}),
    ((1, 300, 5, 6), (33, 300, 1, 1), {}),
    ((1, 800, 7, 7), (144, 800, 1, 1), {}),
    ((2, 3, 17, 37), (32, 3, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    ((1, 3, 17, 19), (20, 3, 3, 3), {"pads": [1] * 4}),
    ((1, 3, 9, 40), (3, 3, 3, 3), {"pads": [1] * 4}),
    ((1, 16, 9, 31), (16, 1, 3, 3), {"group": 16, "pads": [1] * 4}),
    ((1, 37, 11, 20), (37, 1, 3, 3), {"group": 37, "pads": [1] * 4, "strides": [2, 2]}),
    ((1, 48, 9, 12), (48, 1, 5, 5), {"group": 48, "pads": [2] * 4}),
    ((1, 24, 9, 12), (24, 1, 3, 2), {"group": 24, "pads": [1, 0, 1, 1]}),
    ((1, 64, 9, 13), (40, 64, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    ((1, 32, 5, 29), (48, 32, 3, 5), {"pads": [1, 2, 1, 2]}),
    ((1, 32, 6, 7), (48, 8, 3, 3), {"group": 4, "pads": [1] * 4}),
    ((1, 40, 6, 7), (40, 8, 3, 3), {"group": 5, "pads": [1] * 4}),
    ((1, 28, 6, 11), (28, 4, 3, 3), {"group": 7, "pads": [1] * 4}),
]
EPILOGUES = ["none", "relu", "six", "lower", "upper", "residual", "residual relu"]
LIMITS = {"six": ("low", "high"), "lower": ("low", ""), "upper": ("", "high")}


def convolution(x: tuple[int, ...], weights: tuple[int, ...], attributes: Attributes, epilogue: str) -> ModelProto:
    """One with an epilogue; a residual is the result of a convolution of its own, so that it may be written over, and
    of an image of its own: convolutions of one image that are added become one."""
    w = floats(*weights, seed=1) / np.float32(np.sqrt(np.prod(weights[1:])))
    inits = {"w": w, "b": floats(weights[0], seed=2), "low": np.float32(-0.25), "high": np.float32(0.5)}
    nodes, value = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes)], "c"
    if "residual" in epilogue:
        inits |= {"v": w[:, ::-1].copy(), "e": floats(weights[0], seed=3)}
        nodes.append(helper.make_node("Conv", ["z", "v", "e"], ["r"], **attributes))
        nodes.append(helper.make_node("Add", ["r", "c"], ["s"]))
        value = "s"
    if "relu" in epilogue:
        nodes.append(helper.make_node("Relu", [value], ["l"]))
        value = "l"
    if epilogue in LIMITS:
        nodes.append(helper.make_node("Clip", [value, *LIMITS[epilogue]], ["l"]))
        value = "l"
    nodes[-1].output[0] = "y"
    images = ["x", "z"] if "residual" in epilogue else ["x"]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *x[1:]]) for name in images]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in inits.items()]
    graph = helper.make_graph(nodes, "g", given, out, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


MOST = ("six", "residual relu")  # what the others are parts of


def images(x: tuple[int, ...], epilogue: str) -> list[np.ndarray[Any, Any]]:
    """What the model above is fed."""
    return [floats(*x), floats(*x, seed=4)] if "residual" in epilogue else [floats(*x)]


def finished(epilogues: Sequence[str], levels: str) -> None:
    cases = [(form, epilogue) for epilogue in epilogues for form in FORMS]
    graphs = [Graph(f"{f} {e}", images(f[0], e), models=[convolution(*f, e)]) for f, e in cases]
    check(*graphs, levels=levels, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("levels", "epilogues"), [("v2", MOST), ("v3", EPILOGUES), ("v4", MOST)], ids=str)
def test_finished_sums_are_right(levels: str, epilogues: Sequence[str]) -> None:
    finished(epilogues, levels)


@pytest.mark.full
@pytest.mark.parametrize("levels", ["v2", "v4"])
def test_every_finished_sum_is_right(levels: str) -> None:
    finished(EPILOGUES, levels)


@pytest.mark.parametrize("form", [FORMS[1], FORMS[3], FORMS[4], FORMS[7]])
def test_what_is_not_a_number_stays_so(form: tuple[tuple[int, ...], tuple[int, ...], Attributes]) -> None:
    x = floats(*form[0])
    x[0, 0, 2, 3], x[0, 1, 4, 5] = np.nan, np.inf
    with smelt.compile(convolution(*form, "six"), force=True, levels="v3", verify=False, threads=1) as compiled:
        found = compiled.run({"x": x})[0]
    with smelt.compile(convolution(*form, "none"), force=True, levels="v3", verify=False, threads=1) as compiled:
        plain = compiled.run({"x": x})[0]
    assert np.isnan(plain).any() and np.isinf(plain).any()
    np.testing.assert_array_equal(found, np.minimum(np.maximum(plain, np.float32(-0.25)), np.float32(0.5)))


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_plain_epilogues_are_finished_by_the_kernels(epilogue: str) -> None:
    infos = [info for code in generated(convolution(*FORMS[0], epilogue)).codes for info in code.info]
    finished = [info for info in infos if "register epilogue" in info.traits]
    assert len(finished) == (2 if "residual" in epilogue else 1)


def test_a_convolution_without_a_bias_is_finished_by_its_kernel() -> None:
    model = Graph("(float[N,32,6,6] x) => (float[N,32,6,6] y) { c = Conv(x, w)  y = Relu(c) }", []).model(21)
    model.graph.initializer.append(numpy_helper.from_array(floats(32, 32, 1, 1), "w"))
    assert "register epilogue" in traits(model)


OTHERS = [
    "c = Conv(x, w, b)  y = HardSwish(c)",
    "c = Conv(x, w, b)  m = Min(c, two)  y = Max(m, one)",
    "c = Conv(x, w, b)  r = Relu(c)  y = Mul(r, two)",
    "c = Conv(x, w, b)  y = Add(c, c)",
]


@pytest.mark.parametrize("text", OTHERS)
def test_other_epilogues_are_left_to_loops(text: str) -> None:
    model = Graph(f"(float[N,32,6,6] x) => (float[N,32,6,6] y) {{ {text} }}", []).model(21)
    given = {"w": floats(32, 32, 1, 1), "b": floats(32), "one": np.float32(1), "two": np.float32(2)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in given.items() if n in text)
    assert "register epilogue" not in traits(model)
