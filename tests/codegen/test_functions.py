"""Functions written in C over whole tensors, in the middle of generated loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from region_check import Graph, check, floats

import smelt
from smelt.ir.kernel import Function, Tensor, ix, product
from smelt.ir.kernel import expr as E
from smelt.ops import Call, op, registry

# Running sums of rows with a factor; with a second result, the last one of each row, and a second operand to add.
TEXT = """
#include <smelt/threads/loop.h>
static void rows(void *p, int64_t task) {
  const smelt_task *t = p;
  const float *x = t->b[0], *more = t->b[1];
  float *y = t->b[2], *last = t->b[3], *sums = t->b[4];
  const int64_t n = t->s[1];
  for (int64_t r = task * t->step; r < smelt_min((task + 1) * t->step, t->units); r++) {
    float sum = more ? more[r] : 0;
    for (int64_t i = 0; i < n; i++) {
      sum += (float)t->f[0] * x[r * n + i];
      if (y) y[r * n + i] = sum;
    }
    sums[r] = sum;
    if (last) last[r] = sums[r];
  }
}
int32_t SMELT_NAME(test_run_up)(smelt_task *t) {
  if (t->s[1] > 1000) return smelt_fail(t->env, SMELT_E_VALUE, -1, t->s[1], 0, 0);
  return smelt_launch(t, rows, t->s[0], t->s[1] * 4, 0);
}
"""


def _reference(arrays, numbers, factors):
    x, more = arrays
    sums = np.cumsum(factors[0] * x, -1) + (0 if more is None else more[..., None])
    return sums, sums[..., -1] if x.shape[-1] else np.zeros(x.shape[:-1]) + (0 if more is None else more)


def _run_up(call: Call) -> tuple[Tensor, ...]:
    x, more = call.x(), call.maybe(1)
    function = Function(
        name="test_run_up", text=TEXT, operands=(x, more), results=((x.shape, "f32"), (x.shape[:-1], "f32")),
        numbers=(product(x.shape[:-1]), x.shape[-1]), factors=(call.float("scale", 1.0),),
        scratch_bytes=product(x.shape[:-1]) * 4, flops=x.elements * 2, reference=_reference,
    )  # fmt: skip
    return call.k.function(function)


@pytest.fixture(autouse=True)
def run_up() -> Iterator[None]:
    """CumSum stands in: ONNX Runtime has to know the op to be compared with."""
    known = dict(registry._registry.by_name)
    yield
    registry._registry.by_name = known


def _declare(lower) -> None:
    registry._registry.by_name["", "CumSum"] = []
    op("CumSum", since=11, kind="function")(lower)


def test_a_function_runs_between_loops_that_make_its_operand_and_read_its_result():
    def lower(call: Call) -> Tensor:
        every, _ = _run_up(Call(call.k, call.op, call.opset, [call.x()], {}, 2))
        return every

    _declare(lower)
    head = "<int64 k = {1}> "
    check(
        Graph(f"(float[a,b] x) => (float[a,b] y) {head}{{ e = Exp(x)  s = CumSum(e, k)  y = Neg(s) }}", [floats(5, 7)]),
        Graph(f"(float[a,b] x) => (float[a,b] y) {head}{{ y = CumSum(x, k) }}", [floats(300, 70)]),
        Graph(f"(float[a,b] x) => (float[b,a] y) {head}{{ t = Transpose(x)  y = CumSum(t, k) }}", [floats(5, 7)]),
        Graph(f"(float[a,b] x) => (float[a,b] y) {head}{{ y = CumSum(x, k) }}", [floats(0, 7)]),
        Graph(f"(float[a,b] x) => (float[a,b] y) {head}{{ y = CumSum(x, k) }}", [floats(5, 0)]),
        Graph(f"(float[a,b] x) => (float[a,b] y, float[a,b] z) {head}"
              "{ y = CumSum(x, k)  z = Identity(y) }", [floats(5, 7)]),
    )  # fmt: skip


def test_results_and_operands_may_be_absent():
    def lower(call: Call) -> Tensor:
        """The same running sums, by the last sums of a first function as the start of a second one."""
        k, x = call.k, call.x()
        whole = Call(k, call.op, call.opset, [x], {}, 2)
        _, last = _run_up(whole)
        every, _ = _run_up(Call(k, call.op, call.opset, [x, k.map(lambda e: E.op("neg", e), last)], {}, 2))
        return k.map(lambda e, s: E.op("add", e, s), every, k.reshape(last, (*last.shape, ix(1))))

    _declare(lower)
    text = "(float[a,b] x) => (float[a,b] y) <int64 k = {1}> { y = CumSum(x, k) }"
    check(Graph(text, [floats(5, 7)]), Graph(text, [floats(64, 33)]), atol=1e-5)


def test_a_function_says_what_the_data_forbid():
    def lower(call: Call) -> Tensor:
        return _run_up(Call(call.k, call.op, call.opset, [call.x()], {}, 2))[0]

    _declare(lower)
    text = "(float[a,b] x) => (float[a,b] y) <int64 k = {1}> { y = CumSum(x, k) }"
    model = Graph(text, []).model(21)
    with (
        smelt.compile(model, force=True, levels="v2", verify=False, threads=1) as compiled,
        pytest.raises(Exception, match="1001"),
    ):
        compiled.run({"x": floats(2, 1001)})


def test_explain_calls_it_a_function():
    _declare(lambda call: _run_up(Call(call.k, call.op, call.opset, [call.x()], {}, 2))[0])
    text = "(float[a,b] x) => (float[a,b] y) <int64 k = {1}> { y = CumSum(x, k) }"
    with smelt.compile(Graph(text, []).model(21), force=True, levels="v2", verify=False, threads=1) as compiled:
        kernels = [k for entry in compiled.result.generated.source.entries for k in entry.kernels]
    assert [(k.name, k.kind, k.nodes) for k in kernels] == [("test_run_up", "function", kernels[0].nodes)]
