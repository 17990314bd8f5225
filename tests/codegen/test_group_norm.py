"""Group normalization between convolutions: over images as they lie, however it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from merged import feeds_of, merge, split
from onnx import TensorProto, helper, numpy_helper
from region_check import floats, stock, traits

import smelt
from smelt.codegen.c.traits import STRIDED_LOADS


def parts(groups: int, channels: int, opset: int, written: str) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """c -> n, as exporters write it."""
    gain, shift = floats(channels, 1, 1, seed=5), floats(channels, 1, 1, seed=6)
    if written == "instances":
        nodes = [
            helper.make_node("Reshape", ["c", "flat"], ["r"]),
            helper.make_node("InstanceNormalization", ["r", "s", "b"], ["i"], epsilon=1e-6),
            helper.make_node("Shape", ["c"], ["sizes"]),
            helper.make_node("Reshape", ["i", "sizes"], ["back"]),
            helper.make_node("Mul", ["back", "gain"], ["scaled"]),
            helper.make_node("Add", ["scaled", "shift"], ["n"]),
        ]
        flat = np.array([0, groups, -1])
        return nodes, {
            "flat": flat,
            "s": floats(groups, seed=7),
            "b": floats(groups, seed=8),
            "gain": gain,
            "shift": shift,
        }
    each = channels if opset >= 21 else groups
    node = helper.make_node("GroupNormalization", ["c", "s", "b"], ["n"], num_groups=groups, epsilon=1e-6)
    return [node], {"s": floats(each, seed=7), "b": floats(each, seed=8)}


def model(groups: int, channels: int, opset: int, written: str) -> onnx.ModelProto:
    """Convolution, normalization, SiLU, convolution; batch and sizes are free."""
    middle, constants = parts(groups, channels, opset, written)
    constants |= {"w": floats(channels, 6, 3, 3, seed=1), "v": floats(5, channels, 1, 1, seed=2)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        *middle,
        helper.make_node("Sigmoid", ["n"], ["g"]),
        helper.make_node("Mul", ["n", "g"], ["a"]),
        helper.make_node("Conv", ["a", "v"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6, "H", "W"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    inits = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


SHAPES = [(4, 40), (8, 8), (1, 24), (3, 51), (32, 320)]  # groups, channels


@pytest.mark.parametrize(("opset", "written"), [(17, "instances"), (18, "groups"), (21, "groups"), (21, "instances")])
def test_is_that_of_stock_at_every_size(opset: int, written: str) -> None:
    models = [model(groups, channels, opset, written) for groups, channels in SHAPES]
    with smelt.compile(merge(models), force=True, levels="v3", verify=False) as made:
        assert not made.result.plan.fallbacks
        for size in [(1, 6, 9, 7), (2, 6, 16, 16), (3, 6, 1, 1)]:
            x = floats(*size)
            found = split(models, made.run(feeds_of(models, [[x]] * len(models))))
            for stated, (one,) in zip(models, found, strict=True):
                np.testing.assert_allclose(one, stock(stated, [x])[0], rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize(("opset", "written"), [(17, "instances"), (21, "groups")])
def test_reads_the_image_along_its_channels(opset: int, written: str) -> None:
    assert STRIDED_LOADS not in traits(model(4, 64, opset, written))


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    stated = model(4, 40, 17, "instances")
    x = floats(1, 6, 12, 12) + np.float32(1000)
    with smelt.compile(stated, force=True, levels="v3", verify=False) as made:
        found, wanted = made.run({"x": x})[0], stock(stated, [x])[0]
    assert np.abs(found - wanted).max() <= 2e-3 * np.abs(wanted).max()
