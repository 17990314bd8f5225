"""ONNX ops as torch ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import smelt.frontends.eager as eager  # noqa: E402
from smelt.base.errors import ConfigError  # noqa: E402
from smelt.export.expressions import op  # noqa: E402


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    for name in ("gemm", "cat", "square", "batchnorm_inplace", "hardmax"):
        eager.forget_op(name)


def test_an_op_by_its_onnx_name() -> None:
    eager.custom_op("gemm", "Gemm")
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)
    got = torch.ops.ort.gemm(a.to("ort"), b.to("ort"), c.to("ort"), alpha=2.0, beta=0.5)
    torch.testing.assert_close(got.cpu(), 2 * a @ b + c / 2)
    torch.testing.assert_close(torch.ops.ort.gemm(a, b.t().contiguous(), transB=1), a @ b)
    torch.testing.assert_close(torch.ops.ort.gemm(a.to("ort"), b.t().contiguous().to("ort").t()).cpu(), a @ b)
    with pytest.raises(RuntimeError, match=r"torch.ops.ort.gemm"):
        torch.ops.ort.gemm(a.to("ort"), a.to("ort"))


def test_variadic_inputs() -> None:
    eager.custom_op("cat", "Concat")
    a = torch.randn(2, 3, device="ort")
    assert torch.equal(torch.ops.ort.cat([a, a, a], axis=1), torch.cat([a, a, a], 1))


def test_gradients() -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 * ctx.saved_tensors[0]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    eager.custom_op("square", op.Mul("x", "x"), "(Tensor x) -> Tensor", backward=backward, setup_context=keep)
    x = torch.randn(3, device="ort", requires_grad=True)
    torch.ops.ort.square(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_arguments_that_are_written() -> None:
    def normalize(call: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        return call.op("BatchNormalization", x, scale, bias, mean, var, training_mode=1, outputs=3)

    eager.custom_op(
        "batchnorm_inplace", normalize,
        "(Tensor x, Tensor scale, Tensor bias, Tensor(a!) mean, Tensor(b!) var) -> Tensor",
    )  # fmt: skip
    x = torch.randn(4, 3, 5)
    mean, var = torch.zeros(3, device="ort"), torch.ones(3, device="ort")
    got = torch.ops.ort.batchnorm_inplace(
        x.to("ort"), torch.ones(3, device="ort"), torch.zeros(3, device="ort"), mean, var
    )
    torch.testing.assert_close(got.cpu(), torch.nn.functional.batch_norm(x, None, None, training=True))
    torch.testing.assert_close(mean.cpu(), 0.1 * x.mean((0, 2)))


def test_fake_tensors_follow_onnx_shapes() -> None:
    eager.custom_op("gemm", "Gemm")
    compiled = torch.compile(
        lambda a, b: torch.ops.ort.gemm(a, b) + 1, backend="aot_eager", dynamic=True, fullgraph=True
    )
    for rows in (3, 7):
        a, b = torch.randn(rows, 4), torch.randn(4, 5)
        torch.testing.assert_close(compiled(a, b), a @ b + 1)


def test_wrong_definitions_are_refused() -> None:
    with pytest.raises(ConfigError, match="no op"):
        eager.custom_op("hardmax", "Hardmaxx")
    with pytest.raises(ConfigError, match="schema"):
        eager.custom_op("hardmax", op.Hardmax("x"))
    with pytest.raises(ConfigError, match="no name"):
        eager.custom_op("hard max", "Hardmax")
