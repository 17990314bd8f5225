"""Results of one call that lie in one piece of memory in eager torch do so when compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from smelt.frontends.torch_compile import Listening

PLAIN = {"kernels": False}
Results = Sequence[torch.Tensor]


def whole_and_row(x: torch.Tensor) -> Results:
    y = x.exp() + 1
    return y, y[0]


def overlapping_rows(x: torch.Tensor) -> Results:
    y = x.exp() + 1
    return y[1:], y.sum(), y[:-1].t()


def used_further(x: torch.Tensor) -> Results:
    y = x.exp() + 1
    row = y[0].unsqueeze(0)
    return y, row, (row * 2).exp()


def halves(x: torch.Tensor) -> Results:
    return x.exp().split(2, dim=1)


def one_view_of_another(x: torch.Tensor) -> Results:
    flat = (x.exp() + 1).view(-1)
    return flat[2:], flat[2:].expand(3, -1)


FUNCTIONS = [whole_and_row, overlapping_rows, used_further, halves, one_view_of_another]


def memory(results: Results) -> list[int]:
    """Which of the results lie in the same memory, as the place of the first that does."""
    storages = [result.untyped_storage().data_ptr() for result in results]
    return [storages.index(storage) for storage in storages]


def compiled(function: Callable[[torch.Tensor], Results], **how: Any) -> Callable[[torch.Tensor], Results]:
    return torch.compile(function, backend="smelt", options=PLAIN, **how)


def same(found: Results, wanted: Results) -> None:
    assert memory(found) == memory(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_share_memory_as_in_eager(function: Callable[[torch.Tensor], Results], dynamic: bool):
    with Listening() as record:
        fast = compiled(function, dynamic=dynamic)
        for rows in (3, 5):
            x = torch.randn(rows, 4)
            same(fast(x), function(x))
    assert all(graph.whole and len(graph.parts) == 1 for graph in record.graphs)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_with_gradients_share_memory_as_in_eager(function: Callable[[torch.Tensor], Results]):
    x = torch.randn(3, 4, requires_grad=True)
    found, wanted = compiled(function)(x), function(x)
    same(found, wanted)
    grads = [torch.autograd.grad(sum(r.sum() for r in results), x)[0] for results in (found, wanted)]
    torch.testing.assert_close(*grads)


@torch.no_grad()
def test_a_write_to_one_result_is_seen_in_the_other():
    whole, row = compiled(whole_and_row)(torch.zeros(3, 4))
    whole[0, 1] = 7
    assert row.tolist() == [2, 7, 2, 2]


@torch.no_grad()
def test_a_lone_view_is_made_by_the_session():
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() + 1)[0]

    found = compiled(lambda x: [function(x)])(torch.randn(3, 4))[0]
    assert found.untyped_storage().nbytes() == 16
