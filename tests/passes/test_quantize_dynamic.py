"""Products of 8-bit weights and 8-bit activations from a float32 file."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import smelt
from smelt.base.errors import ConfigError
from smelt.passes import narrow
from smelt.passes.quantize_dynamic import quantize_columns

from .low_precision_models import attention, decibels, mlp, normal, nothing, odd_weights, product, stock

LAYER = ["DynamicQuantizeLinear", "Mul", "MatMulInteger", "Cast", "Mul"]


def converted(model: onnx.ModelProto) -> tuple[ir.Model, str]:
    made = ir.serde.deserialize_model(model)
    (note,) = narrow(made, "int8-dynamic", "exact")
    return made, note


def test_products_become_the_integer_form_and_keep_names() -> None:
    given = mlp()
    made, note = converted(given)
    expected = [*LAYER, "Add", "Relu", *LAYER, "Add", "Relu", *LAYER]
    assert [n.op_type for n in made.graph] == expected
    assert [n.name for n in made.graph if n.op_type == "MatMulInteger"] == ["first", "second", "third"]
    assert {"g", "m", "y"} <= {v.name for n in made.graph for v in n.outputs}
    assert [(v.name, v.dtype) for v in made.graph.outputs] == [("y", ir.DataType.FLOAT)]
    assert "3 products" in note and "dB" in note
    onnx.checker.check_model(ir.serde.serialize_model(made), full_check=True)
    x = normal(5, 256)
    assert decibels(stock(given, x), stock(ir.serde.serialize_model(made), x)) > 25


def test_products_of_one_tensor_share_its_quantization() -> None:
    made, _ = converted(attention())
    ops = [n.op_type for n in made.graph]
    assert ops.count("MatMulInteger") == 4 and ops.count("DynamicQuantizeLinear") == 2 and ops.count("MatMul") == 2


@pytest.mark.parametrize("model", [mlp, attention])
def test_a_compiled_model_is_near_the_one_in_float32_at_every_size(model: object) -> None:
    given = mlp() if model is mlp else attention()
    inner = (256,) if model is mlp else (9, 64)
    with smelt.compile(given, precision="int8-dynamic", levels="v3", threads=1, timing=False) as compiled:
        result = compiled.result
        assert not result.plan.fallbacks
        assert result.findings is not None and not result.findings.rejected and result.findings.verdicts
        assert any("dB" in note for note in result.notes)
        for rows in (1, 2, 7, 130):
            x = normal(rows, *inner)
            (y,) = compiled.run({"x": x})
            assert y.dtype == np.float32
            assert 25 < decibels(stock(given, x), y) < 70, rows
        (y,) = compiled.run({"x": np.zeros((0, *inner), np.float32)})
        assert y.shape == (0, *inner)


@pytest.mark.parametrize("kind", ["zero", "constant", "column"])
def test_weights_of_zeros_and_of_one_number(kind: str) -> None:
    weights = odd_weights(kind)
    x = normal(3, 64)
    with smelt.compile(product(weights), precision="int8-dynamic", levels="v3", threads=1, timing=False) as compiled:
        (y,) = compiled.run({"x": x})
        (none,) = compiled.run({"x": np.zeros_like(x)})
    assert np.isfinite(y).all() and not none.any()
    assert not y[:, ~weights.any(axis=0)].any()
    assert kind == "zero" or decibels(x @ weights, y) > 25


def test_each_column_has_its_scale() -> None:
    weights = odd_weights("column").T * np.logspace(-3, 3, 96, dtype=np.float32)[:, None]
    numbers, scales = quantize_columns(weights)
    assert scales[5] == 1 and not numbers[5].any()
    largest = np.abs(numbers.astype(int)).max(axis=1)
    assert set(largest) == {0, 127}
    assert np.all(np.abs(numbers * scales[:, None] - weights) <= scales[:, None] * 0.5001)


def test_what_has_no_products_stays_and_is_said() -> None:
    made, note = converted(nothing())
    assert [n.op_type for n in made.graph] == ["Relu"] and "nothing" in note
    weights = odd_weights("column")
    weights[2, 3] = np.inf
    assert [n.op_type for n in converted(product(weights))[0].graph] == ["MatMul"]


def test_operators_that_are_too_old_stay() -> None:
    given = mlp()
    given.opset_import[0].version = 10
    assert "nothing" in converted(given)[1]


def test_unknown_precisions_are_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="no precision 'int8_dynamic'") as caught:
        smelt.compile(mlp(), precision="int8_dynamic")
    assert "w8, w4, int8-dynamic" in caught.value.hint
