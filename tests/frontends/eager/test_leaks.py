"""Many calls keep no memory, and constants that change make no end of programs."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import smelt.frontends.eager as eager  # noqa: E402

PAGE_BYTES = 4096


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def calls(a: Any, b: Any, number: int) -> None:
    """Ten calls: new results, in place, out=, views, a fallback, copies, a gradient."""
    c = a + b
    c.mul_(2.0)
    torch.sigmoid(c[1:].t())
    torch.add(a, b, out=c)
    torch.addcdiv(a, a, b, value=float(number))
    torch.linalg.norm(c)
    c.to("cpu").to("ort")
    c.resize_(4, 8)
    leaf = a.detach().requires_grad_()
    (leaf * b).sum().backward()


def growth(rounds: int) -> int:
    torch.manual_seed(0)
    a, b = torch.rand(4, 4, device="ort"), torch.rand(4, 4, device="ort") + 1
    for number in range(max(rounds // 10, 1_000)):  # what allocators and caches take once is taken by then
        calls(a, b, number)
    gc.collect()
    before = resident_bytes()
    for number in range(rounds):
        calls(a, b, number)
    gc.collect()
    return resident_bytes() - before


def test_ten_thousand_calls_leave_nothing() -> None:
    assert growth(1_000) < 4_000_000


@pytest.mark.full
def test_a_hundred_thousand_calls_leave_nothing() -> None:
    assert growth(10_000) < 4_000_000


def test_constants_that_change_are_left_to_the_cpu_after_a_while() -> None:
    from smelt.frontends.eager.kernels import native_ops

    x = torch.ones(3, device="ort")
    eager.reset_counts()
    for number in range(40):
        assert torch.addcmul(x, x, x, value=number / 4)[0].item() == 1 + number / 4
    assert eager.natives()["aten.addcmul.default"] < 20
    assert any("changes from call to call" in f.reason for f in eager.fallbacks())
    kept = native_ops["aten.addcmul.default"].programs._by_kind  # pyright: ignore[reportPrivateUsage]
    assert sum(map(len, kept.values())) < 20
