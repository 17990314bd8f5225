"""DynamicQuantizeLSTM against stock and against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.codegen.test_int8_graphs import I8, U8, functions

import smelt

MICROSOFT = "com.microsoft"
STATES = {"h0": 5, "c0": 6}  # their places among the inputs


def _model(
    dtype: type, direction: str, several: bool, more: bool, sizes: tuple[int, int] = (20, 24), **attributes: object
) -> onnx.ModelProto:
    """`more`: a bias, peepholes and initial states."""
    rng, (width, hidden) = np.random.default_rng([len(direction), several]), sizes
    many = 2 if direction == "bidirectional" else 1
    low, high = (-60, 60) if dtype is I8 else (70, 190)
    shape: tuple[int, ...] = (many, 4 * hidden) if several else (many,)
    zero = np.zeros(shape, I8) if dtype is I8 else np.full(shape, 128, U8)
    arrays = {
        "w": rng.integers(low, high, (many, width, 4 * hidden)).astype(dtype),
        "r": rng.integers(low, high, (many, hidden, 4 * hidden)).astype(dtype),
        "ws": rng.uniform(0.002, 0.006, shape).astype(np.float32), "wz": zero,
        "rs": rng.uniform(0.002, 0.006, shape).astype(np.float32), "rz": zero,
    }  # fmt: skip
    if more:
        arrays["b"] = rng.standard_normal((many, 8 * hidden)).astype(np.float32) / 4
        arrays["p"] = rng.standard_normal((many, 3 * hidden)).astype(np.float32) / 4
    names = ["x", "w", "r", "b" if more else "", "", "h0" if more else "", "c0" if more else "", "p" if more else ""]
    node = helper.make_node(
        "DynamicQuantizeLSTM", [*names, "ws", "wz", "rs", "rz"], ["y", "yh", "yc"], domain=MICROSOFT,
        hidden_size=hidden, direction=direction, **attributes,
    )  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "rows", width])]
    if more:
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, [many, "rows", hidden]) for n in STATES]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "yh", "yc")]
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(v, n) for n, v in arrays.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _feeds(model: onnx.ModelProto, steps: int, rows: int) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(5), {"steps": steps, "rows": rows}
    return {
        given.name: rng.standard_normal(
            [sizes.get(d.dim_param, d.dim_value) for d in given.type.tensor_type.shape.dim]
        ).astype(np.float32) * 0.6
        for given in model.graph.input
    }  # fmt: skip


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize(
    ("dtype", "direction", "several", "more"),
    [(I8, "forward", False, False), (U8, "reverse", True, True), (I8, "bidirectional", True, True)],
)
def test_a_quantized_lstm(dtype: type, direction: str, several: bool, more: bool, level: str) -> None:
    """A state near a tie is quantized one step apart: a step is about 2/255 of a state, and fades."""
    model = _model(dtype, direction, several, more)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    stock = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
        assert not compiled.result.plan.fallbacks
        assert functions(compiled) == ["smelt_int8_lstm"]
        for steps, rows in ((1, 1), (9, 1), (6, 3)):
            feeds = _feeds(model, steps, rows)
            for got, wanted in zip(compiled.run(feeds), stock.run(None, feeds), strict=True):
                assert got.shape == wanted.shape
                apart = np.abs(got - wanted)
                assert apart.max() < 0.01
                assert np.median(apart) < 1e-4
        assert [not made.any() for made in compiled.run(_feeds(model, 0, 2))] == [True] * 3


def test_sizes_that_fill_no_group_or_panel() -> None:
    model = _model(I8, "forward", False, True, (7, 5))
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=True, threads=1) as compiled:
        assert functions(compiled) == ["smelt_int8_lstm"]
        feeds = _feeds(model, 4, 1)
        for got, wanted in zip(compiled.run(feeds), stock.run(None, feeds), strict=True):
            assert np.abs(got - wanted).max() < 0.02


@pytest.mark.parametrize("attributes", [{"clip": 0.5}, {"input_forget": 1}, {"activations": ["Tanh", "Tanh", "Tanh"]}])
def test_other_forms_stay_with_stock(attributes: dict[str, object]) -> None:
    model = _model(I8, "forward", False, False, **attributes)  # type: ignore[arg-type]
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert [left.node.op_type for left in compiled.result.plan.fallbacks] == ["DynamicQuantizeLSTM"]
