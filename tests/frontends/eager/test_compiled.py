"""`torch.compile(backend="smelt")` of a module on the device: one session over the tensors' own memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import smelt.frontends.eager as eager  # noqa: E402
from smelt.frontends.eager import memory  # noqa: E402
from smelt.frontends.torch_compile import Listening, smelt_backend  # noqa: E402


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def compiled(module: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(module, backend=smelt_backend)


def test_a_graph_is_one_session_and_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.runtime import TorchRunner

    fed: list[set[int]] = []
    plain = TorchRunner.__init__

    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        inner = self.call

        def call(given: Any) -> Any:
            fed.append({t.data_ptr() for t in given if isinstance(t, torch.Tensor)})
            return inner(given)

        self.call = call

    monkeypatch.setattr(TorchRunner, "__init__", watched)
    module = mlp().to("ort")
    x = torch.randn(3, 8)
    there = x.to("ort")
    with Listening() as record, torch.no_grad():
        call = compiled(module)
        call(there)
        eager.reset_counts()
        y = call(there)
        z = call(there)
    assert y.is_ort and not record.fallback_nodes and not record.fallbacks
    assert not eager.natives() and not eager.fallbacks()
    assert fed[-1] >= {there.data_ptr(), module[0].bias.data_ptr()} and y.data_ptr() != z.data_ptr()
    torch.testing.assert_close(y.cpu(), mlp()(x))


def test_it_trains_as_on_the_cpu() -> None:
    curves: list[list[float]] = []
    for device in ("cpu", "ort"):
        module = mlp().to(device)
        call = compiled(module) if device == "ort" else module
        steering = torch.optim.SGD(module.parameters(), 0.1)
        x = torch.linspace(-1, 1, 24).reshape(3, 8).to(device)
        losses: list[float] = []
        for _ in range(4):
            steering.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            steering.step()
            losses.append(loss.item())
        assert module[0].weight.grad.device.type == device
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)


def test_weights_that_were_written_are_seen() -> None:
    module = mlp().to("ort")
    call = compiled(module)
    x = torch.ones(2, 8, device="ort")
    with torch.no_grad():
        call(x)
        for parameter in module.parameters():
            parameter.mul_(0.5)
        torch.testing.assert_close(call(x).cpu(), module(x).cpu())
        module[3].weight.data = torch.zeros(4, 16, device="ort")
        torch.testing.assert_close(call(x).cpu(), module(x).cpu())


def test_memory_under_two_names_is_one() -> None:
    x = torch.ones(3, device="ort")
    assert memory.on_cpu(x).data_ptr() == x.data_ptr()
