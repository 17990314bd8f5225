"""What PyTorch's C++ code knows of the device: its indices, which is current."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

import smelt.frontends.eager as eager  # noqa: E402
from smelt.frontends.eager import device as registration  # noqa: E402


@pytest.fixture(autouse=True)
def two_devices() -> None:
    eager.set_device(6, "CPUExecutionProvider")


def test_gradients_on_an_index_that_was_set_up_after_a_backward_pass() -> None:
    torch.ones(2, requires_grad=True).sum().backward()
    eager.set_device(7, "CPUExecutionProvider")
    x = torch.ones(2, device="ort:7", requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.device == torch.device("ort", 7) and x.grad.tolist() == [3, 3]


def test_the_current_index_is_used_where_none_is_given() -> None:
    with torch.ort.device(6):
        made = [
            torch.ones(1, device="ort"), torch.ones(1).to("ort"), torch.ones(1).ort(), torch.arange(2, device="ort"),
            torch.kaiser_window(3, device="ort"),
        ]  # fmt: skip
        assert {t.device.index for t in made} == {6} and torch.accelerator.current_device_index() == 6
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(torch.ort.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
    with torch.accelerator.device_index(6):
        assert torch.ort.current_device() == 6
    torch.accelerator.synchronize()
    assert torch.ort.current_device() == 0


def test_the_device_waits_where_pytorch_has_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(registration, "register", lambda: asked.append(True))
    for own in (True, False):
        monkeypatch.setattr(registration, "has_own_accelerator", lambda own=own: own)
        registration.autoload()
    assert asked == [True]
