"""Convolutions of every form that has kernels of its own, at any geometry: what stock ONNX Runtime gives.

An example is several convolutions in one library, so that it costs one compilation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from region_check import Graph, check, floats

TOGETHER = 3  # of each form
# The first example of hypothesis is the smallest of all.
QUICK = settings(
    max_examples=2, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
THOROUGH = settings(QUICK, max_examples=12)


@st.composite
def few_channels(draw: st.DrawFn) -> tuple[int, int, int]:
    """Lines that windows see are copied, with zeros around them: (channels, columns, groups)."""
    return draw(st.integers(1, 12)), draw(st.integers(9, 40)), 1


@st.composite
def many_channels(draw: st.DrawFn) -> tuple[int, int, int]:
    groups = draw(st.sampled_from((1, 1, 2)))
    return groups * draw(st.integers(13, 40)), groups * draw(st.integers(9, 35)), groups


@st.composite
def few_columns(draw: st.DrawFn) -> tuple[int, int, int]:
    """Lanes run along the window."""
    groups = draw(st.sampled_from((1, 1, 3)))
    return groups * draw(st.integers(3, 30)), groups * draw(st.integers(1, 8)), groups


@st.composite
def narrow_groups(draw: st.DrawFn) -> tuple[int, int, int]:
    """Lanes are the columns of several groups."""
    groups, wide = draw(st.integers(2, 11)), draw(st.sampled_from((2, 4, 8, 16)))
    return groups * wide, groups * wide, groups


@st.composite
def depthwise(draw: st.DrawFn) -> tuple[int, int, int]:
    channels = draw(st.integers(1, 37))
    return channels, channels * draw(st.sampled_from((1, 1, 2))), channels


FORMS = (few_channels(), many_channels(), few_columns(), narrow_groups(), depthwise())


@st.composite
def convolution(draw: st.DrawFn, form: st.SearchStrategy[tuple[int, int, int]]) -> Graph:
    channels, columns, groups = draw(form)
    rank = draw(st.sampled_from((1, 2, 2)))
    kernel = [draw(st.integers(1, 5)) for _ in range(rank)]
    strides, dilations = ([draw(st.sampled_from((1, 1, 2, 3))) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    least = [(k - 1) * d + 1 - pads[a] - pads[rank + a] for a, (k, d) in enumerate(zip(kernel, dilations, strict=True))]
    sizes = [max(1, n) + draw(st.integers(0, 18)) for n in least]
    batch = draw(st.integers(1, 2))
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    shapes = (batch, channels, *sizes), (columns, channels // groups, *kernel)
    return _graph(shapes, attributes, free=draw(st.booleans()), bias=draw(st.booleans()), then=draw(st.booleans()))


def _graph(shapes: Any, attributes: dict[str, Any], *, free: bool, bias: bool, then: bool) -> Graph:
    image, weights = shapes
    declared = ["N", image[1], *("H", "W")[: len(image) - 2]] if free else list(image)
    w = floats(*weights, seed=1) / np.float32(np.sqrt(np.prod(weights[1:])))
    constants = [numpy_helper.from_array(w, "w")]
    constants += [numpy_helper.from_array(floats(weights[0], seed=2), "b")] if bias else []
    nodes = [helper.make_node("Conv", ["x", *(c.name for c in constants)], ["c"], **attributes)]
    nodes += [helper.make_node("Relu", ["c"], ["y"])] if then else []
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, declared)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return Graph(f"Conv {shapes} {attributes} free={free}", [floats(*image)], models=[model])


EXAMPLE = st.tuples(*(st.lists(convolution(form), min_size=TOGETHER, max_size=TOGETHER) for form in FORMS))


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMELT_CFLAGS", "-O1")
        yield


def right(example: tuple[list[Graph], ...], levels: str) -> None:
    check(*(graph for graphs in example for graph in graphs), levels=levels, rtol=1e-5, atol=1e-5)


@QUICK
@given(EXAMPLE)
def test_convolutions_of_every_form(example: tuple[list[Graph], ...]) -> None:
    right(example, "v2")


@pytest.mark.full
@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_many_convolutions_of_every_form(levels: str) -> None:
    @THOROUGH
    @given(EXAMPLE)
    def holds(example: tuple[list[Graph], ...]) -> None:
        right(example, levels)

    holds()
