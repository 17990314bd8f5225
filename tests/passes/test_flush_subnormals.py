"""Subnormal weights become zeros where they cannot matter."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from smelt.passes import run_passes


def convolution(weights: np.ndarray, *, shown: bool = False) -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape([1, 2, 5, 5]), type=ir.TensorType(ir.DataType.FLOAT))
    w = ir.Value(name="w", shape=ir.Shape(weights.shape), type=ir.TensorType(ir.DataType.FLOAT))
    w.const_value = ir.Tensor(weights, name="w")
    node = ir.Node("", "Conv", [x, w])
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    outputs = [*node.outputs, *([w] if shown else [])]
    return ir.Model(ir.Graph([x], outputs, nodes=[node], initializers=[w], opset_imports={"": 20}), ir_version=10)


def flushed(model: ir.Model) -> np.ndarray:
    run_passes(model, only=["flush-subnormals"])
    return model.graph.initializers["w"].const_value.numpy()


@pytest.mark.parametrize("large", [1.0, -3.0])
def test_elements_that_no_sum_can_hold_become_zeros(large: float):
    weights = np.full((3, 2, 1, 1), large, np.float32)
    weights[1] = [[[1e-40]], [[-1e-45]]]
    weights[2, 0] = 1.2e-38
    found = flushed(convolution(weights.copy()))
    weights[1] = 0
    np.testing.assert_array_equal(found, weights)


def test_weights_that_are_all_tiny_stay():
    weights = np.full((3, 2, 1, 1), 1e-40, np.float32)
    np.testing.assert_array_equal(flushed(convolution(weights.copy())), weights)


def test_what_others_read_stays():
    weights = np.array([1, 1e-40], np.float32).reshape(1, 2, 1, 1)
    np.testing.assert_array_equal(flushed(convolution(weights.copy(), shown=True)), weights)
