"""Weights of products in 8 and 4 bits: what is quantized, how well, and what is said of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.base.errors import ConfigError
from smelt.passes import narrow
from smelt.passes.quantize_weights import quantize, sqnr

RNG = np.random.default_rng(4)


def model_of(scale: float = 1.0) -> onnx.ModelProto:
    """Two products with constant weights, one too small, and one of two inputs."""
    weights = {
        "a": RNG.standard_normal((96, 128)) / 10,
        "b": RNG.standard_normal((96, 128)) * scale / 10,
        "bias": RNG.standard_normal(96),
        "small": RNG.standard_normal((96, 8)) / 10,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "b", "bias"], ["g"], transB=1, name="second"),
        helper.make_node("MatMul", ["g", "small"], ["y"], name="third"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 96])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])
    held = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("bits", "least"), [(8, 44.0), (4, 20.0)])
def test_normal_weights_keep_their_signal(bits: int, least: float) -> None:
    weights = RNG.standard_normal((300, 100)).astype(np.float32)
    assert sqnr(weights, quantize(weights, bits)) > least


def test_weights_on_a_grid_are_kept() -> None:
    weights = RNG.integers(-8, 8, (40, 64)).astype(np.float32) / 4
    weights[:, ::16], weights[:, 1::16] = -2, 1.75
    assert sqnr(weights, quantize(weights, 4)) == float("inf")


def test_blocks_of_zeros_stay_zeros() -> None:
    weights = np.zeros((32, 64), np.float32)
    weights[3, 40] = 1.5
    assert sqnr(weights, quantize(weights, 4)) > 60


@pytest.mark.parametrize("precision", ["w8", "w4"])
def test_large_products_are_quantized_and_reported(precision: str) -> None:
    model = ir.serde.deserialize_model(model_of())
    (note,) = narrow(model, precision, "exact")
    assert [n.op_type for n in model.graph] == ["MatMulNBits", "Relu", "MatMulNBits", "MatMul"]
    assert [n.name for n in model.graph][::2] == ["first", "second"]
    assert "2 products" in note and "dB" in note


def test_weights_that_are_no_numbers_stay() -> None:
    model = ir.serde.deserialize_model(model_of(np.inf))
    narrow(model, "w4", "exact")
    assert [n.op_type for n in model.graph] == ["MatMulNBits", "Relu", "Gemm", "MatMul"]


def test_a_compiled_model_is_near_the_one_in_float32() -> None:
    given = model_of()
    x = RNG.standard_normal((7, 96)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(given.SerializeToString()).run(None, {"x": x})
    for precision, accuracy, least in (("w8", "exact", 40), ("w4", "exact", 15), ("w8", "fast", 35)):
        with smelt.compile(given, precision=precision, accuracy=accuracy, levels="v3", threads=1) as compiled:
            assert not [f for f in compiled.result.plan.fallbacks if f.node.op_type == "MatMulNBits"]
            (y,) = compiled.run({"x": x})
        ratio = 10 * np.log10(np.square(wanted).sum() / np.square(wanted - y).sum())
        assert least < ratio < 70, precision


def test_what_there_is_not_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no precision 'w5'"):
        smelt.compile(model_of(), precision="w5")
    with pytest.raises(ConfigError, match="no accuracy 'faster'"):
        smelt.compile(model_of(), accuracy="faster")
