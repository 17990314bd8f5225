"""Short rows are computed two at a time, and nothing shows of it but the time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from region_check import floats

import smelt


def softmaxes():
    """Two softmaxes of rows read transposed and of a shared bias: two loops over rows, phases that keep rows."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Add", ["t", "bias"], ["a"]),
        helper.make_node("Softmax", ["a"], ["s"], axis=-1),
        helper.make_node("Add", ["s", "bias"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "keys"])
    bias = helper.make_tensor_value_info("bias", TensorProto.FLOAT, ["keys"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x, bias], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.fixture(scope="module")
def compiled():
    with smelt.compile(softmaxes(), force=True, threads=1) as found:
        assert any("row pairs" in k.traits for code in found.result.generated.codes for k in code.info)
        yield found


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 2, 16), (3, 5, 17), (2, 3, 130), (7, 1, 511), (2, 2, 700), (0, 3, 4)])
def test_a_row_does_not_depend_on_its_neighbour(compiled, shape):
    x, bias = floats(*shape), floats(shape[-1], seed=1)
    (whole,) = compiled.run({"x": x, "bias": bias})
    assert whole.shape == (shape[1], shape[0], shape[2])
    for place in np.ndindex(shape[:2]):
        (alone,) = compiled.run({"x": x[place].reshape(1, 1, -1), "bias": bias})
        assert np.array_equal(whole[place[::-1]], alone[0, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_element_spoils_its_own_row_only(compiled, bad):
    x, bias = floats(1, 4, 37), np.zeros(37, np.float32)
    right = compiled.run({"x": x, "bias": bias})[0]
    for column in (0, 20, 36):
        broken = x.copy()
        broken[0, 1, column] = bad
        (found,) = compiled.run({"x": broken, "bias": bias})
        assert np.isnan(found[1, 0]).all() == (bad != -np.inf)
        assert np.array_equal(found[[0, 2, 3]], right[[0, 2, 3]])
