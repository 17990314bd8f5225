"""Between 8-bit layers tensors stay bytes: moved ones, functions of one number, products of two of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tests.codegen.test_int8_graphs import I8, U8, Graph, check, functions, image

import smelt

LEVELS = ("v2", "v3", "v4")


def at_levels(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The first result, of a library that has one level alone, level by level."""
    results = []
    for level in LEVELS:
        with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
            assert not compiled.result.plan.fallbacks
            results.append(compiled.run(feeds)[0])
    return results


def linear(g: Graph, x: str, depth: int, columns: int, scales: tuple[float, float], dtype: type = U8) -> str:
    """MatMul, quantized; plus a bias, quantized again: as quantizers write a Linear of three axes."""
    w, _ = g.weights(depth, columns, axis=1)
    product = g.quantized(g.node("MatMul", x, w), scales[0], 7 if dtype is I8 else 120, dtype)
    bias = g.constant(g.rng.standard_normal(columns).astype(np.float32))
    return g.quantized(g.node("Add", product, bias), scales[1], -3 if dtype is I8 else 131, dtype)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("columns", [36, 64, 5])
def test_a_bias_behind_a_quantized_product_joins_it(dtype: type, columns: int) -> None:
    g = Graph(20)
    y = linear(g, g.quantized("x", 0.03, 5, dtype), 24, columns, (0.03, 0.043), dtype)
    check(g.model(["batch", 9, 24], y), image(3, 9, 24), ["smelt_int8_conv"], 0.043)


def test_a_residual_joins_behind_a_bias() -> None:
    g = Graph(21)
    x = g.quantized("x", 0.03, 120)
    y = g.quantized(g.node("Add", linear(g, x, 32, 32, (0.03, 0.041)), x), 0.05, 110)
    check(g.model(["batch", 9, 32], y), image(3, 9, 32), ["smelt_int8_conv"], 0.05)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("columns", [64, 40, 7])
def test_a_function_of_one_number_is_a_table(dtype: type, columns: int) -> None:
    """Whole and partial tiles, either type, with the same bytes at every level."""
    g = Graph(22)
    made = linear(g, g.quantized("x", 0.03, 5, dtype), 24, columns, (0.03, 0.03), dtype)
    y = g.quantized(g.node("Sigmoid", g.node("Mul", made, g.constant(np.float32(1.7)))), 0.005, -100, I8) if (
        dtype is I8
    ) else g.quantized(g.node("Tanh", made), 0.008, 128)  # fmt: skip
    model, feeds = g.model(["batch", 24], y), image(29, 24)
    check(model, feeds, ["smelt_int8_conv"], 0.008)
    first, *others = at_levels(model, feeds)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_a_number_that_two_nodes_read_keeps_its_own_bytes() -> None:
    g = Graph(23)
    made = linear(g, g.quantized("x", 0.03, 120), 24, 32, (0.03, 0.03))
    y = g.node("Add", g.quantized(g.node("Tanh", made), 0.008, 128), made)
    model, feeds = g.model([5, 24], y), image(5, 24)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        (got,) = compiled.run(feeds)
    assert np.abs(got - expected).max() < 0.0381


def test_moved_bytes_stay_bytes() -> None:
    """A table joins the layer across Reshape and Transpose; Concat of equal steps, Slice and Squeeze move bytes."""
    g = Graph(24)
    x = g.quantized("x", 0.03, 120)
    made = [linear(g, x, 24, 32, (0.03, 0.03)) for _ in range(2)]
    heads = g.quantized(g.node("Reshape", made[0], g.constant(np.int64([0, 0, 4, 8]))), 0.03, 131)
    turned = g.quantized(g.node("Transpose", heads, perm=[0, 2, 1, 3]), 0.03, 131)
    scaled = g.quantized(g.node("Mul", turned, g.constant(np.float32(0.35))), 0.012, 99)
    joined = g.quantized(g.node("Concat", made[1], made[1], axis=1), 0.03, 131)
    part = g.node("Slice", joined, *(g.constant(np.int64([v])) for v in (2, 8, 1)))
    y = g.node("MatMul", scaled, g.quantized(g.node("Reshape", part, g.constant(np.int64([-1, 1, 8, 24]))), 0.03, 131))
    model, feeds = g.model(["batch", 6, 24], g.quantized(y, 0.09, 120)), image(2, 6, 24)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert functions(compiled)[:2] == ["smelt_int8_conv"] * 2
        (got,) = compiled.run(feeds)
    assert np.abs(got - expected).max() < 0.0901


