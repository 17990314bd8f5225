"""Stock's Sigmoid is no reference for what is near 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from smelt.check.judge import Judge
from smelt.check.known_errors import OFF_BY, known_errors
from smelt.ir.load import load_model

TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[n] x) => (float[n] a, float[m] b, float[n] c, float[n] x2) {
  a = Sigmoid(x)  d = Concat<axis = 0>(x, a)  b = Identity(d)  c = Tanh(a)  x2 = Identity(x) }"""


def saved(path: Path) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_outputs_show_the_error_of_a_function_that_only_moves_follow() -> None:
    off = OFF_BY["Sigmoid"]
    assert known_errors(load_model(onnx.parser.parse_model(TEXT))) == [off, off, 0.0, 0.0]


def test_stock_is_off_by_so_much(tmp_path: Path) -> None:
    x = np.linspace(-40, 40, 400_001, dtype=np.float32)
    (found,) = onnxruntime.InferenceSession(saved(tmp_path / "s.onnx")).run(None, {"x": x})
    errors = np.abs(found - 1 / (1 + np.exp(-x.astype(np.float64))))
    assert OFF_BY["Sigmoid"] / 8 < errors.max() < OFF_BY["Sigmoid"]


def test_a_sigmoid_that_is_right_near_0_is_right_without_a_reference(tmp_path: Path) -> None:
    """A detector that sees nothing: all results are smaller than what stock is off by."""
    judge = Judge(saved(tmp_path / "s.onnx"), "model", ["Sigmoid"], budget=0)
    feeds = {"x": np.linspace(-30, -14, 500, dtype=np.float32)}
    stock, right = judge.stock(feeds), 1 / (1 + np.exp(-feeds["x"].astype(np.float64)))
    assert not judge(feeds, [right.astype(np.float32)], stock).comparison.problem
    assert judge(feeds, [(right + 4e-6).astype(np.float32)], stock).comparison.problem
    feeds = {"x": np.linspace(-3, 3, 500, dtype=np.float32)}
    stock, right = judge.stock(feeds), 1 / (1 + np.exp(-feeds["x"].astype(np.float64)))
    assert judge(feeds, [(right * (1 + 6e-5)).astype(np.float32)], stock).comparison.problem


def test_answers_of_stock_that_differ_near_0_alone_are_a_yardstick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of many results is no background, and rounding moves it as far with stock's optimizers."""
    judge = Judge(saved(tmp_path / "s.onnx"), "model", ["Sigmoid"], budget=0)
    feeds = {"x": np.linspace(-17, -15, 200_000, dtype=np.float32)}
    feeds["x"][0] = -2.4
    stock = judge.stock(feeds)
    off = np.float32(1 + 2.4e-5)
    assert judge(feeds, [stock[0] * off], stock).comparison.problem
    other = stock[0] + np.float32(2e-7)
    other[0] = stock[0][0] * np.float32(1 - 2e-5)
    judge = Judge(tmp_path / "s.onnx", "model", ["Sigmoid"], budget=0)
    monkeypatch.setattr(judge, "_again", lambda settings, given: [other])
    assert not judge(feeds, [stock[0] * off], stock).comparison.problem
    assert judge(feeds, [stock[0] * np.float32(1 + 1e-4)], stock).comparison.problem
