"""Flops and bytes of models whose counts are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.bench.work import Work, count_work


def saved(
    path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str], opset: int = 18
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 20 else 10),
        path,
    )
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


def test_a_grouped_convolution_counts_the_channels_of_a_group(tmp_path: Path):
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=4)
    path = saved(tmp_path / "m.onnx", [node], {"w": np.ones((8, 1, 3, 3), np.float32)}, [1, 4, "h", "h"])
    assert count_work(path, {"x": np.ones((1, 4, 10, 10), np.float32)}).products == 2 * 8 * 8 * 8 * 9


def test_a_transposed_convolution_counts_what_each_pixel_spreads(tmp_path: Path):
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    path = saved(tmp_path / "m.onnx", [node], {"w": np.ones((4, 6, 2, 2), np.float32)}, [1, 4, "h", "h"])
    assert count_work(path, {"x": np.ones((1, 4, 5, 5), np.float32)}).products == 2 * (4 * 25) * (6 * 4)


def test_pooling_counts_its_window_and_a_mean_what_it_reads(tmp_path: Path):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m"], name="pool", kernel_shape=[3, 3]),
        helper.make_node("GlobalAveragePool", ["m"], ["y"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {}, [1, 4, "h", "h"])
    work = count_work(path, {"x": np.ones((1, 4, 10, 10), np.float32)})
    assert (work.products, work.flops) == (0, 4 * 64 * 9 + 4 * 64)


def test_an_equation_counts_every_combination_of_its_indices(tmp_path: Path):
    node = helper.make_node("Einsum", ["x", "w"], ["y"], name="e", equation="b i j, j k -> b i k")
    path = saved(tmp_path / "m.onnx", [node], {"w": np.ones((5, 7), np.float32)}, ["b", 3, 5])
    assert count_work(path, {"x": np.ones((2, 3, 5), np.float32)}).products == 2 * 2 * 3 * 5 * 7


def test_attention_counts_the_past_keys_too(tmp_path: Path):
    nodes = [
        helper.make_node("Attention", ["x", "x", "x", "", "past", "past"], ["y", "key", "value"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"past": np.ones((1, 2, 9, 8), np.float32)}, [1, 2, "s", 8], opset=23)
    found = count_work(path, {"x": np.ones((1, 2, 3, 8), np.float32)})
    assert found.products == 2 * (2 * 3 * 12 * 8) * 2


def test_a_table_that_is_also_a_weight_is_read_whole(tmp_path: Path):
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("Transpose", ["table"], ["transposed"]),
        helper.make_node("MatMul", ["rows", "transposed"], ["y"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"table": np.ones((1000, 16), np.float32)}, [2])
    assert count_work(path, {"x": np.zeros(2, np.float32)}).bytes == 4 * (2 + 1000 * 16 + 2 * 1000)


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
