"""Nodes inside of If, Loop and Scan: what is known of them, that they run in kernels, and what leaves a body."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import smelt
from smelt.ir.walk import model_nodes
from smelt.ops import Fact, Facts, analyze, bodies
from smelt.runtime import SessionSettings, session_for

X = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '
STEADY = """(float[n, 4] x, int64 trips) => (float[n, 4] y, float[t, n, 4] rows) {
    on = Constant<value = bool {1}>()  base = Exp(x)
    y, rows = Loop(trips, on, x) <body = b (int64 i, bool c, float[p, q] acc) => (bool d, float[p, q] next,
                                                                                  float[p, q] row) {
        d = Identity(c)  t = Tanh(acc)  next = Mul(t, base)  row = Add(next, x) }> }"""
GROWING = """(float[n, 4] x, int64 trips) => (float[m, 4] y) {
    on = Constant<value = bool {1}>()
    y = Loop(trips, on, x) <body = b (int64 i, bool c, float[p, q] acc) => (bool d, float[r, q] next) {
        d = Identity(c)  t = Tanh(acc)  u = Mul(t, acc)  next = Concat<axis = 0>(u, x) }> }"""
RISING = """(float[n, 4] x, int64 trips) => (float[] y) {
    on = Constant<value = bool {1}>()  zero = Constant<value = int64[1] {0}>()
    e = Loop(trips, on, x) <body = b (int64 i, bool c, float[] acc) => (bool d, float[] next) {
        d = Identity(c)  t = Tanh(acc)  next = Unsqueeze(t, zero) }>
    y = Exp(e) }"""
NESTED = """(float[n, 4] x, int64 trips, bool flag) => (float[n, 4] y) {
    on = Constant<value = bool {1}>()  s = Sigmoid(x)
    y = Loop(trips, on, x) <body = b (int64 i, bool c, float[p, q] acc) => (bool d, float[p, q] next) {
        d = Identity(c)
        next = If(flag) <then_branch = t () => (float[p, q] a) { k = Mul(acc, s)  a = Add(k, x) },
                         else_branch = e () => (float[p, q] b) {
            b = Loop(trips, on, acc) <body = bb (int64 j, bool cc, float[p, q] inner) => (bool dd, float[p, q] last) {
                dd = Identity(cc)  h = Sub(inner, s)  last = Tanh(h) }> }> }> }"""
SCANNED = """(float[n, 4] x, float[4] start) => (float[4] last, float[n, 4] sums) {
    last, sums = Scan<num_scan_inputs = 1, body = b (float[q] acc, float[q] row) => (float[q] next, float[q] out) {
        t = Exp(row)  next = Add(acc, t)  out = Tanh(next) }>(start, x) }"""


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def facts_of(text: str) -> tuple[dict[str, Fact], Facts]:
    graph = ir.serde.deserialize_model(model(text))
    facts = analyze(graph)
    found = {v.name: facts.by_value.get(v) for node in model_nodes(graph) for v in node.outputs}
    return {name: fact for name, fact in found.items() if name and fact}, facts


def check(text: str, *others: np.ndarray) -> list[str]:
    """Compiled by force and compared with ONNX Runtime; what was left to it."""
    proto = model(text)
    names = [i.name for i in proto.graph.input]
    stock = session_for(proto.SerializeToString(), settings=SessionSettings(threads=1, log_severity=4))
    with smelt.compile(proto, force=True, levels="v2", threads=1) as compiled:
        for extra in others:
            feeds = dict(zip(names, (X, *extra), strict=True))
            for found, wanted in zip(compiled.run(feeds), stock.run(None, feeds), strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        return [fallback.node.op_type for fallback in compiled.result.plan.fallbacks]


def trips(*counts: int) -> list[tuple[np.ndarray, ...]]:
    return [(np.array(count, np.int64),) for count in counts]


def test_a_carried_value_keeps_the_sizes_that_its_body_keeps() -> None:
    known, _ = facts_of(STEADY)
    assert known["t"].shape == known["base"].shape == known["y"].shape and known["t"].shape[1].const == 4
    assert known["rows"].shape[1:] == known["base"].shape and known["rows"].shape[0].const is None


def test_a_size_that_changes_from_turn_to_turn_is_its_own() -> None:
    known, _ = facts_of(GROWING)
    assert known["t"].shape[1].const == 4 and known["t"].shape[0].const is None
    assert known["y"].shape[0] != known["t"].shape[0], "the last turn's size is not that of every turn"


def test_a_rank_that_changes_is_unknown_and_the_reason_is_kept() -> None:
    known, facts = facts_of(RISING)
    assert not {"t", "next", "e", "y"} & set(known)
    reasons = {node.op_type: reason for node, reason in facts.unsupported.items()}
    assert "unknown" in reasons["Tanh"] and "unknown" in reasons["Exp"]


def test_loops_run_in_kernels() -> None:
    assert check(STEADY, *trips(0, 1, 3)) == ["Loop"]
    assert check(GROWING, *trips(0, 1, 4)) == ["Loop"]
    assert sorted(check(RISING, *trips(0, 2))) == ["Exp", "Loop", "Tanh", "Unsqueeze"]


def test_bodies_in_bodies_run_in_kernels() -> None:
    cases = [(np.array(2, np.int64), np.array(flag)) for flag in (True, False)]
    assert sorted(check(NESTED, *cases)) == ["If", "Loop", "Loop"]


def test_scans_run_in_kernels() -> None:
    assert check(SCANNED, (np.zeros(4, np.float32),)) == ["Scan"]


@pytest.mark.parametrize("last", ["Tanh(a7)", "Unsqueeze(a7, zero)"])
def test_deep_loops_are_looked_at_in_little_time(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A level is walked a few times, but not a few times for each time of every level above."""
    line = f"w7 = {last}"
    for level in range(7, 0, -1):
        line = (
            f"w{level - 1} = Loop(trips, on, a{level - 1}) <body = b{level} (int64 i{level}, bool c{level}, "
            f"float a{level}) => (bool d{level}, float w{level}) {{ d{level} = Identity(c{level}) {line} }}>"
        )
    graph = ir.serde.deserialize_model(
        model(f"(float[n, 4] a0, int64 trips, bool on, int64[1] zero) => (float w0) {{ {line} }}")
    )
    walks: list[ir.Graph] = []
    walk = bodies._walk  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(bodies, "_walk", lambda *given: (walks.append(given[1]), walk(*given))[1])
    analyze(graph)
    assert 7 <= len(walks) < 300
