"""Weights that are inputs: packed in panels once, by whoever feeds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import smelt
from smelt.codegen import lift_panels, packed_array, panel_nodes
from smelt.codegen.c.layout.formats import format_named
from smelt.ir.kernel import ix as ir_size
from smelt.ir.weights import is_packable, is_weight, mark_weight

LAYOUTS = [
    ("plain", (5, 33)),
    ("plain", (4, 16)),
    ("transposed", (33, 5)),
    ("window:1", (18, 3, 2, 2)),
    ("window:2", (18, 3, 2, 2)),
    ("depthwise", (19, 1, 3, 3)),
    ("spread:2", (4, 17, 2)),
    ("stamp", (4, 9, 2, 2)),
    ("nchw", (18, 3, 2, 2)),
    ("narrow", (32, 4, 2, 3)),
    ("dots:1", (3, 7, 2, 3)),
    ("dots:2", (6, 8, 2)),
]


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS)
def test_nodes_lay_out_a_weight_as_packing_a_constant_does(layout: str, shape: tuple[int, ...]):
    source = ir.Value(name="w", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    nodes, panels = panel_nodes(source, source, layout, "p")
    graph = ir.Graph([source], [panels], nodes=nodes, opset_imports={"": 20}, name="g")
    session = onnxruntime.InferenceSession(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = session.run(None, {"w": weight})[0]
    np.testing.assert_array_equal(found, packed_array(weight, layout))
    assert list(found.shape) == [int(d) for d in panels.shape or ()]


HALF_LAYOUTS = [
    ("bf16:plain", (6, 32)),
    ("bf16:transposed", (32, 6)),
    ("bf16:window:1", (32, 4, 3, 3)),
    ("f16:plain", (5, 16)),
]


@pytest.mark.parametrize(("layout", "shape"), HALF_LAYOUTS)
def test_nodes_keep_a_weight_of_16_bits_in_its_type(layout: str, shape: tuple[int, ...]):
    dtype = ir.DataType.BFLOAT16 if layout.startswith("bf16") else ir.DataType.FLOAT16
    given = ir.Value(name="w", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    narrow = ir.Node("", "Cast", [given], [ir.AttrInt64("to", int(dtype))])
    source = narrow.outputs[0]
    source.name, source.shape, source.type = "n", ir.Shape(shape), ir.TensorType(dtype)
    nodes, panels = panel_nodes(source, source, layout, "p")
    assert panels.dtype == dtype
    wide = ir.Node("", "Cast", [panels], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])
    wide.outputs[0].name, wide.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([given], wide.outputs, nodes=[narrow, *nodes, wide], opset_imports={"": 20}, name="g")
    session = onnxruntime.InferenceSession(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = packed_array(weight.astype(dtype.numpy()), layout).astype(np.float32)
    np.testing.assert_array_equal(session.run(None, {"w": weight})[0], wanted)


def test_a_weight_that_would_be_padded_is_not_fed_in_its_type():
    fits = {
        shape: format_named("bf16:plain").is_fed([ir_size(n) for n in shape]) for shape in [(6, 32), (5, 32), (6, 33)]
    }
    assert list(fits.values()) == [True, False, False]


def test_a_convolution_whose_panels_are_computed_keeps_a_fed_weight_as_it_is(tmp_path: Path):
    x, w = (
        ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        for name, shape in (("x", ["n", 32, 14, 14]), ("w", [32, 32, 3, 3]))
    )
    node = ir.Node("", "Conv", [x, w], [ir.AttrInt64s("pads", [1, 1, 1, 1])])
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    mark_weight(w)
    model = ir.Model(ir.Graph([x, w], node.outputs, nodes=[node], opset_imports={"": 20}, name="g"), ir_version=10)
    stock = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((2, 32, 14, 14)), "w": rng.standard_normal((32, 32, 3, 3))}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    want = stock.run(None, given)[0]
    with smelt.compile(model, tmp_path / "out", force=True) as fast:
        np.testing.assert_allclose(fast.run(given)[0], want, rtol=1e-4, atol=1e-4)


def linear(marked: bool) -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape(["n", 40]), type=ir.TensorType(ir.DataType.FLOAT))
    w = ir.Value(name="w", shape=ir.Shape([70, 40]), type=ir.TensorType(ir.DataType.FLOAT))
    b = ir.Value(name="b", shape=ir.Shape([70]), type=ir.TensorType(ir.DataType.FLOAT))
    product = ir.Node("", "Gemm", [x, w, b], [ir.AttrInt64("transB", 1)])
    product.outputs[0].name = "h"
    out = ir.Node("", "Relu", [product.outputs[0]])
    out.outputs[0].name, out.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    out.outputs[0].shape = ir.Shape(["n", 70])
    if marked:
        mark_weight(w)
    graph = ir.Graph([x, w, b], out.outputs, nodes=[product, out], opset_imports={"": 20}, name="g")
    return ir.Model(graph, ir_version=10)


def feeds(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    shapes = {"x": (rows, 40), "w": (70, 40), "b": (70,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def expected(given: dict[str, np.ndarray]) -> np.ndarray:
    return np.maximum(given["x"] @ given["w"].T + given["b"], 0)


def test_an_input_is_a_weight_only_when_marked_and_of_known_shape():
    marked, plain = linear(True).graph.inputs[1], linear(False).graph.inputs[1]
    assert is_weight(marked) and is_packable(marked) and not is_packable(plain)
    marked.shape = ir.Shape(["k", 40])
    assert not is_weight(marked)


def test_a_product_with_a_weight_is_compiled_and_follows_the_weight_from_call_to_call(tmp_path: Path):
    with smelt.compile(linear(True), tmp_path / "out") as fast:
        assert fast.coverage.in_kernels == 2
        for rows in (1, 7):
            given = feeds(rows)
            np.testing.assert_allclose(fast.run(given)[0], expected(given), rtol=1e-5, atol=1e-5)


def test_lifted_panels_are_fed_in_place_of_the_weight(tmp_path: Path):
    with smelt.compile(linear(True), tmp_path / "out") as fast:
        model = ir.load(tmp_path / "out" / "model.onnx")
        (fed,) = lift_panels(model)
        assert fed.source == "w" and "w" not in {v.name for v in model.graph.inputs}
        assert all(node.domain for node in model.graph)
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(fast.result.artifact.library_path))
        session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
        given = feeds(9)
        panels = packed_array(given["w"], fed.layout)
        found = session.run(None, {"x": given["x"], "b": given["b"], fed.name: panels})[0]
        np.testing.assert_allclose(found, expected(given), rtol=1e-5, atol=1e-5)
