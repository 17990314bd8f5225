"""The float64 reference of nodes: against ONNX Runtime and the ONNX suite, and where the onnx package is wrong."""

from pathlib import Path
from typing import Any

import cases
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.ops.recurrent_reference import lstm
from smelt.ops.reference import NoReferenceError, evaluate, evaluate_nodes

RNG = np.random.default_rng(0)
SKIPPED = ("bernoulli", "image_decoder", "castlike_FLOAT_to_DOUBLE", "castlike_DOUBLE_to_FLOAT", "scan_sum",
           "dynamicquantizelinear", "pool_3d_default")  # fmt: skip


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def suite() -> list[cases.Case]:
    every = [c for c in cases.all_cases() if c.opset in cases.OPSETS and c.types <= cases.SUPPORTED]
    return [c for c in every if not c.name.endswith("_expanded") and not any(s in c.name for s in SKIPPED)]


def test_the_suite_is_right_in_float64() -> None:
    wrong: dict[str, str] = {}
    for case in suite():
        try:
            run_wide(case)
        except Exception as error:
            wrong[case.name] = f"{type(error).__name__}: {error}"
    assert not wrong, f"{len(wrong)} wrong: {list(wrong.items())[:3]}"


def run_wide(case: cases.Case) -> None:
    model = ir.serde.deserialize_model(case.model)
    for inputs, outputs in case.data:
        env = {v: np.asarray(a) for v, a in zip(model.graph.inputs, inputs, strict=False)}
        evaluate_nodes(model.graph, env, model.opset_imports)
        for value, expected in zip(model.graph.outputs, outputs, strict=True):
            want, got = np.asarray(expected), env[value]
            assert got.shape == want.shape
            assert got.dtype == (np.float64 if want.dtype == np.float32 else want.dtype)
            np.testing.assert_allclose(got, want, rtol=max(case.rtol, 1e-5), atol=max(case.atol, 1e-6))


def check(op: str, inputs: list[np.ndarray | None], *, opset: int = 21, **attrs: Any) -> list[np.ndarray]:
    model = cases.node_model(op, inputs, opset=opset, attrs=attrs)
    made = evaluate(ir.serde.deserialize_model(model).graph.node(0), inputs, opset)
    answer = cases.by_ort(model, [a for a in inputs if a is not None])
    assert answer is not None
    for got, want in zip(made, answer, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return made


def test_elements_gathered_from_many_rows() -> None:
    indices = RNG.integers(-64, 64, (70, 64))
    for axis in (0, 1):
        check("GatherElements", [normal(100, 64), indices], axis=axis)


POOLS: list[dict[str, Any]] = [
    {}, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, {"strides": [2, 2], "ceil_mode": 1}, {"dilations": [2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID"}, {"pads": [0, 1, 1, 0], "ceil_mode": 1, "strides": [3, 2]},
]  # fmt: skip


@pytest.mark.parametrize("attrs", POOLS, ids=str)
def test_pools(attrs: dict[str, Any]) -> None:
    x = normal(2, 3, 9, 10)
    check("MaxPool", [x], opset=19, kernel_shape=[3, 3], **attrs)
    check("AveragePool", [x], opset=19, kernel_shape=[3, 3], **attrs)
    check("AveragePool", [x], opset=19, kernel_shape=[3, 3], count_include_pad=1, **attrs)


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 17, 19), (8, 3, 3, 5), {"group": 2, "pads": [1, 2, 0, 1], "strides": [2, 1], "dilations": [1, 2]}),
    ((1, 1, 16000), (8, 1, 512), {"strides": [64], "pads": [256, 256]}),
    ((2, 4, 9, 9), (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 5, 6, 7), (4, 3, 2, 3, 1), {"auto_pad": "SAME_LOWER"}),
    ((3, 2, 8), (3, 2, 3), {"auto_pad": "VALID"}),
]


