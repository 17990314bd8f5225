"""Types that ONNX Runtime's CPU provider has no kernels for, computed in wider ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from pass_models import FLOAT, build, kinds, op, x

from smelt.ir.load import load_model
from smelt.passes import run_passes


def wide_and_narrow(dtype: int, chain: list[onnx.NodeProto]) -> onnx.ModelProto:
    """float32 in and out, the chain from `a` to `b` in another type."""
    nodes = [op("Cast", "x", "a", to=dtype), *chain, op("Cast", "b", "y", to=FLOAT)]
    return build(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])], opset=20)


def simplified(proto: onnx.ModelProto) -> ir.Model:
    model = load_model(proto)
    run_passes(model, patterns="default+ort-cast")
    return model


def result(model: ir.Model, given: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": given})[0]


def test_what_onnx_runtime_has_no_kernel_for_is_computed_in_a_wider_type():
    chain = [op("Mul", "a a", "c"), op("Sigmoid", "c", "d"), op("Add", "d a", "e"), op("Softmax", "e", "b", axis=-1)]
    proto = wide_and_narrow(onnx.TensorProto.BFLOAT16, chain)
    given = x(3, 4)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented):
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    model = simplified(proto)
    # once to the wider type, once back; what was rounded by the model itself stays rounded
    assert kinds(model) == ["Cast", "Cast", "Mul", "Sigmoid", "Add", "Softmax", "Cast", "Cast"]
    a = given.astype(ml_dtypes.bfloat16).astype(np.float32)
    e = 1 / (1 + np.exp(-a * a)) + a
    wanted = np.exp(e) / np.exp(e).sum(-1, keepdims=True)
    np.testing.assert_allclose(result(model, given), wanted, rtol=2**-7)


def test_integers_without_a_kernel_wrap_around_as_their_own_type_does():
    chain = [op("Add", "a a", "c"), op("Mul", "c c", "b")]
    model = simplified(wide_and_narrow(onnx.TensorProto.INT16, chain))
    given = np.array([[1, 100, 200, -300]], np.float32)
    doubled = given.astype(np.int16) * np.int16(2)
    assert result(model, given).tolist() == (doubled * doubled).astype(np.float32).tolist()


def test_nodes_with_a_kernel_are_left_alone():
    chain = [op("Mul", "a a", "c"), op("Sigmoid", "c", "b")]
    model = load_model(wide_and_narrow(onnx.TensorProto.DOUBLE, chain))
    before = kinds(model)
    run_passes(model, patterns="none+ort-cast")
    assert kinds(model) == before
