"""Types that a model declares and an operator forbids: refused by name; what ONNX Runtime takes passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import smelt
from smelt.base.errors import ModelError
from smelt.ir.load import load_model
from smelt.pipeline import compile_to

HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '
TEXT = "(float[A, 4] x, int64[1] i) => (float[A, 4] y) { s = Tanh(x) t = Mul(s, x) y = Identity(t) }"
Change = Callable[[onnx.GraphProto], None]


def _declare(name: str, dtype: int) -> Change:
    return lambda graph: graph.value_info.append(helper.make_tensor_value_info(name, dtype, ["A", 4]))


def _output(graph: onnx.GraphProto) -> None:
    graph.output[0].type.tensor_type.elem_type = TensorProto.INT64


def _input(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.elem_type = TensorProto.INT64


def _mixed(graph: onnx.GraphProto) -> None:
    graph.node[1].input[1] = "i"


def _behind(graph: onnx.GraphProto) -> None:
    """Nothing declares what the Identity gives."""
    graph.node.insert(0, helper.make_node("Identity", ["i"], ["j"]))
    graph.node[1].input[0] = "j"


def _no_type(graph: onnx.GraphProto) -> None:
    graph.input[0].ClearField("type")


WRONG: dict[str, tuple[Change, str]] = {
    "an output": (_output, r"Identity gives tensor\(float\) as its output 0, tensor\(int64\) is declared"),
    "a value between": (_declare("s", TensorProto.INT32), r"Tanh gives tensor\(float\) as its output 0"),
    "an input": (_input, r"Tanh takes no tensor\(int64\) as its input 0"),
    "two inputs": (_mixed, r"one type, tensor\(float\) and tensor\(int64\) are declared"),
    "a value behind another": (_behind, r"Tanh takes no tensor\(int64\)"),
    "no type": (_no_type, "the input 'x' has no type"),
}


def _changed(change: Change) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + TEXT)
    change(model.graph)
    return model


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_refused_as_by_stock_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    change, said = WRONG[name]
    model = _changed(change)
    with pytest.raises(ModelError, match=said):
        load_model(model)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(ModelError, match=said):
        compile_to(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "(float[A] x, int64[1] s) => (float[A] y) { y = Reshape(x, s) }",
        "(float[A] x, int64[1] i) => (int64[A] y) { y = Cast<to = 7>(x) }",
        "(float[A] x, float16[B] z) => (float16[B] y) { u = CastLike(x, z) y = Add(u, z) }",
        "(bfloat16[A, 2, B, C] x, bfloat16[3, 2, 1, 1] w) => (bfloat16[A, 3, B, C] y) { y = Conv(x, w) }",
        "(float[A] x, bool[A] c) => (float[A] y) { y = Where(c, x, x) }",
        "(float[A] x) => (seq(float[A]) y) { y = SequenceConstruct(x, x) }",
        "(bool c, float[A] x, int64[A] i) => (y) "
        "{ y = If<then_branch = t () => (float[A] p) { p = Neg(x) }, "
        "else_branch = e () => (float[A] q) { q = Abs(x) }>(c) }",
    ],
)
def test_types_that_differ_by_right_pass(text: str) -> None:
    load_model(onnx.parser.parse_model(HEAD + text))


def test_a_model_of_right_types_runs() -> None:
    with smelt.compile(_changed(_declare("s", TensorProto.FLOAT))) as compiled:
        x = np.ones((2, 4), np.float32)
        np.testing.assert_allclose(compiled.run({"x": x, "i": np.zeros(1, np.int64)})[0], np.tanh(x) * x, rtol=1e-6)
