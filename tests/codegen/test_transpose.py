"""Copies that turn rows into columns give the same bits, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from region_check import Graph, check, floats

import smelt

KINDS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
TURNS = [(1, 0), (0, 2, 1), (0, 2, 3, 1), (0, 3, 1, 2), (2, 0, 1), (3, 2, 1, 0)]
CASES = [(perm, dtype) for perm in TURNS for dtype in KINDS]
LONG = st.sampled_from([0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 127, 128, 130])


def transpositions() -> ModelProto:
    nodes, inputs, outputs = [], [], []
    for place, (perm, dtype) in enumerate(CASES):
        sizes = [f"d{place}_{axis}" for axis in range(len(perm))]
        inputs.append(helper.make_tensor_value_info(f"x{place}", KINDS[dtype], sizes))
        outputs.append(helper.make_tensor_value_info(f"y{place}", KINDS[dtype], None))
        nodes.append(helper.make_node("Transpose", [f"x{place}"], [f"y{place}"], perm=perm))
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.fixture(scope="module", params=["v2", "v3", "v4"])
def compiled(request):
    with smelt.compile(transpositions(), force=True, levels=request.param, verify=False, threads=2) as found:
        assert any("transposed in registers" in k.traits for code in found.result.generated.codes for k in code.info)
        yield found


def numbered(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Distinct elements, some of them not-a-number when they are read as floats."""
    words = np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(2654435761)
    return words.view(dtype).reshape(shape)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 3), st.integers(0, 3), LONG, LONG)
@example(1, 3, 33, 130)
def test_every_element_arrives_with_its_bits(compiled, batch, few, high, wide):
    places = {2: (high, wide), 3: (batch, high, wide), 4: (batch, high, few, wide)}
    feeds = {f"x{i}": numbered(places[len(perm)], dtype) for i, (perm, dtype) in enumerate(CASES)}
    for place, found in enumerate(compiled.run(feeds)):
        wanted = feeds[f"x{place}"].transpose(CASES[place][0])
        assert np.array_equal(found.view(np.uint32), np.ascontiguousarray(wanted).view(np.uint32)), CASES[place]


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_images_are_turned_at_the_border_of_a_model(levels: str) -> None:
    """Convolution before and after: planes come in and go out."""
    text = "(float[n,20,h,w] x, float[37,20,1,1] f) => (float[n,37,h,w] y) { y = Conv(x, f) }"
    shapes = [(1, 20, 19, 23), (2, 20, 4, 4), (1, 20, 1, 1)]
    check(
        *(Graph(text, [floats(*shape), floats(37, 20, 1, 1)]) for shape in shapes), levels=levels, rtol=2e-5, atol=2e-5
    )
