"""Flops and bytes of models whose counts are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.bench.work import Work, count_work


def saved(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str]) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def test_a_product_of_dynamic_size_counts_two_flops_a_term(tmp_path: Path):
    weight = np.ones((8, 32), np.float32)
    path = saved(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, ["n", 8])
    work = count_work(path, {"x": np.ones((5, 8), np.float32)})
    assert work.products == work.flops == 2 * 5 * 8 * 32
    assert work.bytes == 4 * (5 * 8 + 8 * 32 + 5 * 32)


def test_weights_that_a_kernel_would_pack_are_seen(tmp_path: Path):
    weight = np.ones((768, 768), np.float32)
    path = saved(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, ["n", 768])
    assert count_work(path, {"x": np.ones((128, 768), np.float32)}).products == 2 * 128 * 768 * 768


def test_a_convolution_counts_its_window(tmp_path: Path):
    weight = np.ones((6, 4, 3, 3), np.float32)
    path = saved(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"])], {"w": weight}, [1, 4, "h", "h"])
    assert count_work(path, {"x": np.ones((1, 4, 10, 10), np.float32)}).products == 2 * 6 * 8 * 8 * 4 * 9


def test_of_a_table_only_what_is_looked_up_counts(tmp_path: Path):
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["y"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"table": np.ones((1000, 16), np.float32)}, [2])
    assert count_work(path, {"x": np.zeros(2, np.float32)}).bytes == 4 * (2 + 2 * 16)


def test_the_slower_of_arithmetic_and_memory_is_the_limit():
    assert Work(flops=100.0, products=0.0, bytes=10.0).limit_s(fma=10.0, bandwidth=10.0) == 10.0
    assert Work(flops=100.0, products=0.0, bytes=1000.0).limit_s(fma=10.0, bandwidth=10.0) == pytest.approx(100.0)
