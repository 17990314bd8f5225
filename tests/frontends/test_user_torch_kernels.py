"""A torch op with a kernel of the user's own: forwards, backwards, explained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import smelt

torch = pytest.importorskip("torch")
SNAKE = "float snake(float x, float alpha) { float s = sinf(alpha * x); return x + s * s / alpha; }"


def test_a_torch_op_runs_in_its_kernel_forwards_and_backwards() -> None:
    @torch.library.custom_op("smelt_test::snake", mutates_args=())
    def op(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
        return x + torch.sin(alpha * x) ** 2 / alpha

    @torch.library.custom_op("smelt_test::snake_grad", mutates_args=())
    def gradient(g: torch.Tensor, x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
        return g * (1 + torch.sin(2 * alpha * x))

    op.register_fake(lambda x, alpha=1.0: torch.empty_like(x))
    gradient.register_fake(lambda g, x, alpha=1.0: torch.empty_like(x))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.alpha = inputs[1]

    def backward(ctx: Any, g: Any) -> Any:
        return torch.ops.smelt_test.snake_grad(g, ctx.saved_tensors[0], ctx.alpha), None

    op.register_autograd(backward, setup_context=keep)
    smelt.kernel("smelt_test::snake", SNAKE)
    smelt.kernel(
        "smelt_test::snake_grad", "float f(float g, float x, float alpha) { return g * (1 + sinf(2 * alpha * x)); }"
    )
    try:
        inner = torch.nn.Linear(8, 8)
        function = torch.compile(lambda x: torch.ops.smelt_test.snake(inner(x), 2.0), backend="smelt")
        x = torch.randn(4, 8, requires_grad=True)
        y = function(x)
        y.sum().backward()
        mine, x.grad = x.grad, None
        wanted = op(inner(x), 2.0)
        wanted.sum().backward()
        torch.testing.assert_close(y, wanted, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(mine, x.grad, atol=1e-5, rtol=1e-5)
        report = smelt.explain(lambda x: torch.ops.smelt_test.snake(inner(x), 2.0), x.detach())
        assert "run in torch" not in str(report)
    finally:
        smelt.forget_kernel("smelt_test::snake")
        smelt.forget_kernel("smelt_test::snake_grad")


SCALED = """
void scaled(const float *x, const float *w, float *y, int64_t n) {
  float total = 0;
  for (int64_t i = 0; i < n; i++) total += x[i] * x[i];
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * w[i] / sqrtf(total / n + 1);
}
"""
SCALED_GRAD = """
void scaled_grad(const float *g, const float *x, const float *w, float *dx, int64_t n) {
  float total = 0, along = 0;
  for (int64_t i = 0; i < n; i++) total += x[i] * x[i];
  for (int64_t i = 0; i < n; i++) along += g[i] * w[i] * x[i];
  const float scale = 1 / sqrtf(total / n + 1);
  for (int64_t i = 0; i < n; i++) dx[i] = scale * (g[i] * w[i] - x[i] * along * scale * scale / n);
}
"""
BENT = "float bent(float x, float y) { return x > 0 ? x * x * y : expf(x) * y - y; }"
BENT_GRAD = """
void bent_grad(const smelt_array *g, const smelt_array *x, const smelt_array *y, smelt_array *dx) {
  const double *from = g->data, *a = x->data, *b = y->data;
  for (int64_t i = 0; i < g->size; i++) ((double *)dx->data)[i] = from[i] * b[i] * (a[i] > 0 ? 2 * a[i] : exp(a[i]));
}
"""


def scaled(x: Any, w: Any) -> Any:
    return x * w / torch.sqrt((x * x).mean(-1, keepdim=True) + 1)


def scaled_grad(g: Any, x: Any, w: Any) -> Any:
    scale = 1 / torch.sqrt((x * x).mean(-1, keepdim=True) + 1)
    return scale * (g * w - x * (g * w * x).mean(-1, keepdim=True) * scale**2)


def bent(x: Any, y: Any) -> Any:
    return torch.where(x > 0, x * x * y, torch.exp(x) * y - y)


def bent_grad(g: Any, x: Any, y: Any) -> Any:
    return g * y * torch.where(x > 0, 2 * x, torch.exp(x))


Pair = tuple[tuple[Callable[..., Any], str], tuple[Callable[..., Any], str]]
RULES: dict[str, Pair] = {
    "rows": ((scaled, SCALED), (scaled_grad, SCALED_GRAD)),
    "elements, whole tensors": ((bent, BENT), (bent_grad, BENT_GRAD)),
}


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[Callable[[Pair, str], Any]]:
    """An op with a rule for its first operand's gradient; kernels for both."""
    names = list[str]()

    def register(pair: Pair, name: str) -> Any:
        ops = list[Any]()
        for part, (function, text) in zip(("", "_grad"), pair, strict=True):
            arguments = ", ".join(f"Tensor {parameter}" for parameter in inspect.signature(function).parameters)
            op: Any = torch.library.custom_op(
                f"smelt_test::{name}{part}", function, mutates_args=(), schema=f"({arguments}) -> Tensor"
            )
            op.register_fake(lambda a, *_: torch.empty_like(a))
            smelt.kernel(f"smelt_test::{name}{part}", text)
            names.append(f"smelt_test::{name}{part}")
            ops.append(op)

        def backward(ctx: Any, g: Any) -> Any:
            return ops[1](g, *ctx.saved_tensors), None

        ops[0].register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
        return ops[0]

    yield register
    for name in names:
        smelt.forget_kernel(name)


def operands() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.rand(3, 5, dtype=torch.float64)


@pytest.mark.parametrize("name", RULES)
def test_gradients_of_compiled_kernels_pass_gradcheck(name: str, registered: Callable[[Pair, str], Any]) -> None:
    op = registered(RULES[name], name.split(",")[0])
    function = torch.compile(lambda x, w: op(torch.tanh(x), w), backend="smelt")
    x, w = operands()
    assert torch.autograd.gradcheck(function, (x, w))
    assert "run in torch" not in str(smelt.explain(lambda x, w: op(torch.tanh(x), w), x.detach(), w))


def test_gradcheck_finds_a_rule_that_is_wrong(registered: Callable[[Pair, str], Any]) -> None:
    """The kernel agrees with its reference: both have the wrong factor."""
    wrong = (lambda g, x, y: 1.01 * bent_grad(g, x, y), BENT_GRAD.replace("from[i] *", "1.01 * from[i] *"))
    op = registered((RULES["elements, whole tensors"][0], wrong), "wrong")
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(torch.compile(lambda x, w: op(x, w), backend="smelt"), operands())
