"""Networks train on the device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import smelt.frontends.eager as eager  # noqa: E402

assert eager.AVAILABLE


def mlp() -> tuple[Any, Any]:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), torch.randn(5, 4)


def cnn() -> tuple[Any, Any]:
    parts = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    return nn.Sequential(*parts), torch.randn(2, 3, 8, 8)


def encoder() -> tuple[Any, Any]:
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), torch.randn(2, 5, 16)


def curve(make: Callable[[], tuple[Any, Any]], optimizer: Any, device: str, steps: int) -> list[float]:
    torch.manual_seed(0)
    model, x = make()
    model, x = model.to(device), x.to(device)
    steering = optimizer(model.parameters())
    losses: list[float] = []
    for _ in range(steps):
        steering.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        steering.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("make", [mlp, cnn, encoder], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), lambda p: torch.optim.AdamW(p, 0.01),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    ],
    ids=["sgd", "adamw", "adamw-foreach"],
)  # fmt: skip
def test_losses_are_the_cpus(make: Any, optimizer: Any) -> None:
    got, wanted = (curve(make, optimizer, device, 8) for device in ("ort", "cpu"))
    assert got == pytest.approx(wanted, rel=2e-4, abs=1e-6)


def test_classifier_with_embedding_and_cross_entropy() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(11, 8), nn.Linear(8, 3)

        def forward(self, ids: Any) -> Any:
            return self.out(self.embed(ids).mean(1))

    torch.manual_seed(0)
    model, ids, labels = Words(), torch.randint(0, 11, (4, 6)), torch.tensor([0, 2, 1, 1])
    loss = nn.functional.cross_entropy(model(ids), labels)
    loss.backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.to("ort")
    nn.functional.cross_entropy(model(ids.to("ort")), labels.to("ort")).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad.cpu(), wanted[name])


def test_autocast_lowers_products_and_keeps_losses() -> None:
    a = torch.randn(3, 4, device="ort")
    with torch.autocast("ort", dtype=torch.bfloat16):
        assert (a @ a.t()).dtype == torch.bfloat16
        assert nn.functional.mse_loss(a.bfloat16(), a.bfloat16()).dtype == torch.float32
    assert (a @ a.t()).dtype == torch.float32


def test_gradients_of_gradients() -> None:
    x = torch.linspace(0.1, 1.0, 5).to("ort").requires_grad_()
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second.cpu(), 6 * x.detach().cpu())
