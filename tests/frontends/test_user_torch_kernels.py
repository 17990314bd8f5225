"""A torch op with a kernel of the user's own: forwards, backwards, explained."""

from __future__ import annotations

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
        double = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda v: torch.ops.smelt_test.snake(v, 2.0), double)
    finally:
        smelt.forget_kernel("smelt_test::snake")
        smelt.forget_kernel("smelt_test::snake_grad")
