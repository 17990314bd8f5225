"""Regions inside control flow: each on the values of its body, and the whole model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.check.bundle import Bundle
from smelt.check.watched_bodies import BodyRun, WatchedBodies
from smelt.ir.load import load_model
from smelt.ir.walk import nested_graphs
from smelt.pipeline import Options, compile_to
from smelt.runtime import Executable


def branching() -> onnx.ModelProto:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node(op, ["x"], [f"{name}_a"]), helper.make_node("Add", [f"{name}_a", "x"], [f"{name}_y"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Exp"), else_branch=branch("e", "Tanh"))
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]))
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_model_with_regions_in_branches_is_verified_as_a_whole(tmp_path: Path, config: Config):
    result = compile_to(branching(), tmp_path / "out", Options(force=True, levels=("v2",)), config)
    assert result.findings.rejected == {}
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for condition, expected in ((True, np.exp(x) + x), (False, np.tanh(x) + x)):
        got = Executable.open(result.artifact).run({"c": np.array(condition), "x": x})[0]
        assert np.allclose(got, expected, rtol=1e-5)
    assert len(result.plan.regions) == 2 and {v.region for v in result.findings.verdicts} == {0, 1, None}


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_wrong_kernel_in_a_branch_costs_that_branch(tmp_path: Path, config: Config, spoil, wrong: int):
    spoil(wrong, "return smelt_fail(env, SMELT_E_VALUE, -1, 7, 0, 0);")
    result = compile_to(branching(), tmp_path / "out", Options(force=True, levels=("v2",)), config)
    assert [region.index for region in result.plan.regions] == [1 - wrong]
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for condition, expected in ((True, np.exp(x) + x), (False, np.tanh(x) + x)):
        got = Executable.open(result.artifact).run({"c": np.array(condition), "x": x})[0]
        assert np.allclose(got, expected, rtol=1e-5)


SIZED = """<ir_version: 9, opset_import: ["" : 17]> g (bool c, float[n,m] x) => (float[n,k] y) {
  y = If(c) <
    then_branch = t () => (float[n,k] a) { p = Constant<value = int64[4] {0, 5, 0, 0}>()
      q = Pad<mode = "reflect">(x, p)  r = Tanh(q)  a = Add(r, q) },
    else_branch = e () => (float[n,k] a) { p = Constant<value = int64[4] {0, 20, 0, 0}>()
      q = Pad<mode = "reflect">(x, p)  r = Exp(q)  a = Add(r, q) } > }"""


def test_a_branch_that_refuses_the_sizes_of_the_call_is_verified_on_sizes_of_its_own(tmp_path: Path, config: Config):
    """The model is called with 17 columns, of which the other branch cannot reflect 20."""
    model = onnx.parser.parse_model(SIZED)
    options = Options(force=True, levels=("v2",), inputs={"c": np.array(True)})
    result = compile_to(model, tmp_path / "out", options, config)
    assert len(result.plan.regions) == 2 and not result.findings.rejected
    assert {v.region for v in result.findings.verdicts if v.error is not None} == {0, 1, None}
    x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(2, 30)
    got = Executable.open(result.artifact).run({"c": np.array(False), "x": x})[0]
    padded = np.pad(x, ((0, 0), (20, 0)), mode="reflect")
    assert np.allclose(got, np.exp(padded) + padded, rtol=1e-5)


LOOP = """<ir_version: 9, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) {
  trips = Constant<value = int64 {3}>()  go = Constant<value = bool {1}>()
  start = Sin(x)
  y = Loop(trips, go, start) <body = b (int64 i, bool on, float[n] s) => (bool more, float[n] t) {
    more = Identity(on)  u = Tanh(s)  v = Mul(u, x)  t = Add(v, s) }> }"""


def test_a_region_in_a_loop_is_verified_on_the_first_turn(tmp_path: Path, config: Config, spoil):
    model = onnx.parser.parse_model(LOOP)
    options = Options(levels=("v2",), force=True, exclude=("Sin", "Identity"))
    right = compile_to(model, tmp_path / "right", options, config)
    assert len(right.plan.regions) == 1 and {v.region for v in right.findings.verdicts} == {0, None}
    spoil(0, "return smelt_fail(env, SMELT_E_VALUE, -1, 7, 0, 0);")
    wrong = compile_to(model, tmp_path / "wrong", options, config)
    assert not wrong.plan.regions and "verification failed" in next(iter(wrong.findings.rejected.values()))


COUNTING = """<ir_version: 9, opset_import: ["" : 17]> g (float[n] x) => (int32 c, float[n] y, float[n] z)
  <int32 zero = {0}> {
  trips = Constant<value = int64 {3}>()  go = Constant<value = bool {1}>()
  start = Sin(x)
  c, y, z = Loop(trips, go, zero, x, start) <body = b (int64 i, bool on, int32 k, float[n] s, float[n] t)
      => (bool more, int32 m, float[n] u, float[n] w) {
    more = Identity(on)  one = Constant<value = int32 {1}>()  m = Add(k, one)
    f = Cast<to = 1>(m)  u = Mul(s, f)  w = Identity(t) }> }"""


def test_a_loop_that_begins_at_a_constant_is_verified_on_its_own_values(tmp_path: Path, config: Config):
    """What is constant in the first turn is no input of the copied body: the others keep their places."""
    options = Options(levels=("v2",), force=True, exclude=("Sin", "Identity"))
    result = compile_to(onnx.parser.parse_model(COUNTING), tmp_path / "out", options, config)
    assert not result.findings.rejected and not result.faults
    assert {v.region for v in result.findings.verdicts if v.error is not None} >= {0, None}
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    count, y, _ = Executable.open(result.artifact).run({"x": x})
    assert count == 3 and np.allclose(y, 6 * x, rtol=1e-6)


def test_a_branch_may_declare_a_wrong_shape(tmp_path: Path, config: Config) -> None:
    """Stock goes by what the nodes of a branch tell; of a custom op it would believe the declaration."""
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")
    then = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "one"], ["t"])],
        "then", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, [])], [one],
    )  # fmt: skip
    other = helper.make_graph([helper.make_node("Tanh", ["x"], ["o"])], "else", [],
                              [helper.make_tensor_value_info("o", TensorProto.FLOAT, [])])  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_tensor_value_info("x", 1, [])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    assert result.plan.regions and not result.findings.rejected
    x = np.array(0.5, np.float32)
    (found,) = Executable.open(result.artifact).run({"c": np.array(True), "x": x})
    np.testing.assert_allclose(found, [np.exp(x) + 1], rtol=1e-6)


RANKED = """<ir_version: 9, opset_import: ["" : 17]> g (float[n] x) => (float[n] y, float[1] z) <float[1] zero = {0}> {
  trips = Constant<value = int64[1] {3}>()  go = Constant<value = bool[1] {1}>()
  start = Sin(x)
  y, z = Loop(trips, go, start, zero) <body = b (int64[1] i, bool[1] on, float[n] s, float[1] a)
      => (bool[1] more, float[n] t, float[1] c) {
    more = Identity(on)  f = Cast<to = 1>(i)  c = Add(a, f)  u = Tanh(s)  v = Mul(u, x)  t = Add(v, s) }> }"""


def test_a_body_may_declare_its_turn_as_one_element(tmp_path: Path, config: Config):
    """Stock gives the number of the turn and the condition the rank that the body declares, as Paddle's exporter does.
    Its regions run on the values of the first turn, and need none of their own."""
    options = Options(levels=("v2",), force=True, exclude=("Sin", "Identity"))
    result = compile_to(onnx.parser.parse_model(RANKED), tmp_path / "out", options, config)
    assert result.plan.regions and not result.findings.rejected
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    y, z = Executable.open(result.artifact).run({"x": x})
    assert z == [3] and y.shape == x.shape
    model = load_model(onnx.parser.parse_model(RANKED))
    wanted = [value for graph in list(nested_graphs(model.graph))[1:] for node in graph for value in node.outputs]
    bodies = WatchedBodies(model, wanted)
    bundle = Bundle(tmp_path)
    (job,) = bodies.write(bundle)
    bundle.close()
    seen = BodyRun(tmp_path, job, 1)({"start": np.sin(x), "x": x})
    assert np.allclose(seen[bodies.key(wanted[-1])], np.tanh(np.sin(x)) * x + np.sin(x), rtol=1e-5)
