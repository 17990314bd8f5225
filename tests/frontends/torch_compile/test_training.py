"""Gradients through compiled graphs are eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smelt.frontends.torch_compile import Listening

PLAIN = {"kernels": False}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(F.gelu(self.norm(self.table(tokens))), 0.3)
        return F.cross_entropy(self.head(hidden).view(-1, 50), tokens.view(-1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width)).square().mean()


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(self.second(x).mean((2, 3))).square().mean()


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 4), nn.Softmax(-1), nn.Flatten(0))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "feed-forward": (feed_forward, lambda n: torch.randn(n, 8)),
    "classifier": (Classifier, lambda n: torch.randint(0, 50, (2, n))),
    "attention": (Attention, lambda n: torch.randn(2, n, 32)),
    "convolutions": (Convolutions, lambda n: torch.randn(n, 3, 12, 12)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_and_buffers_are_those_of_eager(case: str, dynamic: bool):
    make, inputs = CASES[case]
    model = make()
    twin = copy.deepcopy(model)
    fast = torch.compile(twin, backend="smelt", dynamic=dynamic, options=PLAIN)
    for size in (4, 6) if dynamic else (4,):
        x = inputs(size)
        losses = []
        for each in (model, fast):
            each.zero_grad()
            torch.manual_seed(7)
            loss = each(x).sum()
            loss.backward()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
        for (name, wanted), found in zip(model.named_parameters(), twin.parameters(), strict=True):
            scale = float(wanted.grad.abs().max())
            torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-3, atol=1e-4 * scale + 1e-7, msg=name)
        for wanted, found in zip(model.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_dropout_does_not_cut_the_graph():
    """Masks are drawn in torch, for the same numbers as in eager; all else is one session."""

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(F.dropout(x.sin(), 0.3).cos(), 0.4).tan()

    x = torch.randn(6, 5, requires_grad=True)
    for dynamic in (False, True):
        torch._dynamo.reset()
        with Listening() as record:
            torch.manual_seed(3)
            found = torch.compile(Twice(), backend="smelt", dynamic=dynamic, options=PLAIN)(x)
        torch.manual_seed(3)
        torch.testing.assert_close(found, Twice()(x))
        forward = record.graphs[0]
        assert forward.kind == "forward" and len(forward.parts) == 1
        assert [node.target for node in forward.left] == ["aten.native_dropout.default"] * 2