# products of two quantized tensors


def stacks(dtypes: tuple[type, type], zeros: tuple[int, int], transposed: bool) -> onnx.ModelProto:
    """Bytes a [.., m, k] times b [.., k, n], or b [.., n, k] transposed."""
    names = {U8: TensorProto.UINT8, I8: TensorProto.INT8}
    g = Graph(25)
    step = [g.constant(np.float32(v)) for v in (0.02, 0.03, 0.9)]
    middle = [g.constant(dtype(zero)) for dtype, zero in zip((*dtypes, U8), (*zeros, 128), strict=True)]
    a = g.node("DequantizeLinear", "a", step[0], middle[0])
    b = g.node("DequantizeLinear", "b", step[1], middle[1])
    if transposed:
        b = g.node("Transpose", b, perm=[0, 1, 3, 2])
    y = g.node("QuantizeLinear", g.node("MatMul", a, b), step[2], middle[2])
    inputs = [helper.make_tensor_value_info(n, names[t], [f"{n}{i}" if i else "s" for i in range(4)])
              for n, t in zip("ab", dtypes, strict=True)]  # fmt: skip
    inputs[1].type.tensor_type.shape.dim[0].dim_param = "s"
    for axis in (0, 1):
        inputs[0].type.tensor_type.shape.dim[axis].dim_value = (2, 3)[axis]
        inputs[1].type.tensor_type.shape.dim[axis].dim_value = (2, 3)[axis]
    inner = 3 if transposed else 2
    inputs[0].type.tensor_type.shape.dim[3].dim_param = "k"
    inputs[1].type.tensor_type.shape.dim[inner].dim_param = "k"
    graph = helper.make_graph(
        g.nodes, "g", inputs, [helper.make_tensor_value_info(y, TensorProto.UINT8, None)], g.constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def expected_stack(a: np.ndarray, b: np.ndarray, zeros: tuple[int, int], transposed: bool) -> np.ndarray:
    wide = [x.astype(np.int64) - zero for x, zero in zip((a, b), zeros, strict=True)]
    total = wide[0] @ (np.swapaxes(wide[1], -1, -2) if transposed else wide[1])
    factor = np.float32(np.float32(0.02) * np.float32(0.03)) / np.float32(0.9)
    return np.clip(np.rint(total.astype(np.float32) * factor) + 128, 0, 255).astype(U8)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("dtypes", "zeros"), [((U8, U8), (3, 140)), ((U8, I8), (255, -128)), ((I8, I8), (-7, 0)), ((I8, U8), (0, 0))]
)
def test_products_of_two_quantized_tensors(dtypes: tuple[type, type], zeros: tuple[int, int], transposed: bool) -> None:
    """Bit by bit at every level: sizes around tiles, groups and panels, and the extremes of both types."""
    model, rng = stacks(dtypes, zeros, transposed), np.random.default_rng(9)
    info = [np.iinfo(dtype) for dtype in dtypes]
    for level in LEVELS:
        with smelt.compile(model, force=True, verify=False, threads=1, levels=[level]) as compiled:
            assert functions(compiled) == ["smelt_int8_stack"]
            for m, k, n in [
                (1, 1, 1),
                (13, 7, 17),
                (12, 64, 32),
                (25, 66, 47),
                (5, 4, 16),
                (3, 0, 2),
                (0, 5, 3),
                (40, 130, 50),
            ]:
                a, b = (
                    rng.integers(i.min, i.max + 1, (2, 3, *s)).astype(t)
                    for i, t, s in zip(info, dtypes, ((m, k), (k, n)), strict=True)
                )
                if k == 130:
                    a[0], b[0] = info[0].max, info[1].min
                    a[1], b[1] = info[0].min, info[1].max
                given = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if transposed else b
                (got,) = compiled.run({"a": a, "b": given})
                np.testing.assert_array_equal(got, expected_stack(a, b, zeros, False), f"{level} {m} {k} {n}")