@pytest.mark.parametrize(("x", "weight", "attrs"), CONVOLUTIONS, ids=str)
def test_convolutions(x: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check("Conv", [normal(*x), normal(*weight) / np.float32(np.sqrt(np.prod(weight[1:]))), normal(weight[0])], **attrs)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 4, 5)])
def test_a_maximum_over_a_line_or_an_image(shape: tuple[int, ...]) -> None:
    check("GlobalMaxPool", [normal(*shape)])


@pytest.mark.parametrize("bias", [True, False])
def test_grouped_transposed_convolution(bias: bool) -> None:
    inputs = [normal(1, 8, 5, 5), normal(8, 2, 3, 3), *([normal(8)] if bias else [])]
    check("ConvTranspose", inputs, group=4, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_the_matrix_form_before_opset_13(op: str) -> None:
    for axis in (0, 1, 2):
        check(op, [normal(2, 3, 4)], opset=11, axis=axis)


def test_ops_that_the_onnx_package_evaluates_wrongly() -> None:
    check("LpNormalization", [normal(4, 5)], p=1)
    check("LRN", [normal(2, 9, 4, 4)], size=3)
    check("BatchNormalization", [normal(2, 3, 4), normal(3), normal(3), normal(3), np.abs(normal(3))], opset=9)
    check("ReduceLogSumExp", [np.full((2, 3), -np.inf, np.float32)], keepdims=0)
    check("LogSoftmax", [np.array([[0, 1e4]], np.float32)])
    check("Scatter", [normal(3, 4), np.array([[1, 0]]), normal(1, 2)], opset=10, axis=1)


def test_a_cast_to_a_narrow_float_keeps_all_digits() -> None:
    model = cases.node_model("Cast", [normal(3)], attrs={"to": TensorProto.FLOAT16})
    x = np.array([1 / 3, 1e300, -2.5])
    made = evaluate(ir.serde.deserialize_model(model).graph.node(0), [x], 21)
    assert made[0].dtype == np.float64
    np.testing.assert_array_equal(made[0], x)


def test_without_wide_the_declared_precision_is_kept() -> None:
    model = cases.node_model("Exp", [normal(3)])
    made = evaluate(ir.serde.deserialize_model(model).graph.node(0), [normal(3)], 21, wide=False)
    assert made[0].dtype == np.float32


def test_random_nodes_and_unknown_ops_have_no_reference() -> None:
    random = cases.node_model("RandomNormalLike", [normal(3)])
    unknown = cases.node_model("Unheard", [normal(3)], domain="somewhere.else")
    for model in (random, unknown):
        with pytest.raises(NoReferenceError):
            evaluate(ir.serde.deserialize_model(model).graph.node(0), [normal(3)], 1)


def branching_model() -> onnx.ModelProto:
    half = helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5)))
    then = helper.make_graph([half, helper.make_node("Mul", ["sum", "half"], ["a"])], "then", [],
                             [helper.make_tensor_value_info("a", TensorProto.FLOAT, [2])])  # fmt: skip
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "else", [],
                              [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])])  # fmt: skip
    nodes = [
        helper.make_node("Add", ["x", "one"], ["sum"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
         helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.float32(1) * np.ones(2, np.float32), "one")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_read_outer_values_in_float64(flag: bool) -> None:
    model = ir.serde.deserialize_model(branching_model())
    x = np.array([1 / 3, 2 / 3])
    env = dict(zip(model.graph.inputs, [x, np.array(flag)], strict=True))
    evaluate_nodes(model.graph, env, model.opset_imports)
    np.testing.assert_array_equal(env[model.graph.outputs[0]], (x + 1) * 0.5 if flag else -x)


HELD = """<ir_version: 9, opset_import: ["" : 17]> g (bool c, float[3] x) => (float[3] y) {
  y = If(c) <
    then_branch = t () => (float[3] a) <float[3] w = {1, 2, 3}> { a = Mul(x, w) },
    else_branch = e () => (float[3] b) <float[3] v = {4, 5, 6}> { b = Add(x, v) } > }"""
LOOPED = """<ir_version: 9, opset_import: ["" : 17]> g (bool c, float[3] x) => (float[3] y) {
  n = Constant<value = int64 {2}>()
  y = Loop(n, c, x) <body = b (int64 i, bool on, float[3] s) => (bool more, float[3] t)
    <float[3] w = {1, 2, 3}> { more = Identity(on)  t = Mul(s, w) }> }"""


@pytest.mark.parametrize(("text", "factors"), [(HELD, [1, 2, 3]), (LOOPED, [1, 4, 9])])
def test_weights_of_bodies_may_lie_in_files(text: str, factors: list[int], tmp_path: Path) -> None:
    """As they do in the models that verification reads."""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    inner = [a.as_graph() for n in model.graph for a in n.attributes.values() if a.type == ir.AttributeType.GRAPH]
    for place, value in enumerate(v for graph in inner for v in graph.initializers.values()):
        (tmp_path / f"{place}").write_bytes(value.const_value.tobytes())
        tensor = value.const_value
        value.const_value = ir.ExternalTensor(
            f"{place}", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=value.name, base_dir=tmp_path
        )
    x = normal(3)
    env = {model.graph.inputs[0]: np.array(True), model.graph.inputs[1]: x}
    evaluate_nodes(model.graph, env, model.opset_imports)
    np.testing.assert_array_equal(env[model.graph.outputs[0]], x.astype(np.float64) * factors)


def test_evaluation_leaves_the_model_alone() -> None:
    inputs = [normal(1, 8, 5, 5), normal(8, 2, 3, 3)]
    model = ir.serde.deserialize_model(cases.node_model("ConvTranspose", inputs, attrs={"group": 4}))
    uses = [len(list(v.uses())) for v in model.graph.inputs]
    evaluate(model.graph.node(0), inputs, 21)
    assert [len(list(v.uses())) for v in model.graph.inputs] == uses


def test_an_infinite_cell_without_a_peephole_stays_infinite() -> None:
    hidden = 2
    w, r = np.full((1, 4 * hidden, 3), 0.1, np.float32), np.full((1, 4 * hidden, hidden), 0.1, np.float32)
    x, h0 = np.ones((1, 1, 3), np.float32), np.zeros((1, 1, hidden), np.float32)
    c0 = np.array([[[np.inf, -np.inf]]], np.float32)
    y, _, c = lstm(x, w, r, None, None, h0, c0, hidden_size=hidden)
    assert c.reshape(-1).tolist() == [np.inf, -np.inf] and np.isfinite(y).all()


@pytest.mark.parametrize("pads", [[0, -2, 1, 0], [-1, 1, 0, -3], [0, -2, 0, -1]])
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_negative_pads_crop(pads: list[int], mode: str) -> None:
    check("Pad", [normal(4, 6), np.array(pads), np.array(7, np.float32)], mode=mode)


@pytest.mark.parametrize(
    ("length", "step", "window", "onesided"), [(16, 16, True, 1), (40, 7, True, 1), (33, 4, False, 1), (40, 8, True, 0)]
)
def test_fourier_transforms_of_one_frame_and_of_many(length: int, step: int, window: bool, onesided: int) -> None:
    frame = np.array(16)
    taps = np.hanning(16).astype(np.float32) if window else None
    check("STFT", [normal(2, length, 1), np.array(step), taps, frame], onesided=onesided)


def test_a_scan_along_other_axes() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[2] s, float[2,5] x) => (float[2] t, float[2,5] y) {
      t, y = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
        body = b (float[2] a, float[2] c) => (float[2] d, float[2] e) { d = Add(a, c)  e = Identity(d) }>(s, x) }"""
    model = onnx.parser.parse_model(text)
    inputs = [normal(2), normal(2, 5)]
    wanted = cases.by_ort(model, inputs)
    made = evaluate(ir.serde.deserialize_model(model).graph.node(0), inputs, 17)
    assert wanted is not None
    for got, want in zip(made, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)  # sums in float32
