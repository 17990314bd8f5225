"""QAttention against stock: its projection is an 8-bit layer."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.codegen.test_int8_graphs import I8, U8, functions

import smelt

MICROSOFT = "com.microsoft"


def _model(
    activation: type, dtype: type, several: bool, mask: bool, past: bool, unidirectional: int
) -> onnx.ModelProto:
    """Four heads of 8 over 24 columns; small weights, since stock saturates large sums on CPUs without VNNI."""
    rng = np.random.default_rng([7, several, past])
    columns = 3 * 32
    low = 0 if dtype is U8 else -40
    arrays = {
        "w": rng.integers(low, 60, (24, columns)).astype(dtype),
        "bias": rng.standard_normal(columns).astype(np.float32),
        "xs": np.float32(0.02), "ws": rng.uniform(0.005, 0.02, columns if several else ()).astype(np.float32),
        "xz": activation(3), "wz": rng.integers(0, 9, columns if several else ()).astype(dtype),
    }  # fmt: skip
    kind = TensorProto.UINT8 if activation is U8 else TensorProto.INT8
    inputs = [helper.make_tensor_value_info("x", kind, ["batch", "length", 24])]
    inputs += [helper.make_tensor_value_info("mask", TensorProto.INT32, ["batch", "all"])] if mask else []
    inputs += [helper.make_tensor_value_info("past", TensorProto.FLOAT, [2, "batch", 4, "before", 8])] if past else []
    names = ["x", "w", "bias", "xs", "ws", "mask" if mask else "", "xz", "wz", "past" if past else ""]
    results = ["y", "present"] if past else ["y"]
    node = helper.make_node("QAttention", names, results, domain=MICROSOFT, num_heads=4, unidirectional=unidirectional)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    constants = [numpy_helper.from_array(value, name) for name, value in arrays.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


FORMS = [
    (U8, I8, False, False, False, 0), (U8, I8, True, True, False, 0), (U8, U8, False, True, False, 0),
    (U8, U8, False, False, False, 1), (U8, I8, False, False, True, 1),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_projection_of_quantized_attention_is_an_8_bit_layer(
    form: tuple[type, type, bool, bool, bool, int],
) -> None:
    model, rng = _model(*form), np.random.default_rng(1)
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        assert "smelt_int8_conv" in functions(compiled)
        for batch, length, before in ((1, 1, 2), (2, 13, 5), (3, 7, 1)):
            info = np.iinfo(form[0])
            feeds = {"x": rng.integers(info.min, info.max + 1, (batch, length, 24)).astype(form[0])}
            if form[3]:
                feeds["mask"] = (rng.random((batch, length)) < 0.8).astype(np.int32)
                feeds["mask"][:, 0] = 1
            if form[4]:
                feeds["past"] = rng.standard_normal((2, batch, 4, before, 8)).astype(np.float32)
            for got, wanted in zip(compiled.run(feeds), stock.run(None, feeds), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_a_scale_of_a_wrong_size_is_left_to_stock() -> None:
    model = _model(U8, I8, True, False, False, 0)
    scales = next(t for t in model.graph.initializer if t.name == "ws")
    scales.CopyFrom(numpy_helper.from_array(np.ones(7, np.float32), "ws"))
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert [left.node.op_type for left in compiled.result.plan.fallbacks] == ["QAttention"]
