"""Arguments that a graph writes: what is replaced in them lies in their own memory, other results are copied there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from smelt.runtime import torch_binding


class Cache(torch.nn.Module):
    """Scores of a query against keys, one of which is new."""

    def forward(self, keys: torch.Tensor, new: torch.Tensor, place: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        keys.index_copy_(2, place, new)
        return query @ keys.transpose(-1, -2)


class Twice(torch.nn.Module):
    """What the argument held before is read beside what is written into it."""

    def forward(self, keys: torch.Tensor, new: torch.Tensor, place: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        before = keys * 2
        keys.index_copy_(2, place, new)
        return query @ keys.transpose(-1, -2) + before.mean()


def operands(length: int, rows: int, seed: int = 0) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    keys, new, query = (torch.randn(2, 3, size, 8, generator=made) for size in (length, rows, 1))
    return [keys, new, torch.randperm(length, generator=made)[:rows], query]


def overs(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What the outputs of each session are said to lie over."""
    seen: list[int | None] = []
    plain = torch_binding.TorchRunner.__init__

    def told(runner: Any, session: Any, feeds: Any, fetches: Any, *others: Any) -> None:
        seen.extend(fetch.over for fetch in fetches)
        plain(runner, session, feeds, fetches, *others)

    monkeypatch.setattr(torch_binding.TorchRunner, "__init__", told)
    return seen


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(("module", "shared"), [(Cache, True), (Twice, False)])
def test_a_cache_is_written_in_place(
    module: type[torch.nn.Module], shared: bool, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = overs(monkeypatch)
    torch._dynamo.reset()
    compiled = torch.compile(module(), backend="smelt", dynamic=True, options={"kernels": kernels, "strict": True})
    with torch.no_grad():
        for length, rows in ((300, 1), (300, 4), (40, 7), (300, 1)):
            mine, theirs = operands(length, rows), operands(length, rows)
            where = mine[0].data_ptr()
            made, wanted = compiled(*mine), module()(*theirs)
            torch.testing.assert_close(made, wanted)
            assert torch.equal(mine[0], theirs[0]) and mine[0].data_ptr() == where
    assert any(over is not None for over in seen) is shared


def test_a_cache_that_is_not_dense_is_written_too() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Cache(), backend="smelt", options={"kernels": False, "strict": True})
    with torch.no_grad():
        mine, theirs = operands(20, 2), operands(20, 2)
        mine[0], theirs[0] = (one[0].transpose(1, 2).contiguous().transpose(1, 2) for one in (mine, theirs))
        torch.testing.assert_close(compiled(*mine), Cache()(*theirs))
        assert torch.equal(mine[0], theirs[0])


class Running(torch.nn.Module):
    def forward(self, total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total.add_(x.sum(0))
        return total * 2


def test_what_is_not_replaced_is_copied_into_the_argument() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Running(), backend="smelt", options={"kernels": False, "strict": True})
    mine, theirs = torch.zeros(5), torch.zeros(5)
    with torch.no_grad():
        for step in range(3):
            x = torch.full((4, 5), float(step))
            assert torch.equal(compiled(mine, x), Running()(theirs, x)) and torch.equal(mine, theirs)


def test_a_call_that_writes_nothing_leaves_its_arguments() -> None:
    """index_copy makes a tensor of its own."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, i, y: x.index_copy(1, i, y), backend="smelt", options={"kernels": False})
    x, y, i = torch.zeros(3, 4), torch.ones(3, 1), torch.tensor([2])
    with torch.no_grad():
        made = compiled(x, i, y)
    assert made[:, 2].eq(1).all() and x.eq(0).all()
