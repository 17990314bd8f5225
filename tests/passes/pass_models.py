"""Small models for tests of passes, and the check that a pass keeps what they compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from smelt.ir.load import load_model
from smelt.ir.verifier import verify_model
from smelt.passes import run_passes

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Spec = tuple[str, int, list[object]]


def build(
    nodes: list[onnx.NodeProto],
    inputs: list[Spec],
    outputs: list[Spec],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    ir_version: int = 9,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*spec) for spec in inputs],
        [helper.make_tensor_value_info(*spec) for spec in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=functions or [])


def op(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    def names(text: str) -> list[str]:
        return ["" if name == "_" else name for name in text.split()]

    return helper.make_node(op_type, names(inputs), names(outputs), **attributes)


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def optimized(
    proto: onnx.ModelProto, *feeds: dict[str, np.ndarray], only: list[str] | None = None, patterns: str | None = None
) -> ir.Model:
    """The model after the passes; checked to keep interface and results for all feeds."""
    expected = [run(proto, feed) for feed in feeds]
    model = load_model(proto.SerializeToString())
    run_passes(model, only=only, patterns=patterns)
    verify_model(model)
    after = ir.to_proto(model)
    assert [v.name for v in after.graph.output] == [v.name for v in proto.graph.output]
    assert [v.type for v in after.graph.output] == [v.type for v in proto.graph.output]
    for feed, results in zip(feeds, expected, strict=True):
        for got, want in zip(run(after, feed), results, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
            assert got.dtype == want.dtype and got.shape == want.shape
    return model


def kinds(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
