"""The ATen ops that ONNX Runtime's own eager mode had, each with arguments.

Input: nothing. Output: `SEED_OPS`: a name, the functional call, and, where torch has them, the forms in place and with
`out=`. Invariant: arguments are CPU tensors, made anew at each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class SeedOp:
    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    in_place: str | None = None
    out: bool = True
    native: bool = True


def _x() -> torch.Tensor:
    return torch.linspace(-2.0, 2.0, 12).reshape(3, 4)


def _within() -> torch.Tensor:
    return torch.linspace(-0.9, 0.9, 12).reshape(3, 4)


def _positive() -> torch.Tensor:
    return torch.linspace(1.1, 3.0, 12).reshape(3, 4)


def _y() -> torch.Tensor:
    return torch.linspace(0.5, 2.5, 12).reshape(3, 4)


_DOMAIN = {
    "acos": _within, "acosh": _positive, "asin": _within, "atanh": _within, "log": _positive, "sqrt": _positive,
    "reciprocal": _positive,
}  # fmt: skip
_UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "log",
    "neg", "reciprocal", "round", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
_scores = torch.log_softmax(torch.linspace(-1.0, 1.0, 12).reshape(3, 4), 1)
_labels = torch.tensor([1, 0, 3])
aten = torch.ops.aten


def _unary() -> list[SeedOp]:
    made = [SeedOp(n, getattr(torch, n), (_DOMAIN.get(n, _x)(),), f"{n}_") for n in _UNARY]
    return [
        *made,
        SeedOp("hardsigmoid", aten.hardsigmoid, (_x(),), None, out=False),
        SeedOp("relu", torch.relu, (_x(),), "relu_", out=False),
        SeedOp("selu", torch.selu, (_x(),), None, out=False),
        SeedOp("det", torch.linalg.det, (_y()[:3, :3] + torch.eye(3),), None, out=False, native=False),
        SeedOp("isinf", torch.isinf, (_x() / 0,), None, out=False),
        SeedOp("isnan", torch.isnan, (_x() * float("nan"),), None, out=False),
    ]


def _binary() -> list[SeedOp]:
    made: list[SeedOp] = []
    for name in ("add", "sub", "mul", "div"):
        made.append(SeedOp(f"{name}.Tensor", getattr(torch, name), (_x(), _y()), f"{name}_"))
        made.append(SeedOp(f"{name}.Scalar", getattr(torch, name), (_x(), 1.5), f"{name}_", out=False))
        made.append(SeedOp(f"{name} of integers", getattr(torch, name), (_x(), torch.arange(4)), f"{name}_"))
    for name in ("eq", "ne", "lt", "gt"):
        made.append(SeedOp(f"{name}.Tensor", getattr(torch, name), (_x(), _y()), f"{name}_"))
        made.append(SeedOp(f"{name}.Scalar", getattr(torch, name), (_x(), 0.5), f"{name}_"))
    made.append(SeedOp("fmod.Tensor", torch.fmod, (_x(), _y()), "fmod_"))
    made.append(SeedOp("fmod.Scalar", torch.fmod, (_x(), 0.7), "fmod_"))
    made.append(SeedOp("bitwise_and of bool", torch.bitwise_and, (_x() > 0, _y() > 1), "bitwise_and_"))
    return made


def _shaping() -> list[SeedOp]:
    return [
        SeedOp("empty", lambda x: torch.empty_like(x).shape, (_x(),), None, out=False, native=False),
        SeedOp("empty_strided", lambda x: torch.empty_strided((2, 3), (1, 2), device=x.device).stride(), (_x(),), None,
               out=False, native=False),
        SeedOp("zero_", lambda x: x.clone().zero_(), (_x(),), None, out=False, native=False),
        SeedOp("copy_", lambda x: torch.empty_like(x).copy_(x), (_x(),), None, out=False, native=False),
        SeedOp("fill_.Scalar", lambda x: x.clone().fill_(3), (_x(),), None, out=False),
        SeedOp("_reshape_alias", lambda x: x.reshape(4, 3), (_x(),), None, out=False, native=False),
        SeedOp("view", lambda x: x.view(12), (_x(),), None, out=False, native=False),
        SeedOp("as_strided", lambda x: x.as_strided((2, 2), (4, 1)), (_x(),), None, out=False, native=False),
        SeedOp("slice.Tensor", lambda x: x[1:, ::2], (_x(),), None, out=False, native=False),
        SeedOp("resize_", lambda x: x.clone().resize_(3, 4), (_x(),), None, out=False, native=False),
        SeedOp("t", torch.t, (_x(),), None, out=False, native=False),
        SeedOp("zeros_like", torch.zeros_like, (_x(),), None, out=False),
        SeedOp("cat", lambda x, y: torch.cat([x, y], 1), (_x(), _y()), None, out=False),
        SeedOp("nonzero", torch.nonzero, (_x() > 0,)),
        SeedOp("masked_select", torch.masked_select, (_x(), _x() > 0)),
        SeedOp("equal", torch.equal, (_x(), _x()), None, out=False, native=False),
        SeedOp("_local_scalar_dense", lambda x: x.sum().item(), (_y(),), None, out=False),
    ]  # fmt: skip


def _computing() -> list[SeedOp]:
    return [
        SeedOp("addmm", torch.addmm, (_x()[:, :3], _x(), _y().t()), "addmm_"),
        SeedOp("mm", torch.mm, (_x(), _y().t())),
        SeedOp("sum.dim_IntList", lambda x, **k: torch.sum(x, [1], keepdim=True, **k), (_x(),)),
        SeedOp("threshold_backward", aten.threshold_backward, (_y(), _x(), 0), None, out=False),
        SeedOp("softshrink", torch.nn.functional.softshrink, (_x(),), None, out=False),
        SeedOp("hardshrink", torch.nn.functional.hardshrink, (_x(),), None, out=False),
        SeedOp("gelu", torch.nn.functional.gelu, (_x(),), None, out=False),
        SeedOp("gelu_backward", aten.gelu_backward, (_y(), _x()), None, out=False),
        SeedOp("max", torch.max, (_x(),), None, out=False),
        SeedOp("min", torch.min, (_x(),), None, out=False),
        SeedOp("argmax", lambda x, **k: torch.argmax(x, 1, **k), (_x(),)),
        SeedOp("_softmax", lambda x: aten._softmax(x, 1, False), (_x(),), None, out=False),
        SeedOp("_log_softmax", lambda x: aten._log_softmax(x, 1, False), (_x(),), None, out=False),
        SeedOp("_log_softmax_backward_data", lambda g, y: aten._log_softmax_backward_data(g, y, 1, torch.float32),
               (_y(), _scores), None, out=False),
        SeedOp("nll_loss_forward", lambda x, t: aten.nll_loss_forward(x, t, None, 1, -100)[0], (_scores, _labels), None,
               out=False),
        SeedOp("nll_loss_backward", lambda x, t: aten.nll_loss_backward(torch.ones((), device=x.device), x, t, None, 1,
               -100, torch.tensor(3.0, device=x.device)), (_scores, _labels), None, out=False),
    ]  # fmt: skip


SEED_OPS = (*_unary(), *_binary(), *_shaping(), *_computing())
