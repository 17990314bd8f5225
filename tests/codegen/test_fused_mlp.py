"""Rows that go through a product in the task that makes them: two layers of a small perceptron."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from region_check import assert_alike, stock

import smelt
from smelt.runtime import Executable, SessionSettings

MLP = """(float[b,s,48] x) => (float[b,s,40] y) {
           p = MatMul(x, w1) q = Add(p, b1) r = Relu(q) t = MatMul(r, w2) y = %s }"""
TAILS = {
    "plain": "Add(t, b2)",
    "norm": "LayerNormalization(t, b2)",
    "softmax": "Softmax<axis=-1>(t)",
}
RNG = np.random.default_rng(5)


def model_of(text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {text}')
    for name, shape in weights.items():
        array = (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def layers(tail: str = "plain", wide: int = 72) -> onnx.ModelProto:
    return model_of(MLP % TAILS[tail], w1=(48, wide), b1=(wide,), w2=(wide, 40), b2=(40,))


def launches(compiled: smelt.CompiledModel) -> list[str]:
    assert compiled.result.generated is not None
    return [info.launcher for code in compiled.result.generated.codes for info in code.info]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("level", ["v2", "v3"])
def test_two_layers_are_one_launch(tail: str, level: str) -> None:
    model = layers(tail)
    with smelt.compile(model.SerializeToString(), force=True, levels=level, threads=1) as compiled:
        assert launches(compiled) == ["smelt_launch_gemm_mlp"] and not compiled.result.plan.fallbacks
        for shape in [(1, 1, 48), (1, 17, 48), (3, 5, 48), (2, 100, 48), (0, 4, 48), (700, 1, 48)]:
            x = RNG.standard_normal(shape).astype(np.float32)
            assert_alike(compiled.run({"x": x}), stock(model, [x]), f"{tail} {shape}", 2e-5, 2e-6)


def test_rows_do_not_depend_on_how_they_are_cut_or_on_threads() -> None:
    x = RNG.standard_normal((2, 90, 48)).astype(np.float32)
    with smelt.compile(layers().SerializeToString(), force=True, levels="v3", verify=False) as compiled:
        folder = compiled.result.artifact.directory
        whole = [Executable.open(folder, SessionSettings(threads=n)).run({"x": x})[0] for n in (1, 2, 4)]
        alone = compiled.run({"x": x[1:, 33:34]})[0]
    assert all(np.array_equal(one, whole[0]) for one in whole)
    np.testing.assert_allclose(alone[0, 0], whole[0][1, 33], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    model, x = layers("norm"), RNG.standard_normal((1, 40, 48)).astype(np.float32)
    x[0, 21, 3] = value
    with smelt.compile(model.SerializeToString(), force=True, levels="v3", verify=False) as compiled:
        assert_alike(compiled.run({"x": x}), stock(model, [x]), "not finite", 2e-5, 2e-6)


def test_a_hidden_layer_that_others_read_is_stored() -> None:
    text = """(float[b,s,48] x) => (float[b,s,40] y, float[b,s,72] h) {
                p = MatMul(x, w1) h = Relu(p) y = MatMul(h, w2) }"""
    twice = """(float[b,s,48] x) => (float[b,s,40] y, float[b,s,72] z) {
                 p = MatMul(x, w1) h = Relu(p) y = MatMul(h, w2) z = Softmax<axis=1>(h) }"""
    for one in (text, twice):
        model, x = model_of(one, w1=(48, 72), w2=(72, 40)), RNG.standard_normal((2, 9, 48)).astype(np.float32)
        with smelt.compile(model.SerializeToString(), force=True, levels="v3") as compiled:
            assert "smelt_launch_gemm_mlp" not in launches(compiled)
            assert_alike(compiled.run({"x": x}), stock(model, [x]), one, 2e-5, 2e-6)


def test_large_layers_stay_apart() -> None:
    with smelt.compile(layers(wide=4096).SerializeToString(), force=True, levels="v2", verify=False) as compiled:
        assert launches(compiled) == ["smelt_launch_gemm", "smelt_launch_gemm"]


def test_an_operand_that_comes_between_the_layers_is_awaited() -> None:
    """The second layer's residual needs what is computed after the first layer began."""
    text = """(float[b,s,48] x) => (float[b,s,40] y) {
                p = MatMul(x, w1) r = Relu(p) t = MatMul(r, w2)
                g = MatMul(x, w3) a = Softmax<axis=1>(g) y = Add(t, a) }"""
    model = model_of(text, w1=(48, 72), w2=(72, 40), w3=(48, 40))
    x = RNG.standard_normal((2, 33, 48)).astype(np.float32)
    with smelt.compile(model.SerializeToString(), force=True, levels="v3") as compiled:
        assert_alike(compiled.run({"x": x}), stock(model, [x]), "residual", 2e-5, 2e-6)


def test_a_masked_softmax_between_two_layers() -> None:
    """Columns of constant panels are never left out: nothing looks for NaN among the weights of the second layer."""
    text = """(float[b,s,48] x, float[b,s,72] m) => (float[b,s,40] y) {
                p = MatMul(x, w1) q = Add(p, m) r = Softmax<axis=-1>(q) y = MatMul(r, w2) }"""
    model = model_of(text, w1=(48, 72), w2=(72, 40))
    with smelt.compile(model.SerializeToString(), force=True, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for shape in [(1, 1), (2, 9), (1, 40)]:
            x = RNG.standard_normal((*shape, 48)).astype(np.float32)
            mask = np.where(RNG.random((*shape, 72)) < 0.5, np.float32(-1e30), np.float32(0))
            assert_alike(compiled.run({"x": x, "m": mask}), stock(model, [x, mask]), f"{shape}", 2e-5, 2e-6)
