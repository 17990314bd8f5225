"""A hundred thousand random cases: integer kernels of every level agree with numpy in int64, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.codegen.test_int8_bytes import expected_stack, stacks
from tests.codegen.test_int8_graphs import I8, U8, functions

import smelt
from smelt.base.target import host_features

KINDS = {U8: TensorProto.UINT8, I8: TensorProto.INT8}
PAIRS = [(U8, I8), (I8, I8), (U8, U8), (I8, U8)]
NEEDED = {"v2": "sse4_2", "v3": "avx2", "v4": "avx512bw"}
LEVELS = [level for level, feature in NEEDED.items() if feature in host_features()]
CASES = {"products": 3000, "stacks": 1600, "convolutions": 120}  # of each of 4, 8 and 80 models: 34,400 a level


def _numbers(rng: np.random.Generator, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Of the whole range, near its ends, or all at one end."""
    info = np.iinfo(dtype)
    form = rng.integers(4)
    if form == 0:
        return np.full(shape, (info.min, info.max)[rng.integers(2)], dtype)
    if form == 1:
        return rng.choice([info.min, info.max, 0], shape).astype(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def _model(
    node: onnx.NodeProto, inputs: dict[str, tuple[int, list[object]]], result: int, *constants: onnx.TensorProto
) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", result, None)]
    graph = helper.make_graph([node], "g", values, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _sizes(rng: np.random.Generator, most: int) -> int:
    return int(rng.integers(0, most) if rng.random() < 0.2 else rng.integers(1, 1 + int(most ** rng.random())))


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("types", PAIRS)
def test_many_products(level: str, types: tuple[type, type]) -> None:
    """Any sizes and zero points; matrices that come at run time."""
    rng, (left, right) = np.random.default_rng([1, PAIRS.index(types)]), types
    inputs = {
        "a": (KINDS[left], ["m", "k"]),
        "b": (KINDS[right], ["k", "n"]),
        "p": (KINDS[left], []),
        "q": (KINDS[right], []),
    }
    model = _model(helper.make_node("MatMulInteger", list("abpq"), ["y"]), inputs, TensorProto.INT32)
    with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
        assert not compiled.result.plan.fallbacks
        for _ in range(CASES["products"]):
            m, k, n = _sizes(rng, 40), _sizes(rng, 300), _sizes(rng, 90)
            a, b = _numbers(rng, left, (m, k)), _numbers(rng, right, (k, n))
            p, q = _numbers(rng, left, ()), _numbers(rng, right, ())
            (got,) = compiled.run({"a": a, "b": b, "p": p, "q": q})
            np.testing.assert_array_equal(got, (a.astype(np.int64) - int(p)) @ (b.astype(np.int64) - int(q)))


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("types", PAIRS)
def test_many_stacks(level: str, types: tuple[type, type], transposed: bool) -> None:
    rng = np.random.default_rng([2, PAIRS.index(types), transposed])
    zeros = tuple(int(_numbers(rng, dtype, ())) for dtype in types)
    model = stacks(types, (zeros[0], zeros[1]), transposed)
    with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
        assert functions(compiled) == ["smelt_int8_stack"]
        for _ in range(CASES["stacks"]):
            m, k, n = _sizes(rng, 40), _sizes(rng, 140), _sizes(rng, 70)
            a, b = _numbers(rng, types[0], (2, 3, m, k)), _numbers(rng, types[1], (2, 3, k, n))
            given = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if transposed else b
            (got,) = compiled.run({"a": a, "b": given})
            np.testing.assert_array_equal(got, expected_stack(a, b, (zeros[0], zeros[1]), False))


def _convolutions(seed: int) -> Iterator[tuple[onnx.ModelProto, dict[str, object], np.ndarray, int, int, type]]:
    """Twenty of one pair of types: dense, grouped, depthwise; one or two axes; strides, dilations, padding."""
    left, right = PAIRS[seed]
    rng = np.random.default_rng([3, seed])
    for place in range(20):
        axes, groups = (1 if place % 5 == 4 else 2), int(rng.choice([1, 1, 2, 4]))
        each = int(rng.choice([1, 3, 4, 8, 16, 20]))
        depthwise = place % 4 == 3
        channels, filters = (each * 3, each * 3) if depthwise else (groups * each, groups * int(rng.choice([4, 8, 20])))
        groups = channels if depthwise else groups
        kernel = [int(rng.integers(1, 5)) for _ in range(axes)]
        attributes: dict[str, object] = {
            "group": groups, "strides": [int(rng.integers(1, 4)) for _ in kernel], "kernel_shape": kernel,
            "dilations": [int(rng.integers(1, 3)) for _ in kernel],
            "pads": [int(rng.integers(0, 3)) for _ in kernel * 2],
        }  # fmt: skip
        w = _numbers(rng, right, (filters, channels // groups, *kernel))
        zeros = int(_numbers(rng, left, ())), int(_numbers(rng, right, ()))
        constants = [
            numpy_helper.from_array(v, n) for n, v in (("w", w), ("p", left(zeros[0])), ("q", right(zeros[1])))
        ]
        node = helper.make_node("ConvInteger", ["x", "w", "p", "q"], ["y"], **attributes)
        shape: list[object] = ["n", channels, *["h", "v"][:axes]]
        yield _model(node, {"x": (KINDS[left], shape)}, TensorProto.INT32, *constants), attributes, w, *zeros, left


def _expected(x: np.ndarray, w: np.ndarray, zeros: tuple[int, int], attributes: dict[str, object]) -> np.ndarray:
    """Padding is the zero point."""
    pads, kernel = list(attributes["pads"]), list(attributes["kernel_shape"])  # type: ignore[call-overload]
    strides, dilations, groups = list(attributes["strides"]), list(attributes["dilations"]), int(attributes["group"])  # type: ignore[call-overload]
    axes = len(kernel)
    image = np.pad(x.astype(np.int64) - zeros[0], [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    wide = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(image, wide, axis=tuple(range(2, 2 + axes)))
    steps = tuple(slice(None, None, s) for s in strides)
    taps = tuple(slice(None, None, d) for d in dilations)
    seen = seen[(slice(None), slice(None), *steps, *taps)]
    out = seen.shape[2 : 2 + axes]
    split = seen.reshape(len(x), groups, -1, *seen.shape[2:])
    weights = (w.astype(np.int64) - zeros[1]).reshape(groups, -1, *w.shape[1:])
    letters = "uv"[:axes], "ij"[:axes]
    made = np.einsum(f"ngc{letters[0]}{letters[1]},gmc{letters[1]}->ngm{letters[0]}", split, weights)
    return made.reshape(len(x), len(w), *out)


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(len(PAIRS)))
def test_many_convolutions(level: str, seed: int) -> None:
    rng = np.random.default_rng([4, seed])
    for model, attributes, w, p, q, left in _convolutions(seed):
        spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], attributes["dilations"], strict=True)]  # type: ignore[call-overload]
        with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
            assert not compiled.result.plan.fallbacks
            for _ in range(CASES["convolutions"]):
                sizes = [int(rng.integers(span, span + 12)) for span in spans]
                x = _numbers(rng, left, (int(rng.integers(1, 3)), w.shape[1] * int(attributes["group"]), *sizes))  # type: ignore[call-overload]
                (got,) = compiled.run({"x": x})
                np.testing.assert_array_equal(got, _expected(x, w, (p, q), attributes), str(attributes))


@pytest.mark.parametrize("level", LEVELS)
def test_sums_of_pairs_that_saturate_elsewhere_are_exact(level: str) -> None:
    """255 * -128 + 255 * -128 is no int16: products of unsigned by signed bytes that add up pairs give -32768."""
    a, w = np.full((2, 64), 255, U8), np.full((64, 32), -128, I8)
    assert -32768 > 255 * -128 * 2
    model = _model(
        helper.make_node("MatMulInteger", ["a", "w"], ["y"]), {"a": (TensorProto.UINT8, ["m", 64])}, TensorProto.INT32,
        numpy_helper.from_array(w, "w"),
    )  # fmt: skip
    with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
        np.testing.assert_array_equal(compiled.run({"a": a})[0], np.full((2, 32), 64 * 255 * -128))
