"""Scales and shifts of channels behind a convolution go into its weights and bias, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import ModelProto, numpy_helper

from smelt.passes import run_passes
from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, np.dtype[Any]]


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CONSTANTS: dict[str, Array] = {
    "w": values(6, 4, 3, 3), "grouped": values(6, 2, 3, 3), "across": values(4, 3, 2, 2), "b": values(6, seed=1),
    "gain": values(6, seed=2), "shift": values(6, seed=3), "mean": values(6, seed=4),
    "variance": np.abs(values(6, seed=5)) + np.float32(0.1),
    "each": values(6, 1, 1, seed=6), "whole": values(1, 6, 1, 1, seed=7), "two": np.full((), 2, np.float32),
    "three": values(1, seed=8),
    "lines": values(1, 1, 6, 1, seed=9), "zero": np.zeros(6, np.float32), "tiny": np.full(6, 1e-38, np.float32),
}  # fmt: skip
NORMALIZED = "BatchNormalization({}, gain, shift, mean, variance)"


def model(body: str, out: str = "float y", opset: int = 17) -> ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,4,H,W] x) => ({out}) {{ {body} }}'
    made = onnx.parser.parse_model(text.replace("float y", "float[N,6,P,Q] y"))
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in CONSTANTS.items() if n in body)
    return made


def folded(made: ModelProto) -> ModelProto:
    found = ir.from_proto(made)
    run_passes(found, only=["infer-shapes", "fold-channel-affine"])
    return ir.to_proto(found)


def run(made: ModelProto, x: Array) -> list[Array]:
    session = session_for(made.SerializeToString(), None, SessionSettings(threads=1, optimization="disable"))
    return [np.asarray(a) for a in session.run(None, {"x": x})]


def ops(made: ModelProto) -> list[str]:
    return [node.op_type for node in made.graph.node]


FOLDED = [
    f"c = Conv(x, w)  y = {NORMALIZED.format('c')}",
    f"c = Conv<pads = [1, 1, 1, 1]>(x, w, b)  y = {NORMALIZED.format('c')}",
    f"c = Conv<group = 2>(x, grouped, b)  n = {NORMALIZED.format('c')}  y = Mul(n, each)",
    f"c = ConvTranspose<group = 2, strides = [2, 2]>(x, across, b)  y = {NORMALIZED.format('c')}",
    "c = Conv(x, w, b)  m = Mul(whole, c)  a = Add(m, two)  d = Div(a, each)  y = Sub(d, three)",
    "c = Conv(x, w)  y = Sub(each, c)",
    "c = Conv(x, w, b)  y = BatchNormalization(c, zero, shift, mean, variance)",
]
KEPT = [
    "c = Conv(x, w, b)  y = Div(each, c)",
    "c = Conv(x, w, b)  y = Mul(c, c)",
    "c = Conv(x, w, b)  y = BatchNormalization(c, tiny, shift, mean, variance)",
]


@pytest.mark.parametrize("body", FOLDED)
def test_what_scales_and_shifts_channels_is_folded(body: str) -> None:
    given, x = model(body), values(2, 4, 6, 7, seed=11)
    found = folded(given)
    assert len(ops(found)) == 1 and [o.name for o in found.graph.output] == ["y"]
    for want, have in zip(run(given, x), run(found, x), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("body", KEPT)
def test_what_is_no_scale_of_channels_stays(body: str) -> None:
    assert len(ops(folded(model(body)))) == 2


def test_a_division_by_zero_stays() -> None:
    given = model("c = Conv(x, w, b)  y = Div(c, zeros)")
    given.graph.initializer.append(numpy_helper.from_array(np.zeros((6, 1, 1), np.float32), "zeros"))
    assert ops(folded(given)) == ["Conv", "Div"]


def test_a_constant_along_a_line_stays() -> None:
    body = "c = Conv(x, w, b)  y = Add(c, lines)"
    assert ops(folded(model(body))) == ["Conv", "Add"]


def test_a_result_that_others_read_stays() -> None:
    body = f"c = Conv(x, w, b)  n = {NORMALIZED.format('c')}  y = Add(n, c)"
    assert ops(folded(model(body))) == ["Conv", "BatchNormalization", "Add"]


def test_a_weight_of_two_convolutions_is_left_for_the_other() -> None:
    body = f"c = Conv(x, w, b)  d = Conv(x, w, b)  n = {NORMALIZED.format('c')}  y = Add(n, d)"
    given, x = model(body), values(1, 4, 5, 5, seed=12)
    found = folded(given)
    assert ops(found) == ["Conv", "Conv", "Add"]
    np.testing.assert_allclose(run(found, x)[0], run(given, x)[0], rtol=1e-5, atol=2e-5)


def test_batch_statistics_are_not_folded() -> None:
    body = "c = Conv(x, w, b)  y, m, v = BatchNormalization<training_mode = 1>(c, gain, shift, mean, variance)"
    assert "BatchNormalization" in ops(folded(model(body)))


def test_weights_that_callers_may_override_are_not_folded() -> None:
    given = model(f"c = Conv(x, w, b)  y = {NORMALIZED.format('c')}")
    weight = next(t for t in given.graph.initializer if t.name == "w")
    given.graph.input.append(onnx.helper.make_tensor_value_info("w", weight.data_type, weight.dims))
    assert "BatchNormalization" in ops(folded(given))


def test_a_bias_that_changes_nothing_is_added() -> None:
    found = ir.from_proto(model("y = Conv(x, w)"))
    run_passes(found)
    proto = ir.to_proto(found)
    (bias,) = (numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == proto.graph.node[0].input[2])
    assert bias.shape == (6,) and not bias.any() and np.signbit(bias).all()
