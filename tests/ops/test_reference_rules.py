"""Rules in numpy say what the onnx package says, and are used where they know the form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from smelt.ops.reference import _by_onnx, evaluate
from smelt.ops.reference_rules import RULES

UNARY = ("Exp", "Relu", "Sigmoid", "Sqrt", "Tanh", "HardSigmoid", "GlobalAveragePool")
BINARY = ("Add", "Sub", "Mul", "Div")


def node(op: str, count: int, **attributes) -> ir.Node:
    inputs = [ir.Value(name=f"i{n}") for n in range(count)]
    return ir.node(op, inputs, attributes, outputs=[ir.Value(name="y")])


def both(op: str, arrays, **attributes):
    made = node(op, len(arrays), **attributes)
    rule = RULES[op](arrays, attributes)
    assert rule is not None
    return rule, _by_onnx(made, arrays, 17, True, {})[0]


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_operand(op: str):
    x = np.random.default_rng(0).normal(0, 3, (2, 3, 5, 4))
    x.flat[:4] = [np.inf, -np.inf, 0, 800]
    with np.errstate(all="ignore"):
        ours, theirs = both(op, [np.abs(x) if op == "Sqrt" else x])
    np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_operands_broadcast(op: str):
    random = np.random.default_rng(1)
    ours, theirs = both(op, [random.normal(size=(3, 1, 4)), random.normal(size=(2, 1))])
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("op", BINARY)
def test_integers_and_old_broadcasts_are_left_to_the_onnx_package(op: str):
    assert RULES[op]([np.arange(3), np.arange(1, 4)], {}) is None
    assert RULES[op]([np.ones(3), np.ones(3)], {"axis": 1, "broadcast": 1}) is None


@pytest.mark.parametrize("array", [np.float32([[1.5, -2]]), np.arange(3), np.array(True)])
def test_constants_that_are_tensors(array):
    made = node("Constant", 0, value=ir.tensor(array))
    given = RULES["Constant"]([], {"value": array})
    assert given is not None
    for wide in (False, True):
        ours, theirs = evaluate(made, [], 17, wide=wide)[0], _by_onnx(made, [], 17, wide, {})[0]
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)
    assert RULES["Constant"]([], {"value_floats": [1.0]}) is None


@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_convolutions(multiplier: int, strides: tuple[int, int]):
    random = np.random.default_rng(3)
    x, weight, bias = random.normal(size=(2, 3, 9, 8)), random.normal(size=(3 * multiplier, 1, 3, 2)), np.arange(3.0)
    given = {"group": 3, "strides": list(strides), "dilations": [2, 1], "pads": [1, 0, 2, 1]}
    ours, theirs = both("Conv", [x, weight, np.tile(bias, multiplier)], **given)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_convolutions_in_parts_that_threads_share(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(3)
    x, weight = random.normal(size=(2, 6, 19, 8)), random.normal(size=(4, 3, 3, 3))
    given = {"group": 2, "strides": [2, 1], "pads": [1, 1, 1, 1]}
    at_once = RULES["Conv"]([x, weight], given)
    monkeypatch.setattr("smelt.ops.reference_rules._BLOCK_ELEMENTS", 3 * 6 * 9 * 8)
    in_parts, theirs = both("Conv", [x, weight], **given)
    np.testing.assert_allclose(in_parts, at_once, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(in_parts, theirs, rtol=1e-12, atol=1e-12)


def test_clip_with_one_limit_or_none():
    x = np.linspace(-4, 4, 9)
    np.testing.assert_array_equal(RULES["Clip"]([x, np.array(-1.0), np.array(2.0)], {}), np.clip(x, -1, 2))
    np.testing.assert_array_equal(RULES["Clip"]([x, None, np.array(2.0)], {}), np.minimum(x, 2))
    np.testing.assert_array_equal(RULES["Clip"]([x], {}), x)
    assert RULES["Clip"]([x], {"min": 0.0}) is None


def test_batch_normalization_with_given_statistics():
    random = np.random.default_rng(2)
    arrays = [random.normal(size=(2, 3, 4)), *random.normal(size=(3, 3)), random.uniform(0.5, 2, 3)]
    ours, theirs = both("BatchNormalization", arrays, epsilon=1e-3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    assert RULES["BatchNormalization"](arrays, {"training_mode": 1}) is None


@st.composite
def transposed(draw):
    rank = draw(st.integers(1, 2))
    sizes = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    kernel, strides, dilations = sizes(1, 3), sizes(1, 3), sizes(1, 2)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, r - 1)) for r in (*reach, *reach))
    more = tuple(draw(st.integers(0, s - 1)) for s in strides)
    return {
        "shape": (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes(2, 5)),
        "outer": draw(st.integers(1, 3)),
        "kernel": kernel,
        "attributes": {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": more},
    }


@settings(max_examples=60, deadline=None, derandomize=True)
@given(transposed())
def test_transposed_convolutions(case):
    random = np.random.default_rng(3)
    x = random.normal(size=case["shape"])
    weight = random.normal(size=(case["shape"][1], case["outer"], *case["kernel"]))
    bias = random.normal(size=case["outer"])
    attributes = case["attributes"]
    ours = RULES["ConvTranspose"]([x, weight, bias], attributes)
    if ours is None:  # no element is left between the pads
        return
    made = node("ConvTranspose", 3, **attributes)
    theirs = _by_onnx(made, [x, weight, bias], 17, True, {})[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def test_groups_of_a_transposed_convolution_are_convolutions_of_their_own():
    random = np.random.default_rng(4)
    x, weight = random.normal(size=(2, 4, 5, 5)), random.normal(size=(4, 3, 3, 2))
    whole = evaluate(node("ConvTranspose", 2, group=2, strides=(2, 1)), [x, weight], 17)[0]
    parts = [
        evaluate(node("ConvTranspose", 2, strides=(2, 1)), [x[:, s], weight[s]], 17)[0]
        for s in (slice(0, 2), slice(2, 4))
    ]
    np.testing.assert_allclose(whole, np.concatenate(parts, 1), rtol=1e-13)


@settings(max_examples=150, deadline=None)
@given(
    op=st.sampled_from(("MaxPool", "AveragePool")),
    sides=st.lists(
        st.tuples(
            st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)
        ),
        min_size=1,
        max_size=2,
    ),
    ceil=st.booleans(),
    counted=st.booleans(),
)  # fmt: skip
def test_pools_have_the_windows_that_stock_gives_them(op: str, sides, ceil: bool, counted: bool):
    """Also where a window exceeds the padded image by less than a stride."""
    sizes, kernel, strides, before, after = map(list, zip(*sides, strict=True))
    attributes: dict[str, object] = {
        "kernel_shape": kernel, "strides": strides, "pads": [*before, *after], "ceil_mode": int(ceil),
    }  # fmt: skip
    if op == "AveragePool":
        attributes["count_include_pad"] = int(counted)
    pool = helper.make_node(op, ["x"], ["y"], **attributes)
    x = np.random.default_rng(0).normal(size=(2, 3, *sizes)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    graph = helper.make_graph([pool], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    try:
        stock = ort.InferenceSession(model.SerializeToString(), quiet()).run(None, {"x": x})[0]
    except Exception:  # padding as large as the kernel, a window behind the image
        return
    if stock.size == 0:
        return
    with np.errstate(all="ignore"):
        found = RULES[op]([x.astype(np.float64)], attributes)
    assert found is not None and found.shape == stock.shape
    seen = np.isfinite(found)  # windows of padding alone have rules of their own
    np.testing.assert_allclose(found[seen], stock[seen], rtol=1e-5, atol=1e-6)


def quiet() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return options
