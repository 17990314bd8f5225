"""Calls that go past AOTAutograd's wrappers, and calls that must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from smelt.frontends.torch_compile import _torch  # noqa: E402
from smelt.frontends.torch_compile.calls import bare  # noqa: E402
from smelt.frontends.torch_compile.parts import part  # noqa: E402

Function = Callable[..., Any]


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every graph that is compiled: whether its calls go past the wrappers."""
    found: list[bool] = []
    function = bare.Bare.function

    def watched(self: bare.Bare, wrapped: Function) -> Function:
        made = function(self, wrapped)
        found.append(made is not wrapped)
        return made

    monkeypatch.setattr(bare.Bare, "function", watched)
    torch._dynamo.reset()
    return found


def compiled(function: Function, **options: Any) -> Function:
    return torch.compile(function, backend="smelt", options={"kernels": False, **options})


def test_a_plain_graph_needs_no_wrapper(direct: list[bool]):
    fast = compiled(lambda x, y: (x @ y, torch.relu(x)))
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    for found, wanted in zip(fast(x, y), (x @ y, torch.relu(x)), strict=True):
        torch.testing.assert_close(found, wanted)
    assert direct == [True]


def written(x: Any) -> Any:
    x.add_(1)
    return x * 2


def viewed(x: Any) -> Any:
    return x * 2, x.view(-1)


def itself(x: Any) -> Any:
    return x, x * 2


def size(x: Any) -> Any:
    return x * 2, x.shape[0] + 1


@pytest.mark.parametrize("function", [written, viewed, itself, size])
def test_effects_and_shared_memory_are_those_of_eager(function: Function, direct: list[bool]):
    given = [torch.arange(12.0).view(3, 4) for _ in range(2)]
    wanted, found = function(given[0]), compiled(function)(given[1])
    torch.testing.assert_close(found, wanted)
    assert torch.equal(*given)
    assert shared(given[0], wanted) == shared(given[1], found)


def shared(x: Any, results: Any) -> list[bool]:
    """Which results lie in the argument's memory."""
    listed = results if isinstance(results, tuple) else (results,)
    return [t.untyped_storage().data_ptr() == x.data_ptr() for t in listed if isinstance(t, torch.Tensor)]


def test_gradients_keep_it_too(direct: list[bool]):
    x = torch.ones(3, requires_grad=True)
    compiled(lambda x: (x * x).sum())(x).backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0)) and direct == [False]


def test_results_of_a_failed_call_are_eagers(direct: list[bool], monkeypatch: pytest.MonkeyPatch):
    calls: list[part.CompiledPart] = []
    monkeypatch.setattr(bare, "plain_results", lambda *a: True)
    weight = torch.nn.Parameter(torch.full((4, 4), 0.5))
    init = part.CompiledPart.__init__

    def kept(self: part.CompiledPart, *args: Any) -> None:
        init(self, *args)
        calls.append(self)

    monkeypatch.setattr(part.CompiledPart, "__init__", kept)
    fast = compiled(lambda x: x @ weight)
    with torch.no_grad():
        fast(torch.ones(2, 4))

        def broken(_args: Any) -> Any:
            raise RuntimeError("no session")

        calls[0].call = broken
        with pytest.warns(UserWarning, match="no session"):
            assert torch.equal(fast(torch.ones(2, 4)), torch.full((2, 4), 2.0))
    assert direct == [True]


def test_frozen_parameters_go_past_it_and_are_read_again(direct: list[bool]):
    import smelt

    model = torch.nn.Linear(4, 4).eval()
    fast = compiled(model, freeze=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
        model.weight.mul_(2)
        smelt.refresh(model)
        torch.testing.assert_close(fast(x), model(x))
    assert direct == [True]


def test_a_release_that_says_less_about_its_graphs_keeps_its_wrappers(
    direct: list[bool], monkeypatch: pytest.MonkeyPatch
):
    class Silent:
        pass

    monkeypatch.setattr(bare, "forward_metadata", Silent)
    assert compiled(torch.relu)(torch.ones(3)).tolist() == [1, 1, 1] and direct == [False]


def test_another_tensor_than_the_call_before_had_is_read_as_it_is(direct: list[bool]):
    fast = compiled(lambda x: x * 2)
    whole = torch.randn(8, 8)
    calls = [whole[:4, :4], whole[:4, :4].t(), whole[:4], whole.double()[:4, :4], whole[1:5, 1:5].contiguous()]
    calls += [whole[:4, :4].contiguous(), whole.flatten()[:16], whole.flatten()[1:17].view(4, 4), whole[::2, ::2]]
    for x in (*calls, *calls):
        assert torch.equal(fast(x), x * 2)
    assert direct[0]


class Held(torch.nn.Module):
    """A parameter, a buffer and a plain tensor beside the argument."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.register_buffer("shift", torch.randn(4, 4))
        self.table = torch.randn(4, 4)

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.shift * self.table


@pytest.mark.parametrize("name", ["weight", "shift", "table"])
def test_a_tensor_that_the_module_holds_may_get_other_memory_and_strides(name: str, direct: list[bool]):
    model = Held().eval()
    fast, x = compiled(model), torch.randn(4, 4)
    with torch.no_grad():
        for _ in range(3):
            getattr(model, name).data = torch.randn(4, 4).t()
            torch.testing.assert_close(fast(x), model(x))
    assert direct[0]


def test_only_arguments_that_are_compared_before_each_call_are_not_looked_at_again():
    seen: list[list[int]] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        seen.append(_torch.frame_arguments(graph))
        return graph

    torch._dynamo.reset()
    torch.compile(Held(), backend=backend)(torch.randn(4, 4))
    torch.compile(lambda x, pair: x + pair[0] * pair[1], backend=backend)(torch.ones(2), [torch.ones(2)] * 2)
    assert seen == [[1], [1]]
