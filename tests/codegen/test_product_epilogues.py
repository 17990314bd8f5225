"""Products that add their bias and apply limits in registers: right for any number of rows, depth and columns."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from region_check import Graph, check, floats, traits

import smelt
from smelt.codegen.c.traits import REGISTER_EPILOGUE

# Few rows, one chunk of rows and several; one block of depth, several, several parts of it; whole and ragged panels.
SIZES = [(1, 40, 64), (3, 200, 33), (7, 40, 16), (50, 130, 72), (50, 700, 100), (150, 900, 130), (300, 64, 20)]
LIMITS = {"none": [], "relu": ["Relu"], "six": ["Clip", "low", "high"]}


def model(depth: int, columns: int, limits: str, *, residual: bool = False, rows: int | str = "rows") -> ModelProto:
    scale = np.float32(1 / np.sqrt(depth))
    inits = {"w": floats(depth, columns, seed=1) * scale, "b": floats(columns, seed=2)}
    inits |= {"low": np.float32(-0.25), "high": np.float32(0.5)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"])]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])]
    if residual:
        nodes.append(helper.make_node("Add", ["a", "r"], ["s"]))
        given.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [rows, columns]))
    if LIMITS[limits]:
        kind, *bounds = LIMITS[limits]
        nodes.append(helper.make_node(kind, [nodes[-1].output[0], *bounds], ["l"]))
    nodes[-1].output[0] = "y"
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in inits.items()]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, out, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
@pytest.mark.parametrize("limits", LIMITS)
def test_finished_products_are_right(limits: str, levels: str) -> None:
    graphs = [
        Graph(f"{rows}x{depth}x{columns} {limits}", [floats(rows, depth)], models=[model(depth, columns, limits)])
        for rows, depth, columns in SIZES
    ]
    check(*graphs, levels=levels, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("limits", LIMITS)
def test_bias_and_limits_are_left_to_the_product(limits: str) -> None:
    assert REGISTER_EPILOGUE in traits(model(64, 48, limits))


def test_a_residual_is_left_to_a_loop() -> None:
    assert REGISTER_EPILOGUE not in traits(model(64, 48, "none", residual=True, rows=20))


def test_what_is_not_a_number_stays_so_whatever_the_limits() -> None:
    x = floats(20, 300)
    x[3, 5], x[7, 8] = np.nan, np.inf
    with smelt.compile(model(300, 40, "six"), force=True, verify=False, threads=1) as compiled:
        found = compiled.run({"x": x})[0]
    with smelt.compile(model(300, 40, "none"), force=True, verify=False, threads=1) as compiled:
        plain = compiled.run({"x": x})[0]
    assert np.isnan(plain[3]).all() and np.isinf(plain[7]).all()
    np.testing.assert_array_equal(found, np.minimum(np.maximum(plain, np.float32(-0.25)), np.float32(0.5)))
