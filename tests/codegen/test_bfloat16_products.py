"""Products in float32 of numbers that come from bfloat16, as torch modules of that type are exported."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import smelt

WIDTH = 64


def model_of(rows: str, between: str = "") -> onnx.ModelProto:
    """Rows of a type, cast to float32, times bfloat16 weights that are cast too; the result as bfloat16 and float32."""
    weights = np.random.default_rng(5).standard_normal((WIDTH, WIDTH)).astype(ml_dtypes.bfloat16)
    held = [helper.make_tensor("w", TensorProto.BFLOAT16, weights.shape, weights.tobytes(), raw=True)]
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT)]
    left = "x"
    if between:
        nodes.append(helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.BFLOAT16))
        left = "narrow"
    nodes.append(helper.make_node("Cast", [left], ["rows"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("MatMul", ["rows", "wide"], ["y"]))
    x = helper.make_tensor_value_info("x", getattr(TensorProto, rows), ["rows", WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", WIDTH])
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def wanted(x: np.ndarray, *, rounded: bool) -> np.ndarray:
    weights = np.random.default_rng(5).standard_normal((WIDTH, WIDTH)).astype(ml_dtypes.bfloat16)
    rows = x.astype(ml_dtypes.bfloat16) if rounded else x
    return rows.astype(np.float64) @ weights.astype(np.float64)


@pytest.mark.parametrize("between", ["", "cast"])
def test_rows_from_bfloat16_are_multiplied_as_they_are(between: str) -> None:
    rows = "FLOAT" if between else "BFLOAT16"
    with smelt.compile(model_of(rows, between), force=True, timing=False) as compiled:
        assert "multiplied as they are" in compiled.explain()
        x = np.random.default_rng(1).standard_normal((7, WIDTH)).astype(np.float32)
        if not between:
            return  # numpy cannot feed the type
        np.testing.assert_allclose(compiled.run({"x": x})[0], wanted(x, rounded=True), rtol=2e-5, atol=2e-5)


def test_rows_of_float32_are_not_rounded() -> None:
    with smelt.compile(model_of("FLOAT"), force=True, timing=False) as compiled:
        assert "the product is float32" in compiled.explain()
        x = np.random.default_rng(1).standard_normal((7, WIDTH)).astype(np.float32)
        np.testing.assert_allclose(compiled.run({"x": x})[0], wanted(x, rounded=False), rtol=2e-5, atol=2e-5)


def test_calls_with_bfloat16_are_dumped(tmp_path: Path) -> None:
    with smelt.compile(model_of("BFLOAT16"), force=True, timing=False, dump=tmp_path / "dump") as compiled:
        assert not compiled.result.plan.fallbacks
