"""Values for which ONNX Runtime differs: the CPU answers, whatever was computed before."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import smelt.frontends.eager as eager  # noqa: E402

assert eager.AVAILABLE
NAN, INF, LEAST = float("nan"), float("inf"), -(2**63)


def whole(device: str, *values: int) -> Any:
    return torch.tensor(values, device=device)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


# A call, a value that is right for it, and values that are not.
CASES: dict[str, tuple[Callable[[str, Any], Any], Any, tuple[Any, ...]]] = {
    "embedding": (lambda d, v: F.embedding(whole(d, v), torch.ones(3, 2, device=d)), 0, (-1, 3)),
    "gather": (lambda d, v: torch.ones(3, device=d).gather(0, whole(d, v)), 0, (-1, 3)),
    "scatter": (lambda d, v: torch.ones(3, device=d).scatter(0, whole(d, v), 5.0), 0, (-1, 3)),
    "index_add": (lambda d, v: torch.ones(3, device=d).index_add(0, whole(d, v), torch.ones(1, device=d)), 0, (-1, 3)),
    "index": (lambda d, v: torch.arange(3.0, device=d)[whole(d, v)], 0, (-1, 3, -4)),
    "nll_loss": (lambda d, v: F.nll_loss(torch.ones(2, 3, device=d), whole(d, 0, v)), 0, (-1, 3, -100)),
    "floor_divide": (lambda d, v: whole(d, LEAST, 5) // whole(d, v, 3), 1, (-1, 0)),
    "remainder": (lambda d, v: whole(d, LEAST, 5) % whole(d, v, 3), 1, (-1, 0)),
    "max": (lambda d, v: torch.tensor([1.0, v], device=d).max(), 0.0, (NAN,)),
    "max_pool2d": (lambda d, v: F.max_pool2d(torch.tensor([[[[1.0, v], [2.0, 3.0]]]], device=d), 2), 0.0, (NAN,)),
    "gelu": (lambda d, v: F.gelu(torch.tensor([v, 1.0], device=d)), 0.0, (INF, -INF, NAN)),
    "atan2": (lambda d, v: torch.tensor([0.0, -0.0], device=d).atan2(torch.tensor([v, v], device=d)), 1.0, (-0.0, 0.0)),
    "bce": (lambda d, v: F.binary_cross_entropy(torch.tensor([v], device=d), torch.ones(1, device=d)), 0.5, (2.0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_answers_for_what_differs(name: str) -> None:
    call, good, bad = CASES[name]
    for value in (good, *bad):
        wanted, got = (outcome(lambda d=device, v=value: call(d, v)) for device in ("cpu", "ort"))
        if isinstance(wanted, Exception):
            assert type(got) is type(wanted) and str(got).splitlines()[0] == str(wanted).splitlines()[0]
        else:
            torch.testing.assert_close(got.cpu(), wanted, equal_nan=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.arange(3, device=d).softmax(0),
        lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, dtype=torch.int64, device=d),
    ],
)
def test_types_that_the_cpu_refuses_are_refused(call: Any) -> None:
    wanted, got = (outcome(lambda d=device: call(d)) for device in ("cpu", "ort"))
    assert isinstance(wanted, Exception) and type(got) is type(wanted) and str(got) == str(wanted)


def blocked(x: Any) -> Any:
    return x.view(1, 2, 2, 3).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.t() + 1, lambda x: x.t().relu(), lambda x: x.t().cumsum(0), lambda x: x.rot90(),
        lambda x: x.t() == 0, lambda x: x.unsafe_chunk(2, 1)[1],
        lambda x: torch.add(x.t(), x.t(), out=torch.empty(0, device=x.device)),
        lambda x: F.conv2d(blocked(x), torch.ones(1, 2, 1, 1, device=x.device)), lambda x: blocked(x) * 2,
    ],
)  # fmt: skip
def test_results_have_the_strides_of_the_cpus(call: Any) -> None:
    wanted = call(torch.arange(12.0).view(3, 4))
    for _ in range(2):
        got = call(torch.arange(12.0, device="ort").view(3, 4))
        assert got.is_ort and got.stride() == wanted.stride() and torch.equal(got.cpu(), wanted)


def test_results_that_are_one_value() -> None:
    for _ in range(2):
        got = torch.unique_consecutive(whole("ort", 1, 1, 2, 2, 1))
        assert got.tolist() == [1, 2, 1]


def test_a_pending_conjugation_is_seen_by_the_cpu() -> None:
    one, other = torch.randn(2, 2, dtype=torch.complex64), torch.randn(2, 2, dtype=torch.complex64)
    torch.testing.assert_close((one.to("ort").mH @ other.to("ort")).cpu(), one.mH @ other)


def test_packed_sequences_keep_their_sizes_on_the_cpu() -> None:
    torch.manual_seed(0)
    plain, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    results: list[Any] = []
    for device in ("cpu", "ort"):
        given = x.clone().to(device).requires_grad_()
        packed = nn.utils.rnn.pack_padded_sequence(given, torch.tensor([5, 3]), batch_first=True)
        assert packed.data.device.type == device and packed.batch_sizes.device.type == "cpu"
        y, lengths = nn.utils.rnn.pad_packed_sequence(copy.deepcopy(plain).to(device)(packed)[0], batch_first=True)
        y.sum().backward()
        assert lengths.tolist() == [5, 3]
        results.append((y.detach().cpu(), given.grad.cpu()))
    torch.testing.assert_close(results[1], results[0])
