"""Graphs with QuantizeLinear and DequantizeLinear around convolutions and products run on integers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import smelt

U8, I8 = np.uint8, np.int8


@dataclass
class Graph:
    """A model that is being written: each method adds nodes and gives the name of their result."""

    seed: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([5, self.seed])

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, self.name()))
        return self.constants[-1].name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [self.name()], **attributes))
        return self.nodes[-1].output[0]

    def quantized(self, x: str, scale: float, zero: int, dtype: type = U8) -> str:
        """x, quantized and restored."""
        step, middle = self.constant(np.float32(scale)), self.constant(dtype(zero))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, step, middle), step, middle)

    def weights(self, *shape: int, axis: int = 0, dtype: type = I8, per_channel: bool = True) -> tuple[str, np.ndarray]:
        """Restored from integers, with the scales."""
        info, size = np.iinfo(dtype), shape[axis] if per_channel else 1
        q = self.constant(self.rng.integers(info.min, info.max + 1, shape).astype(dtype))
        scales = self.rng.uniform(0.001, 0.01, size).astype(np.float32) if per_channel else np.float32(0.004)
        zeros = np.zeros(size, dtype) if per_channel else dtype(128 if dtype is U8 else 0)
        return self.node("DequantizeLinear", q, self.constant(scales), self.constant(zeros), axis=axis), scales

    def bias(self, columns: int, scales: np.ndarray) -> str:
        q = self.constant(self.rng.integers(-2000, 2000, columns).astype(np.int32))
        each = np.broadcast_to(scales, columns).astype(np.float32)
        return self.node("DequantizeLinear", q, self.constant(each), axis=0)

    def convolution(
        self, x: str, x_scale: float, *shape: int, bias: bool = True, dtype: type = I8, **window: object
    ) -> str:
        w, scales = self.weights(*shape, dtype=dtype, per_channel=dtype is I8)
        more = [self.bias(shape[0], np.float32(x_scale) * scales)] if bias else []
        return self.node("Conv", x, w, *more, **window)

    def model(self, x_shape: list[int | str], result: str) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def functions(compiled: smelt.CompiledModel) -> list[str]:
    """The functions in C that the regions call."""
    generated = compiled.result.generated
    assert generated is not None
    return [k.name for entry in generated.source.entries for k in entry.kernels if k.kind == "function"]


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray], wanted: list[str], step: float) -> None:
    """Right by the ONNX reference, up to one step at ties, and in these functions."""
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        assert functions(compiled) == wanted
        (got,) = compiled.run(feeds)
    apart = np.abs(got - expected) / step
    assert apart.max() < 1.01
    assert (apart > 0.01).mean() <= 2e-3 + 1 / apart.size


def image(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal(shape).astype(np.float32)}


def test_a_residual_block_is_three_convolutions() -> None:
    """With a first layer of three channels, a depthwise layer, and a sum in the epilogue of the last."""
    g = Graph()
    x = g.quantized("x", 0.03, 120)
    a = g.quantized(g.node("Relu", g.convolution(x, 0.03, 16, 3, 3, 3, pads=[1, 1, 1, 1], strides=[2, 2])), 0.02, 0)
    b = g.quantized(g.convolution(a, 0.02, 16, 1, 3, 3, group=16, pads=[1, 1, 1, 1]), 0.05, 130)
    c = g.quantized(g.convolution(b, 0.05, 16, 16, 1, 1), 0.2, 120)
    y = g.quantized(g.node("Add", c, a), 0.2, 110)
    model = g.model([1, 3, 17, 19], y)
    check(model, image(1, 3, 17, 19), ["smelt_int8_conv", "smelt_int8_depthwise", "smelt_int8_conv"], 0.2)


def test_limits_join_layers_and_sums() -> None:
    g = Graph(7)
    x = g.quantized("x", 0.03, 120)
    limits = [g.constant(np.float32(v)) for v in (-0.5, 6.0)]
    a = g.quantized(g.node("Clip", g.convolution(x, 0.03, 8, 8, 3, 3, pads=[1, 1, 1, 1]), *limits), 0.05, 40)
    b = g.quantized(g.convolution(a, 0.05, 8, 8, 1, 1), 0.11, 130)
    y = g.quantized(g.node("Relu", g.node("Add", b, x)), 0.13, 20)
    check(g.model([1, 8, 6, 7], y), image(1, 8, 6, 7), ["smelt_int8_conv"] * 2, 0.13)


@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize("activation", [I8, U8])
def test_types_of_activations_and_weights(dtype: type, activation: type) -> None:
    g = Graph(1)
    x = g.quantized("x", 0.03, 3, activation)
    y = g.quantized(g.convolution(x, 0.03, 12, 8, 3, 2, dtype=dtype, dilations=[1, 2]), 0.1, 9, activation)
    check(g.model(["batch", 8, "height", "width"], y), image(2, 8, 9, 11), ["smelt_int8_conv"], 0.1)


def test_groups_and_one_axis() -> None:
    g = Graph(2)
    x = g.quantized("x", 0.03, 100)
    y = g.quantized(g.convolution(x, 0.03, 16, 8, 3, group=2, bias=False, strides=[2]), 0.05, 100)
    check(g.model([2, 16, 21], y), image(2, 16, 21), ["smelt_int8_conv"], 0.05)


def test_products_of_rows() -> None:
    """MatMul per column, then Gemm with a transposed matrix and a bias, whose result stays float32."""
    g = Graph(3)
    w, _ = g.weights(24, 36, axis=1)
    a = g.quantized(g.node("MatMul", g.quantized("x", 0.03, 128), w), 0.05, 120)
    flat = g.node("Reshape", a, g.constant(np.int64([-1, 36])))
    w, scales = g.weights(10, 36, axis=0)
    y = g.node("Gemm", flat, w, g.bias(10, np.float32(0.05) * scales), transB=1)
    feeds = image(3, 5, 24)
    model = g.model(["batch", 5, 24], y)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert functions(compiled)[0] == "smelt_int8_conv"
        (got,) = compiled.run(feeds)
    assert np.abs(got - expected).max() <= 0.05 * 0.01 * 128 + 1e-5  # one step of one term


def test_a_float_result_that_is_read_elsewhere_is_kept() -> None:
    g = Graph(4)
    made = g.convolution(g.quantized("x", 0.03, 120), 0.03, 8, 8, 1, 1)
    y = g.node("Add", g.quantized(made, 0.02, 120), made)
    model = g.model([1, 8, 5, 5], y)
    feeds = image(1, 8, 5, 5)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        (got,) = compiled.run(feeds)
    assert np.abs(got - expected).max() < 0.021


def test_weights_that_come_at_run_time_stay_float() -> None:
    g = Graph(5)
    q = helper.make_tensor_value_info("w", TensorProto.INT8, [8, 8, 1, 1])
    w = g.node("DequantizeLinear", "w", g.constant(np.float32(0.01)))
    y = g.node("Conv", g.quantized("x", 0.03, 120), w)
    model = g.model([1, 8, 5, 5], y)
    model.graph.input.append(q)
    feeds = {**image(1, 8, 5, 5), "w": np.random.default_rng(0).integers(-128, 128, (8, 8, 1, 1)).astype(I8)}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert functions(compiled) == []
        np.testing.assert_allclose(compiled.run(feeds)[0], expected, rtol=1e-5, atol=1e-5)


def test_part_of_a_region_falls_back_to_the_nodes_of_the_model() -> None:
    """Nodes that are left out run in ONNX Runtime as they are in the file."""
    g = Graph(6)
    a = g.quantized(g.convolution(g.quantized("x", 0.03, 120), 0.03, 8, 8, 3, 3), 0.05, 120)
    y = g.quantized(g.convolution(a, 0.05, 8, 8, 3, 3), 0.1, 120)
    model = g.model([1, 8, 9, 9], y)
    first = next(node.name or node.output[0] for node in model.graph.node if node.op_type == "Conv")
    for node in model.graph.node:
        node.name = node.output[0]
    feeds = image(1, 8, 9, 9)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, exclude=[first], verify=False, threads=1) as compiled:
        assert {left.node.op_type for left in compiled.result.plan.fallbacks} == {"Conv"}
        (got,) = compiled.run(feeds)
    assert np.abs(got - expected).max() < 0.101


def _dynamic(op: str) -> onnx.ModelProto:
    """What onnxruntime.quantization writes: quantized at run time, integers, scaled, plus a bias."""
    g = Graph(8)
    q, scale, zero = "q", "scale", "zero"
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], [q, scale, zero]))
    shape, columns = ((24, 20), 20) if op == "MatMulInteger" else ((20, 8, 3, 3), 20)
    w = g.constant(g.rng.integers(-128, 128, shape).astype(I8))
    several = op == "MatMulInteger"
    zeros = g.constant(np.zeros(columns, I8) if several else I8(3))
    scales = g.constant(g.rng.uniform(0.01, 0.1, columns).astype(np.float32) if several else np.float32(0.03))
    total = g.node("Cast", g.node(op, q, w, zero, zeros), to=TensorProto.FLOAT)
    scaled = g.node("Mul", total, g.node("Mul", scale, scales))
    bias = g.rng.standard_normal(columns if several else (columns, 1, 1)).astype(np.float32)
    return g.model(["batch", 5, 24] if several else [1, 8, 6, 6], g.node("Add", scaled, g.constant(bias)))


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_dynamic_quantization(op: str) -> None:
    model = _dynamic(op)
    feeds = image(3, 5, 24) if op == "MatMulInteger" else image(1, 8, 6, 6)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        assert functions(compiled) == ["smelt_int8_conv"]
        np.testing.assert_allclose(compiled.run(feeds)[0], expected, rtol=1e-5, atol=1e-4)


def test_a_free_number_of_zero_points_may_be_one() -> None:
    """What is declared as one for each column may be one for all at run time."""
    g = Graph()
    total = g.node("Cast", g.node("MatMulInteger", "a", "b", "az", "bz"), to=TensorProto.FLOAT)
    g.node("Mul", total, g.node("Mul", "as", "bs"))
    inputs = [("a", 2, ["m", "k"]), ("b", 3, ["k", "n"]), ("az", 2, ["one"]), ("bz", 3, ["c"]), ("as", 1, ["one"]),
              ("bs", 1, ["c"])]  # fmt: skip
    graph = helper.make_graph(
        g.nodes, "g", [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(g.nodes[-1].output[0], 1, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for rows, columns, count in ((3, 16, 16), (3, 16, 1), (1, 1, 1), (2, 0, 1), (5, 7, 7)):
            feeds = {
                "a": g.rng.integers(0, 256, (rows, 20)).astype(U8), "az": np.array([7], U8),
                "b": g.rng.integers(-128, 128, (20, columns)).astype(I8), "as": np.array([0.5], np.float32),
                "bz": g.rng.integers(-9, 9, count).astype(I8), "bs": g.rng.random(count).astype(np.float32),
            }  # fmt: skip
            (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
            np.testing.assert_allclose(compiled.run(feeds)[0], expected, rtol=1e-6)
        with pytest.raises(Exception, match="do not fit"):
            compiled.run({**feeds, "bz": np.zeros(3, I8), "bs": np.ones(3, np.float32)})


def _operators(zero: int) -> onnx.ModelProto:
    """QLinearConv, a second one with its sum, QLinearMatMul."""
    g = Graph(9)
    one = [g.constant(np.float32(0.05)), g.constant(U8(zero))]
    two = [g.constant(np.float32(0.31)), g.constant(U8(120))]
    q = g.node("QuantizeLinear", "x", *one)
    results = []
    for dtype in (I8, U8):
        w = g.constant(g.rng.integers(0, 128, (8, 8, 3, 3)).astype(dtype))
        scales = g.constant(g.rng.uniform(0.001, 0.01, 8).astype(np.float32))
        zeros = g.constant(g.rng.integers(40, 80, 8).astype(dtype))
        bias = g.constant(g.rng.integers(-1000, 1000, 8).astype(np.int32))
        results.append(g.node("QLinearConv", q, *one, w, scales, zeros, *two, bias, pads=[1, 1, 1, 1]))
    g.nodes.append(helper.make_node(
        "QLinearAdd", [results[0], *two, results[1], *two, *two], ["sum"], domain="com.microsoft"
    ))  # fmt: skip
    w = g.constant(g.rng.integers(-128, 128, (7, 12)).astype(I8))
    made = g.node("QLinearMatMul", "sum", *two, w, g.constant(np.float32(0.01)), g.constant(I8(-3)), *two)
    model = g.model([2, 8, 6, 7], g.node("DequantizeLinear", made, *two))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


@pytest.mark.parametrize("zero", [128, 3])
def test_quantized_operators(zero: int) -> None:
    """Against ONNX Runtime without its optimizers: at most one step, at ties."""
    model, feeds = _operators(zero), image(2, 8, 6, 7)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    stock = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = stock.run(None, feeds)
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        assert functions(compiled) == ["smelt_int8_conv"] * 3
        (got,) = compiled.run(feeds)
    apart = np.abs(got - expected) / 0.31
    assert apart.max() < 1.01
    assert (apart > 0.01).mean() <= 0.01


def test_a_product_to_float_is_one_layer() -> None:
    g = Graph(10)
    w = g.constant(g.rng.integers(-128, 128, (24, 20)).astype(I8))
    scales = [g.constant(np.float32(0.03)), g.constant(g.rng.uniform(0.01, 0.1, 20).astype(np.float32))]
    zeros = [g.constant(U8(117)), g.constant(np.zeros(20, I8))]
    bias = g.constant(g.rng.standard_normal(20).astype(np.float32))
    q = g.node("QuantizeLinear", "x", scales[0], zeros[0])
    y = g.node("MatMulIntegerToFloat", q, w, *scales, *zeros, bias, domain="com.microsoft")
    model, feeds = g.model(["batch", 24], y), image(5, 24)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert functions(compiled) == ["smelt_int8_conv"]
        np.testing.assert_allclose(compiled.run(feeds)[0], stock.run(None, feeds)[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize("several", [False, True])
def test_a_product_that_quantizes_its_rows_is_one_layer(dtype: type, several: bool) -> None:
    """DynamicQuantizeMatMul, with small weights: stock saturates sums of large ones on CPUs without VNNI."""
    g = Graph(11)
    shape = 20 if several else ()
    w = g.constant(g.rng.integers(0, 64, (24, 20)).astype(dtype))
    scale = g.constant(g.rng.uniform(0.01, 0.1, shape).astype(np.float32))
    zero = g.constant(g.rng.integers(20, 40, shape).astype(dtype))
    bias = g.constant(g.rng.standard_normal(20).astype(np.float32))
    y = g.node("DynamicQuantizeMatMul", "x", w, scale, zero, bias, domain="com.microsoft")
    model = g.model(["batch", 24], y)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        assert functions(compiled) == ["smelt_int8_conv"]
        for rows in (0, 1, 5):
            feeds = image(rows, 24)
            np.testing.assert_allclose(compiled.run(feeds)[0], stock.run(None, feeds)[0], rtol=1e-5, atol=1e-4)


def _dynamic_product(weights: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> onnx.ModelProto:
    g = Graph(12)
    operands = [g.constant(given) for given in (weights, scale, zero)]
    model = g.model(["batch", 24], g.node("DynamicQuantizeMatMul", "x", *operands, domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def test_extremes_of_a_product_that_quantizes_its_rows_do_not_saturate() -> None:
    """Rows of 255 times weights of -128: pairs of products exceed int16."""
    model = _dynamic_product(np.full((24, 20), -128, I8), np.float32(0.1), I8(0))
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        (got,) = compiled.run({"x": np.full((3, 24), 2.0, np.float32)})
    np.testing.assert_allclose(got, np.full((3, 20), 24 * 2.0 * -12.8), rtol=1e-5)


@pytest.mark.parametrize(("scales", "zeros"), [((7,), ()), ((), (3,)), ((20, 1), ())])
def test_scales_and_zero_points_of_a_wrong_shape_fail_as_in_stock(
    scales: tuple[int, ...], zeros: tuple[int, ...]
) -> None:
    model = _dynamic_product(np.ones((24, 20), I8), np.ones(scales, np.float32), np.zeros(zeros, I8))
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert [left.node.op_type for left in compiled.result.plan.fallbacks] == ["DynamicQuantizeMatMul"]
        with pytest.raises(Exception, match="DynamicQuantizeMatMul"):
            compiled.run(image(3, 24))
