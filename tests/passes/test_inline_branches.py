"""If nodes of which one branch is never taken."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from smelt.passes import run_passes
from smelt.runtime import SessionSettings, session_for

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
LSTM = "l, h = LSTM<hidden_size = 3>(s, w, r)"
WEIGHTS = "<float[1,12,2] w, float[1,12,3] r>"


def passed(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The model, and what the passes make of it."""
    proto = onnx.parser.parse_model(HEAD + text)
    rng = np.random.default_rng(0)
    for value in list(proto.graph.input):
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name in ("w", "r"):
            proto.graph.input.remove(value)
            array = rng.standard_normal(dims).astype(np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    model = ir.serde.deserialize_model(onnx.ModelProto.FromString(proto.SerializeToString()))
    run_passes(model)
    return proto, ir.serde.serialize_model(model)


def run(model: onnx.ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    session = session_for(model.SerializeToString(), settings=SessionSettings(threads=1, log_severity=4))
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), inputs, strict=True)))


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_a_constant_condition_leaves_its_branch_with_the_branches_inside_it():
    before, after = passed("""
        (float[2,n] x) => (float[m,n] y) {
          s = Shape(x)  two = Constant<value = int64 {2}>()  zero = Constant<value = int64 {0}>()
          first = Gather(s, zero)  same = Equal(first, two)
          y = If(same) <
            then_branch = t () => (float[m,n] a) {
              rank = Size(s)  flat = Equal(rank, two)
              b = If(flat) < then_branch = tt () => (float[m,n] c) { c = Exp(x) },
                             else_branch = te () => (float[m,n] c) { c = Neg(x) } >
              a = Abs(b)
            },
            else_branch = e () => (float[m,n] a) { a = Sqrt(x) }
          >
        }""")
    x = np.array([[1, -2, 3], [4, 5, 6]], np.float32)
    assert ops(after) == ["Exp", "Abs"]
    assert [o.name for o in after.graph.output] == ["y"]
    np.testing.assert_array_equal(run(after, x)[0], run(before, x)[0])


def test_branches_of_the_same_names_do_not_meet():
    before, after = passed("""
        (float[2] x, float[2] z) => (float[2] y, float[2] u, float[2] v) {
          yes = Constant<value = bool {1}>()  no = Constant<value = bool {0}>()
          y = If(yes) < then_branch = t () => (float[2] a) { a = Exp(x) },
                        else_branch = e () => (float[2] a) { a = Neg(x) } >
          u = If(no) < then_branch = t () => (float[2] a) { a = Exp(z) },
                       else_branch = e () => (float[2] a) { a = Neg(z) } >
          v = If(no) < then_branch = t () => (float[2] a) { a = Exp(z) },
                       else_branch = e () => (float[2] a) { a = Identity(z) } >
        }""")
    x, z = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    assert sorted(set(ops(after)) - {"Identity"}) == ["Exp", "Neg"]
    for a, b in zip(run(after, x, z), run(before, x, z), strict=True):
        np.testing.assert_array_equal(a, b)


SQUEEZE_OR_NOT = """
    (float[b,2,n] x, float[1,12,2] w, float[1,12,3] r) => (float[d,e,f,g] l) {
      s = Shape(x)  last = Constant<value = int64 {2}>()  one = Constant<value = int64 {1}>()
      n = Gather(s, last)  single = Equal(n, one)
      q = If(single) <
        then_branch = t () => (a) { axis = Constant<value = int64[1] {2}>()  a = Squeeze(x, axis) },
        else_branch = e () => (a) { a = Identity(x) }
      >
      first = Constant<value = int64[1] {0}>()
      u = Unsqueeze(q, first)
      l = LSTM<hidden_size = 3>(u, w, r)
    }"""


def test_a_branch_whose_rank_the_next_op_refuses_is_never_taken():
    before, after = passed(SQUEEZE_OR_NOT)
    assert "If" not in ops(after) and "Squeeze" in ops(after)
    x = np.random.default_rng(1).standard_normal((5, 2, 1)).astype(np.float32)
    np.testing.assert_allclose(run(after, x)[0], run(before, x)[0], rtol=1e-6)
    for model in (before, after):
        with pytest.raises(Exception, match=r"(?i)dim|rank|shape"):
            run(model, np.zeros((5, 2, 3), np.float32))


def test_branches_that_both_may_run_stay():
    text = SQUEEZE_OR_NOT.replace("l = LSTM<hidden_size = 3>(u, w, r)", "l = Exp(u)")
    _, after = passed(text)
    assert "If" in ops(after)


def test_a_branch_of_a_body_is_tried_in_that_body_alone():
    """What the body reads from outside is an input of the trial, whatever the model around it holds."""
    before, after = passed("""
        (bool c, float[b,2,n] x, float[1,12,2] w, float[1,12,3] r) => (float[d,e,f,g] l) {
          s = Shape(x)  last = Constant<value = int64 {2}>()  one = Constant<value = int64 {1}>()
          n = Gather(s, last)  single = Equal(n, one)
          l = If(c) <
            then_branch = t () => (float[d,e,f,g] k) {
              q = If(single) <
                then_branch = tt () => (a) { axis = Constant<value = int64[1] {2}>()  a = Squeeze(x, axis) },
                else_branch = te () => (a) { a = Identity(x) }
              >
              first = Constant<value = int64[1] {0}>()
              u = Unsqueeze(q, first)
              k = LSTM<hidden_size = 3>(u, w, r)
            },
            else_branch = e () => (float[d,e,f,g] k) {
              z = Constant<value = int64[1] {0}>()
              k = Unsqueeze(x, z)
            }
          >
        }""")
    (outer,) = [node for node in after.graph.node if node.op_type == "If"]
    bodies = {a.name: [node.op_type for node in a.g.node] for a in outer.attribute}
    assert bodies["then_branch"] == ["Squeeze", "Unsqueeze", "LSTM"]
    x = np.random.default_rng(1).standard_normal((5, 2, 1)).astype(np.float32)
    for taken in (True, False):
        np.testing.assert_allclose(run(after, np.array(taken), x)[0], run(before, np.array(taken), x)[0], rtol=1e-6)
