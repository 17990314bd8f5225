"""Which form a matrix product gets, as reports name it: without a compiler."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.base.target import select_targets
from smelt.codegen import Backends, find_backends
from smelt.ir.load import load_model
from smelt.ops import analyze
from smelt.partition import capture
from smelt.passes import run_passes

Sizes = list[int | str]


def forms(nodes: list[onnx.NodeProto], inputs: dict[str, Sizes], weights: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Forms of the kernels, each with its reason."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in inputs.items()]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constants = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights.items()]
    graph = helper.make_graph(nodes, "g", given, out, constants)
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9))
    run_passes(model)
    backend = Backends(find_backends("c"), analyze(model), list(model.graph.inputs))
    made = backend.generate(capture(model, backend.all, (), (), True).regions, select_targets(None, ("v3",)))
    return {info.form: info.reason for code in made.codes for info in code.info}


PRODUCT = [helper.make_node("MatMul", ["a", "b"], ["y"])]
ATTENTION = [
    helper.make_node("MatMul", ["q", "k"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["weights"]),
    helper.make_node("MatMul", ["weights", "v"], ["y"]),
]
MLP = [
    helper.make_node("MatMul", ["a", "up"], ["hidden"]),
    helper.make_node("Relu", ["hidden"], ["bent"]),
    helper.make_node("MatMul", ["bent", "down"], ["y"]),
]


@pytest.mark.parametrize(
    ("inputs", "form"),
    [
        ({"a": [1, 64], "b": [64, 48]}, "GEMV"),
        ({"a": [2, 2, 64], "b": [64, 48]}, "GEMV"),
        ({"a": [5, 64], "b": [64, 48]}, "GEMM, unpacked"),
        ({"a": ["n", 64], "b": [64, 48]}, "GEMV up to 4 rows, unpacked GEMM beyond"),
        ({"a": [3, 4, 64], "b": [3, 64, 48]}, "GEMV"),
        ({"a": [3, 5, 64], "b": [3, 64, 48]}, "GEMM, packed at run time"),
        ({"a": ["n", "m", 64], "b": ["n", 64, 48]}, "GEMV up to 4 rows, GEMM packed at run time beyond"),
    ],
)
def test_rows_and_batches_choose_the_form_of_a_run_time_product(inputs: dict[str, Sizes], form: str) -> None:
    found = forms(PRODUCT, inputs, {})
    assert form in found
    assert found[form]


def test_a_constant_matrix_is_packed_ahead_of_time_for_any_number_of_rows() -> None:
    for rows in (1, "n"):
        found = forms(PRODUCT, {"a": [rows, 64]}, {"b": (64, 48)})
        assert found == {"GEMM, packed ahead of time": "the weights are the same for many calls: they are packed once"}


def test_softmax_between_products_is_online() -> None:
    found = forms(ATTENTION, {"q": ["n", "s", 64], "k": ["n", 64, "t"], "v": ["n", "t", 64]}, {})
    assert "running maximum" in found["attention, online softmax"]


def test_products_without_softmax_between_them_are_back_to_back() -> None:
    nodes = [ATTENTION[0], helper.make_node("Relu", ["scores"], ["weights"]), ATTENTION[2]]
    found = forms(nodes, {"q": ["n", "s", 64], "k": ["n", 64, "t"], "v": ["n", "t", 64]}, {})
    assert "back-to-back GEMM" in found
    assert "attention, online softmax" not in found


def test_small_layers_are_a_fused_mlp_and_large_ones_are_not() -> None:
    small = forms(MLP, {"a": ["n", 64]}, {"up": (64, 128), "down": (128, 64)})
    assert "fused MLP" in small
    large = forms(MLP, {"a": ["n", 1024]}, {"up": (1024, 4096), "down": (4096, 1024)})
    assert list(large) == ["GEMM, packed ahead of time"]
