"""Weights of products and convolutions in bfloat16 and float16 from a float32 file."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import smelt
from smelt.base.errors import ConfigError
from smelt.base.target import host_features
from smelt.passes import narrow, run_passes

from .low_precision_models import attention, conv_net, decibels, mlp, normal, nothing, odd_weights, product, stock

LEAST = {"bf16": 40.0, "fp16": 55.0}
MOST = {"bf16": 70.0, "fp16": 90.0}  # more would mean that nothing was narrowed
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
MODELS = [(mlp, (256,)), (attention, (9, 64)), (conv_net, (3, 24, 24))]


def converted(model: onnx.ModelProto, precision: str) -> tuple[ir.Model, str]:
    made = ir.serde.deserialize_model(model)
    (note,) = narrow(made, precision, "exact")
    return made, note


@pytest.mark.parametrize("precision", LEAST)
def test_weights_are_narrow_behind_casts_that_no_pass_folds(precision: str) -> None:
    made, note = converted(conv_net(), precision)
    assert "3 products or convolutions" in note and "dB" in note
    onnx.checker.check_model(ir.serde.serialize_model(made), full_check=True)
    run_passes(made)
    casts = [n for n in made.graph if n.op_type == "Cast"]
    assert {v.dtype for n in casts for v in n.inputs if v} == {ir.DataType.from_numpy(np.dtype(DTYPES[precision]))}
    assert len(casts) == 3  # two of the five weights are too small
    assert [(v.name, v.dtype) for v in (*made.graph.inputs, *made.graph.outputs)] == [
        ("x", ir.DataType.FLOAT),
        ("y", ir.DataType.FLOAT),
    ]


@pytest.mark.parametrize("precision", LEAST)
@pytest.mark.parametrize(("model", "inner"), MODELS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_compiled_model_is_near_the_one_in_float32_at_every_size(
    model: Callable[[], onnx.ModelProto], inner: tuple[int, ...], precision: str
) -> None:
    given = model()
    with smelt.compile(given, precision=precision, levels="v3", threads=1, timing=False) as compiled:
        result = compiled.result
        assert not result.plan.fallbacks
        assert result.findings is not None and not result.findings.rejected and result.findings.verdicts
        assert any("dB" in note for note in result.notes)
        for rows in (1, 2, 7, 40):
            x = normal(rows, *inner)
            (y,) = compiled.run({"x": x})
            assert y.dtype == np.float32
            assert LEAST[precision] < decibels(stock(given, x), y) < MOST[precision], rows
        (y,) = compiled.run({"x": np.zeros((0, *inner), np.float32)})
        assert y.shape[0] == 0


@pytest.mark.parametrize("precision", LEAST)
def test_weights_of_products_stay_narrow_in_the_artifact(precision: str) -> None:
    def stored(asked: str) -> int:
        with smelt.compile(mlp(), precision=asked, levels="v3", threads=1, timing=False) as compiled:
            folder = compiled.result.artifact.directory
            return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".onnx", ".data"))

    assert stored(precision) < 0.55 * stored("")


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize("precision", LEAST)
def test_kernels_widen_exactly_and_round_rows_only_where_bfloat16_is_multiplied(precision: str, level: str) -> None:
    rounds = precision == "bf16" and level == "v4" and "avx512_bf16" in host_features()
    for depth, columns in ((33, 50), (515, 17), (1030, 64)):
        weights = normal(depth, columns)
        rounded = weights.astype(DTYPES[precision]).astype(np.float64)
        given = product(weights)
        with smelt.compile(given, precision=precision, levels=level, threads=2, timing=False) as compiled:
            assert not compiled.result.plan.fallbacks
            for rows in (1, 2, 3, 5, 8, 9, 150):
                x = normal(rows, depth)
                (y,) = compiled.run({"x": x})
                plain = x.astype(ml_dtypes.bfloat16).astype(np.float64) if rounds else x
                assert decibels(plain @ rounded, y) > 120, (depth, columns, rows)


def test_rows_of_a_float32_product_of_widened_weights_are_not_rounded() -> None:
    """A Cast from bfloat16 that the file itself has is as exact as it says."""
    weights, x = normal(256, 96), normal(20, 256)
    made, _ = converted(product(weights), "bf16")
    for node in made.graph:
        node.metadata_props.clear()
    with smelt.compile(ir.serde.serialize_model(made), threads=1, timing=False) as compiled:
        assert not compiled.result.plan.fallbacks
        (y,) = compiled.run({"x": x})
    assert decibels(x @ weights.astype(ml_dtypes.bfloat16).astype(np.float64), y) > 120


@pytest.mark.parametrize(("precision", "taps"), [("bf16", 1), ("bf16", 5), ("fp16", 1)])
def test_weights_of_convolutions_stay_narrow_in_the_artifact(precision: str, taps: int) -> None:
    weights = normal(128, 64, taps, taps)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[taps // 2] * 4)
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", channels, 9, 9])
        for name, channels in (("x", 64), ("y", 128))
    ]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [onnx.numpy_helper.from_array(weights, "w")])
    given = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    with smelt.compile(given, precision=precision, threads=1, timing=False) as compiled:
        assert not compiled.result.plan.fallbacks
        folder = compiled.result.artifact.directory
        stored = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".onnx", ".data"))
        x = normal(2, 64, 9, 9)
        (y,) = compiled.run({"x": x})
    assert stored < 0.5 * weights.nbytes + 20000
    assert decibels(stock(given, x), y) > LEAST[precision]


@pytest.mark.parametrize("precision", LEAST)
@pytest.mark.parametrize("kind", ["zero", "constant", "column"])
def test_weights_of_zeros_and_of_one_number(kind: str, precision: str) -> None:
    weights, x = odd_weights(kind), normal(3, 64)
    with smelt.compile(product(weights), precision=precision, levels="v3", threads=1, timing=False) as compiled:
        (y,) = compiled.run({"x": x})
    assert not y[:, ~weights.any(axis=0)].any()
    assert kind == "zero" or decibels(x @ weights, y) > LEAST[precision]


@pytest.mark.parametrize("precision", LEAST)
def test_what_cannot_be_narrow_stays_and_is_said(precision: str) -> None:
    made, note = converted(nothing(), precision)
    assert [n.op_type for n in made.graph] == ["Relu"] and "nothing" in note
    weights = odd_weights("column")
    weights[2, 3] = np.nan
    assert [n.op_type for n in converted(product(weights), precision)[0].graph] == ["MatMul"]
    weights[2, 3] = 1e5  # beyond float16
    wanted = ["Cast", "MatMul"] if precision == "bf16" else ["MatMul"]
    assert [n.op_type for n in converted(product(weights), precision)[0].graph] == wanted


def test_a_weight_of_two_nodes_is_narrowed_once() -> None:
    given = mlp()
    given.graph.node[-1].input[1] = "w1"
    made, _ = converted(given, "bf16")
    assert [n.op_type for n in made.graph].count("Cast") == 2


def test_unknown_precisions_are_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="no precision 'float16'") as caught:
        smelt.compile(mlp(), precision="float16")
    assert "w8, w4, int8-dynamic, bf16, fp16" in caught.value.hint
