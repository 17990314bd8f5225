"""ONNX ops as PyTorch ops on the device `ort`: `gemm`, `batchnorm_inplace`, a variadic `cat`, and any other by name.

    python examples/eager_custom_ops.py

Each op has a kernel for `ort` and for the CPU, a rule for fake tensors, and, where it is given, a gradient; so it also
goes through `torch.compile` and `smelt.export`.
"""

from __future__ import annotations

from typing import Any

import torch

import smelt


def gemm() -> torch.Tensor:
    """One ONNX op: the schema follows from ONNX's own. The gradient is written in torch."""

    def keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:  # noqa: ARG001
        ctx.save_for_backward(*inputs[:2])
        ctx.alpha = keyword_only_inputs["alpha"]

    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        return ctx.alpha * grad @ b.t(), ctx.alpha * a.t() @ grad, grad.sum(0)

    smelt.eager.custom_op("gemm", "Gemm", backward=backward, setup_context=keep)
    a, b, c = (torch.randn(size, device="ort", requires_grad=True) for size in ((3, 4), (4, 5), (5,)))
    y = torch.ops.ort.gemm(a, b, c, alpha=2.0)
    y.sum().backward()
    torch.testing.assert_close(a.grad, 2 * torch.ones_like(y) @ b.detach().t())
    return y.detach() - (2 * a @ b + c).detach()


def batchnorm_inplace() -> torch.Tensor:
    """Arguments that are written: `Tensor(a!)` in the schema, their new values behind the results."""

    def normalize(call: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        return call.op("BatchNormalization", x, scale, bias, mean, var, training_mode=1, outputs=3)

    smelt.eager.custom_op(
        "batchnorm_inplace",
        normalize,
        "(Tensor x, Tensor scale, Tensor bias, Tensor(a!) mean, Tensor(b!) var) -> Tensor",
    )
    x = torch.randn(4, 3, 5, device="ort")
    mean, var = torch.zeros(3, device="ort"), torch.ones(3, device="ort")
    y = torch.ops.ort.batchnorm_inplace(x, torch.ones(3, device="ort"), torch.zeros(3, device="ort"), mean, var)
    torch.testing.assert_close(mean, 0.1 * x.mean((0, 2)))
    return y - torch.nn.functional.batch_norm(x, None, None, training=True)


def variadic_cat() -> torch.Tensor:
    """Any number of inputs: a list of tensors."""

    def keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:  # noqa: ARG001
        ctx.axis = keyword_only_inputs["axis"]
        ctx.sizes = [tensor.shape[ctx.axis] for tensor in inputs[0]]

    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return list(grad.split(ctx.sizes, ctx.axis))

    smelt.eager.custom_op("cat", "Concat", backward=backward, setup_context=keep)
    parts = [torch.randn(2, n, device="ort", requires_grad=True) for n in (1, 2, 3)]
    y = torch.ops.ort.cat(parts, axis=1)
    y.square().sum().backward()
    for part in parts:
        torch.testing.assert_close(part.grad, 2 * part.detach())
    return (y - torch.cat(parts, 1)).detach()


def any_other() -> torch.Tensor:
    """ONNX ops that PyTorch has not, by their names, and in a compiled graph."""
    smelt.eager.custom_op("hardmax", "Hardmax")
    smelt.eager.custom_op("mish", "Mish")
    x = torch.randn(3, 4, device="ort")
    assert torch.ops.ort.hardmax(x, axis=1).sum().item() == 3
    compiled = torch.compile(lambda x: torch.ops.ort.mish(x) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.ops.ort.mish(x) + 1)
    return torch.ops.ort.mish(x) - torch.nn.functional.mish(x)


def main() -> None:
    torch.manual_seed(0)
    for example in (gemm, batchnorm_inplace, variadic_cat, any_other):
        difference = example().abs().max().item()
        print(f"{example.__name__:18} differs from torch by {difference:.1e}")
        assert difference < 1e-5
    print("in ONNX Runtime:", ", ".join(name for name in smelt.eager.natives() if name.startswith("ort.")))
    for name in ("gemm", "batchnorm_inplace", "cat", "hardmax", "mish"):
        smelt.eager.forget_op(name)


if __name__ == "__main__":
    main()
