"""A float32 that comes through a float16 is held to what a float16 tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import smelt
from smelt.base.config import Config
from smelt.check.judge import Judge
from smelt.check.rounded_types import rounded_types
from smelt.ir.load import load_model
from smelt.ir.narrowed import mark_narrowed
from smelt.pipeline import Options, compile_to

TEXT = """<ir_version: 9, opset_import: ["" : 17, "f" : 1]> g (float[n,4] x, float16[n,4] h) =>
    (float[n,4] plain, float[n,4] given, float[n,4] rounded, int64[n] place, float[n,4] coarse, float[n,4] taken,
     float[n,4] called) <float16[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2}> {
  wide = Cast<to = 1>(w)  plain = MatMul(x, wide)
  given = Cast<to = 1>(h)
  a = Cast<to = 10>(x)  b = MatMul(a, w)  c = Cast<to = 1>(b)  rounded = Tanh(c)
  place = ArgMax<axis = 1, keepdims = 0>(c)
  d = Cast<to = 16>(c)  e = Cast<to = 1>(d)  coarse = Add(e, x)
  yes = Constant<value = bool {1}>()
  taken = If(yes) <then_branch = t () => (float[n,4] p) { q = Cast<to = 10>(x)  p = Cast<to = 1>(q) },
                   else_branch = o () => (float[n,4] r) { r = Sin(x) }>
  called = f.half(x)
}
<domain: "f", opset_import: ["" : 17]> half (v) => (z) { y = Cast<to = 10>(v)  z = Cast<to = 1>(y) }"""


def test_outputs_know_the_coarsest_type_on_their_way() -> None:
    found = rounded_types(load_model(onnx.parser.parse_model(TEXT)))
    assert found == ["", "", "float16", "", "bfloat16", "float16", "float16"]


def _half_network(width: int = 64) -> onnx.ModelProto:
    """As converters write it: float16 between float32 inputs and outputs."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [helper.make_node("Cast", ["x"], ["h"], to=10)], [], "h"
    for place in range(4):
        matrix, bias = rng.standard_normal((width, width)) / 8, rng.standard_normal(width)
        weights += [numpy_helper.from_array(one.astype(np.float16), f"{name}{place}")
                    for name, one in (("w", matrix), ("b", bias))]  # fmt: skip
        nodes += [
            helper.make_node("MatMul", [last, f"w{place}"], [f"m{place}"]),
            helper.make_node("Add", [f"m{place}", f"b{place}"], [f"a{place}"]),
            helper.make_node("Tanh", [f"a{place}"], [f"t{place}"]),
        ]
        last = f"t{place}"
    nodes += [helper.make_node("Softmax", [last], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_network_in_float16_between_float32_keeps_its_kernels(tmp_path: Path, config: Config) -> None:
    """Stock drops the cast of the input, so that its own answer was not rounded there."""
    model = _half_network()
    result = compile_to(model, tmp_path / "out", Options(levels=("v3",)), config)
    assert not result.plan.fallbacks and not result.faults
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(smelt.load(tmp_path / "out").run({"x": x})[0], wanted, rtol=5e-3, atol=1e-4)


@pytest.mark.parametrize(("off", "right"), [(1e-3, True), (2e-2, False)])
def test_more_than_a_float16_tells_is_wrong(tmp_path: Path, off: float, right: bool) -> None:
    onnx.save(_half_network(), tmp_path / "h.onnx")
    judge = Judge(tmp_path / "h.onnx", "model", ["Cast", "MatMul", "Add", "Tanh", "Softmax"])
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)}
    stock = judge.stock(feeds)
    found = judge(feeds, [stock[0] * np.float32(1 + off)], stock).comparison
    assert (not found.problem) is right


@pytest.mark.parametrize(("mark", "wanted"), [(True, ["bfloat16", ""]), (False, ["", ""])])
def test_a_product_of_bfloat16_weights_rounds_its_rows(mark: bool, wanted: list[str]) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[n,8] x, bfloat16[8,4] w)
        => (float[n,4] y, float[n,8] z) {
        wide = Cast<to=1>(w) p = MatMul(x, wide) y = Tanh(p) z = Sin(x) }"""
    model = load_model(onnx.parser.parse_model(text))
    if mark:
        mark_narrowed(next(node for node in model.graph if node.op_type == "Cast"))
    assert rounded_types(model) == wanted