def test_attention_runs_on_bytes() -> None:
    """As onnxruntime.quantization writes it: every tensor quantized, restored and quantized again."""
    g = Graph(26)
    x = g.quantized("x", 0.03, 120)
    heads = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        made = linear(g, x, 32, 32, (0.03, 0.035))
        split = g.quantized(g.node("Reshape", made, g.constant(np.int64([0, 0, 4, 8]))), 0.035, 131)
        heads.append(g.quantized(g.node("Transpose", split, perm=perm), 0.035, 131))
    scores = g.quantized(g.node("MatMul", *heads[:2]), 0.2, 125)
    shares = g.quantized(g.node("Softmax", scores, axis=-1), 1 / 255, 0)
    mixed = g.quantized(g.node("MatMul", shares, heads[2]), 0.03, 128)
    flat = g.node(
        "Reshape",
        g.quantized(g.node("Transpose", mixed, perm=[0, 2, 1, 3]), 0.03, 128),
        g.constant(np.int64([0, 0, 32])),
    )
    y = linear(g, flat, 32, 24, (0.03, 0.04))
    model, feeds = g.model(["batch", "length", 32], y), image(2, 21, 32)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert sorted(functions(compiled)) == ["smelt_int8_conv"] * 4 + ["smelt_int8_stack"] * 2
        (got,) = compiled.run(feeds)
    apart = np.abs(got - expected) / 0.04
    assert apart.max() < 2.01
    assert (apart > 0.01).mean() < 0.02
    first, *others = at_levels(model, feeds)
    for other in others:
        assert np.abs(other - first).max() / 0.04 < 1.01
        assert (other != first).mean() < 0.01


# bad scales


def odd(scale: float, place: str) -> onnx.ModelProto:
    """A layer with a bias, a table and a product of two tensors; one of the scales is odd."""
    g, scales = Graph(27), {"x": 0.03, "product": 0.03, "bias": 0.04, "table": 0.01, "stack": 0.2}
    scales[place] = scale
    made = linear(g, g.quantized("x", scales["x"], 120), 24, 24, (scales["product"], scales["bias"]))
    squashed = g.quantized(g.node("Tanh", made), scales["table"], 128)
    swapped = g.node("Transpose", squashed, perm=[1, 0])
    y = g.node(
        "QuantizeLinear",
        g.node("MatMul", squashed, swapped),
        g.constant(np.float32(scales["stack"])),
        g.constant(U8(9)),
    )
    model = g.model(["batch", 24], y)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    return model


@pytest.mark.parametrize("place", ["x", "product", "bias", "table", "stack"])
@pytest.mark.parametrize("scale", [-0.03, 1e-39, 1e30])
def test_negative_tiny_and_huge_scales_give_what_nodes_give(scale: float, place: str) -> None:
    model, feeds = odd(scale, place), image(7, 24)
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        (got,) = compiled.run(feeds)
    apart = np.abs(got.astype(np.int64) - expected)
    assert apart.max() <= 1 or (scale == 1e-39 and np.isin(got[apart > 1], (0, 9, 255)).all())


@pytest.mark.parametrize("place", ["x", "product", "bias", "table", "stack"])
@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf")])
def test_scales_that_are_no_numbers_give_bytes_of_the_range(scale: float, place: str) -> None:
    """What the quotient is then, ONNX leaves open; limits hold, and all levels agree."""
    model, feeds = odd(scale, place), image(7, 24)
    results = at_levels(model, feeds)
    assert all(made.dtype == U8 and made.shape == (7, 7) for made in results)


@pytest.mark.parametrize("wrong", [np.ones(3, np.float32), np.float64(0.03)])
def test_scales_of_another_shape_or_type_are_refused(wrong: np.ndarray) -> None:
    """When the model is loaded, or where stock sees it: when it runs."""
    g = Graph(28)
    x = g.node("QuantizeLinear", "x", g.constant(np.asarray(wrong)), g.constant(U8(3)))
    model = g.model([2, 24], g.node("DequantizeLinear", x, g.constant(np.float32(0.1)), g.constant(U8(3))))
    with pytest.raises(Exception, match="QuantizeLinear"):
        smelt.compile(model, force=True, verify=False, threads=1).run(image(2, 24))
