"""Accuracy of outputs, budgets, calibration data and static int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smelt
from smelt.base.errors import ConfigError, InputError, PrecisionError
from smelt.passes import read_budget
from smelt.passes.quantize_weights import quantize, sqnr, with_feedback

from .low_precision_models import conv_net, decibels, mlp, normal, stock

FAST = {"levels": "v3", "threads": 1, "timing": False}


def calls(count: int = 3, rows: int = 5) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [{"x": rng.standard_normal((rows, 256)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("precision", ["w8", "bf16"])
def test_the_report_says_what_the_outputs_have_lost(precision: str) -> None:
    given = calls()
    with smelt.compile(mlp(), precision=precision, calibrate=given, **FAST) as compiled:
        accuracy = compiled.result.accuracy
        made = [compiled.run(call)[0] for call in given]
    wanted = [stock(mlp(), call["x"]) for call in given]
    assert accuracy is not None and accuracy.calls == 3 and not accuracy.generated
    assert accuracy.outputs["y"] == pytest.approx(decibels(np.stack(wanted), np.stack(made)), abs=0.1)
    assert any("y " in note and "on 3 given calls" in note for note in compiled.result.notes)


def test_without_data_inputs_are_generated() -> None:
    with smelt.compile(mlp(), precision="fp16", **FAST) as compiled:
        accuracy = compiled.result.accuracy
    assert accuracy is not None and accuracy.generated and 55 < accuracy.outputs["y"] < 90


def test_nothing_is_run_where_verification_is_off() -> None:
    with smelt.compile(mlp(), precision="fp16", verify=False, **FAST) as compiled:
        assert compiled.result.accuracy is None


def test_layers_go_back_until_the_budget_holds() -> None:
    with smelt.compile(mlp(), precision="w4", **FAST) as compiled:
        assert compiled.result.accuracy.outputs["y"] < 30
    with smelt.compile(mlp(), precision="w4", budget="22dB", **FAST) as compiled:
        accuracy = compiled.result.accuracy
    wide = [layer.name for layer in accuracy.layers if layer.wide]
    assert accuracy.outputs["y"] >= 22 and 0 < len(wide) < len(accuracy.layers) == 3
    assert {layer.precision for layer in accuracy.layers} == {"w4", "w8"}
    assert [point.wide for point in accuracy.curve] == sorted(point.wide for point in accuracy.curve)
    assert all(layer.noise_db < 40 for layer in accuracy.layers)
    assert sum(layer.share for layer in accuracy.layers) == pytest.approx(1)


@pytest.mark.parametrize(
    ("precision", "budget", "types"), [("w4", 36, {"w8"}), ("w4", 60, {"w8", ""}), ("int8-dynamic", 42, {"bf16"})]
)
def test_layers_take_the_next_wider_type(precision: str, budget: float, types: set[str]) -> None:
    with smelt.compile(mlp(), precision=precision, budget=budget, **FAST) as compiled:
        accuracy, result = compiled.result.accuracy, compiled.result
    assert accuracy.outputs["y"] >= budget - 0.5
    found = {layer.precision for layer in accuracy.layers}
    assert found & types and found <= {precision, *types}
    assert all(layer.wide == (layer.precision != precision) for layer in accuracy.layers)
    assert accuracy.curve[0].narrow_share == 1
    assert any("layers wider" in note for note in result.notes)


def test_static_layers_go_back_to_bfloat16() -> None:
    given = [{"x": normal(2, 3, 24, 24)} for _ in range(2)]
    with smelt.compile(conv_net(), precision="int8", calibrate=given, budget=44, **FAST) as compiled:
        accuracy = compiled.result.accuracy
    assert accuracy.outputs["y"] >= 43.5
    assert "bf16" in {layer.precision for layer in accuracy.layers}


def test_a_budget_for_static_int8_ends_in_float32() -> None:
    """Sums between the layers are quantized too, while any layer is."""
    given = [{"x": normal(2, 3, 24, 24)} for _ in range(2)]
    with smelt.compile(conv_net(), precision="int8", calibrate=given, budget=90, **FAST) as compiled:
        accuracy = compiled.result.accuracy
    assert accuracy.outputs["y"] >= 89 and "" in {layer.precision for layer in accuracy.layers}


def test_error_feedback_loses_less_on_data_that_it_has_not_seen() -> None:
    """Rows of a few directions, as activations have."""
    rng = np.random.default_rng(3)
    mixed = rng.standard_normal((32, 256)).astype(np.float32)

    def rows(count: int) -> np.ndarray:
        noise = 0.3 * rng.standard_normal((count, 256))
        return (rng.standard_normal((count, 32)) @ mixed / 6 + noise).astype(np.float32)

    seen, others = [{"x": rows(400)} for _ in range(3)], rows(100)
    wanted, found = stock(mlp(), others), []
    for given in ({}, {"calibrate": seen}):
        with smelt.compile(mlp(), precision="w4", **given, **FAST) as compiled:
            found.append(decibels(wanted, compiled.run({"x": others})[0]))
            assert any("error feedback" in note for note in compiled.result.notes) == bool(given)
            assert "MatMulNBits" in {node.op_type for region in compiled.result.plan.regions for node in region.nodes}
    assert found[1] > found[0] + 1.5


def test_feedback_without_data_of_some_terms_is_rounding() -> None:
    """Terms that are always 0, K that no block divides, and all zeros."""
    rng = np.random.default_rng(4)
    matrix = rng.standard_normal((40, 90)).astype(np.float32)
    plain = sqnr(matrix, quantize(matrix, 4))
    for moments in (np.zeros((90, 90)), np.diag((np.arange(90) % 3 > 0).astype(np.float64))):
        made = with_feedback(matrix, 4, moments)
        assert made.numbers.shape == quantize(matrix, 4).numbers.shape
        assert sqnr(matrix, made) == pytest.approx(plain, abs=1.0)


def test_a_budget_that_holds_keeps_all_layers_narrow() -> None:
    with smelt.compile(mlp(), precision="w8", budget=20, **FAST) as compiled:
        assert not any(layer.wide for layer in compiled.result.accuracy.layers)


def test_a_budget_that_nothing_reaches_is_an_error_with_the_best() -> None:
    with pytest.raises(PrecisionError, match=r"no choice of layers reaches .* the best is 0\.5 with \d of 3") as caught:
        smelt.compile(mlp(), precision="w8", budget=0.75, metric=lambda wanted, made: 0.5, **FAST)
    assert caught.value.code == "SM-PRECISION-003"


def test_a_metric_of_the_users_own_decides() -> None:
    seen: list[tuple[int, set[str]]] = []

    def cosine(wanted: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> float:
        seen.append((len(wanted), set(made[0])))
        pairs = [(a["y"].ravel(), b["y"].ravel()) for a, b in zip(wanted, made, strict=True)]
        return min(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in pairs)

    with smelt.compile(mlp(), precision="w4", calibrate=calls(2), budget=0.99995, metric=cosine, **FAST) as compiled:
        accuracy = compiled.result.accuracy
    assert accuracy.value >= 0.99995 and any(layer.wide for layer in accuracy.layers)
    assert seen and all(one == (2, {"y"}) for one in seen)


def test_static_int8_is_calibrated_on_the_data(tmp_path: Path) -> None:
    for place in range(4):
        np.savez(tmp_path / f"{place}.npz", x=normal(1 + place, 3, 24, 24))
    with smelt.compile(conv_net(), precision="int8", calibrate=str(tmp_path), **FAST) as compiled:
        kinds = {node.op_type for region in compiled.result.plan.regions for node in region.nodes}
        x = normal(2, 3, 24, 24)
        assert decibels(stock(conv_net(), x), compiled.run({"x": x})[0]) > 20
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds
    assert compiled.result.accuracy.outputs["y"] > 20


def test_static_int8_without_data_is_an_error() -> None:
    with pytest.raises(PrecisionError, match="needs calibration data") as caught:
        smelt.compile(mlp(), precision="int8", **FAST)
    assert caught.value.code == "SM-PRECISION-002"


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ([{"z": normal(2, 256)}], InputError, "no input 'z'"),
        ([{"x": normal(2, 255)}], InputError, "256"),
        ([{}], InputError, "lacks 'x'"),
        ([], PrecisionError, "no call"),
        ([{"x": np.full((2, 256), np.nan, np.float32)}], PrecisionError, "NaN in 'x'"),
        ([{"x": np.full((2, 256), np.inf, np.float32)}], PrecisionError, "an infinity in 'x'"),
    ],
)
def test_data_that_say_nothing_are_errors(data: list[dict[str, Any]], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        smelt.compile(mlp(), precision="w8", calibrate=data, **FAST)


@pytest.mark.parametrize("text", ["many", "-3", "nan", "dB"])
def test_a_budget_is_a_number_of_decibels(text: str) -> None:
    if text == "dB":
        assert read_budget(text, "w8") == 0
        return
    with pytest.raises(ConfigError, match="no number of dB"):
        read_budget(text, "w8")


def test_budgets_are_read_as_people_write_them() -> None:
    assert read_budget("40dB", "w8") == read_budget(" 40 db", "w8") == read_budget(40, "w8") == 40
    with pytest.raises(ConfigError, match="needs a precision"):
        read_budget("40", "")
