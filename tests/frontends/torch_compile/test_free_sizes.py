"""Sizes that come again have a function of their own; results are those of every other call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import smelt  # noqa: E402
from smelt.frontends.torch_compile.calls import bare, free_sizes  # noqa: E402
from smelt.frontends.torch_compile.calls.free_sizes import FreeSizes  # noqa: E402

Function = Callable[..., Any]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FreeSizes]:
    """Every graph with free sizes that is called past AOTAutograd's wrappers."""
    found: list[FreeSizes] = []

    class Watched(FreeSizes):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(bare, "FreeSizes", Watched)
    return found


def written(graphs: list[FreeSizes]) -> list[int]:
    return [len(graph._functions) for graph in graphs]


def compiled(function: Function, **options: Any) -> Function:
    return torch.compile(function, backend="smelt", dynamic=True, options={"kernels": False, **options})


def often(function: Function, *args: Any) -> Any:
    return [function(*args) for _ in range(free_sizes._AGAIN + 3)]


def test_sizes_that_come_again_get_a_function_and_the_same_results(made: list[FreeSizes]):
    fast = compiled(lambda x, y: (x @ y, torch.relu(x)))
    for rows in (3, 40, 3, 5):
        x, y = torch.randn(rows, 7), torch.randn(7, 2 * rows)
        for found in often(fast, x, y):
            assert torch.equal(found[1], torch.relu(x))
            torch.testing.assert_close(found[0], x @ y)
    assert written(made) == [3]


def test_sizes_that_come_once_do_not(made: list[FreeSizes]):
    fast = compiled(lambda x: x * 2)
    for rows in range(3, 40):
        assert torch.equal(fast(torch.ones(rows, 4)), torch.full((rows, 4), 2.0))
    assert written(made) == [0]


def test_integers_and_computed_sizes_are_those_of_the_call(made: list[FreeSizes]):
    def function(x: Any, y: Any, count: int) -> Any:
        return (x + y).reshape(x.shape[0] * 2, -1) * x.shape[1] + count

    fast = compiled(function)
    for rows, count in ((4, 7), (4, 9), (6, 9), (4, 7)):
        x, y = torch.randn(rows, 16), torch.randn(rows, 1)
        for found in often(fast, x, y, count):
            torch.testing.assert_close(found, function(x, y, count))
    assert sum(written(made)) in (0, 3)  # a product with an integer may be left to torch


@pytest.mark.parametrize("rows", [3, 3000])
def test_results_are_tensors_of_their_own_and_marked_as_free(rows: int, made: list[FreeSizes]):
    results = often(compiled(lambda x: x * 2), torch.ones(rows, 5))
    assert written(made) == [1]
    assert len({r.data_ptr() for r in results}) == len(results)
    results[-1].zero_()
    assert all(r.min() == 2 for r in results[:-1])
    assert all(r._dynamo_propagated_dynamic_indices == {0, 1} for r in results)
    assert len({id(r._dynamo_propagated_dynamic_indices) for r in results}) == len(results)


def test_another_order_in_memory_is_read_right(made: list[FreeSizes]):
    fast, whole = compiled(lambda x: x * 2 + 1), torch.randn(8, 8)
    calls = [whole, whole.t(), whole[:, :5], whole[::2], whole.double(), whole.flatten()[3:43].view(8, 5)]
    for x in (*calls, *calls):
        for found in often(fast, x):
            assert torch.equal(found, x * 2 + 1)
    assert sum(written(made))


def test_written_arguments_between_calls_are_seen(made: list[FreeSizes]):
    fast, x = compiled(lambda x: x * 2), torch.ones(3, 4)
    for step in range(10):
        assert fast(x).max() == 2 + 2 * step
        x.add_(1)
    assert written(made) == [1]


def test_frozen_parameters_are_read_again(made: list[FreeSizes]):
    model = torch.nn.Linear(4, 4).eval()
    fast, x = compiled(model, freeze=True), torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(2):
            for found in often(fast, x):
                torch.testing.assert_close(found, model(x))
            assert written(made) == [1]
            model.weight.mul_(2)
            smelt.refresh(model)


def test_parameters_may_get_other_memory(made: list[FreeSizes]):
    model = torch.nn.Linear(4, 4).eval()
    fast, x = compiled(model), torch.randn(3, 4)
    with torch.no_grad():
        often(fast, x)
        for weight in (torch.randn(4, 4), torch.randn(4, 4).t()):
            model.weight.data = weight
            torch.testing.assert_close(fast(x), model(x))
    assert written(made)[0] == 1


def test_a_failing_function_is_given_up_and_the_call_answered(made: list[FreeSizes]):
    fast, x = compiled(lambda x: x * 2), torch.ones(3, 4)
    often(fast, x)

    def broken(_args: Any) -> Any:
        raise RuntimeError("no session")

    for key in made[0]._functions:
        made[0]._functions[key] = broken
    assert fast(x).max() == 2 and written(made) == [0]


def test_only_so_many_functions_are_kept(made: list[FreeSizes], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(free_sizes, "_MOST", 3)
    fast = compiled(lambda x: x * 2)
    for rows in range(2, 10):
        assert often(fast, torch.ones(rows))[-1].shape == (rows,)
        assert written(made)[0] <= 3


def test_calls_at_once_do_not_meet(made: list[FreeSizes]):
    fast = compiled(lambda x: x * 2 + 1)
    often(fast, torch.ones(3, 4))
    wrong: list[int] = []

    def work(value: int) -> None:
        for rows in (3, 4, 3, 5) * 50:
            x = torch.full((rows, 4), float(value))
            if not torch.equal(fast(x), x * 2 + 1):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and written(made)[0] >= 1


def test_a_release_without_known_marks_keeps_the_wrappers(made: list[FreeSizes], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bare, "marks_are_known", lambda: False)
    assert often(compiled(lambda x: x * 2), torch.ones(3))[-1].tolist() == [2, 2, 2] and not made


def counted(x: Any) -> Any:
    places = torch.arange(x.shape[0])
    return x + torch.where(places[:, None] >= places[None, :3], 1.0, 0.0)


@pytest.mark.parametrize("wrapped", [False, True], ids=["torch.compile", "wrapper"])
def test_a_session_reads_sizes_from_its_tensors_and_takes_no_integers(wrapped: bool, monkeypatch: pytest.MonkeyPatch):
    from smelt.frontends.torch_compile.parts import part
    from smelt.runtime import TorchRunner

    fed: list[list[str]] = []

    class Watched(TorchRunner):
        def __init__(self, session: Any, *rest: Any) -> None:
            super().__init__(session, *rest)
            fed.append([argument.type for argument in session.get_inputs()])

    monkeypatch.setattr(part, "TorchRunner", Watched)

    class Counted(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return counted(x)

    fast = smelt.compile(Counted().eval(), kernels=False) if wrapped else compiled(counted)
    for rows in (5, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(fast(x), counted(x))
    assert fed == [["tensor(float)"]]
