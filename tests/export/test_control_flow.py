"""torch.cond, while_loop and scan become If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import smelt

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def check(function: Any, *inputs: Any, shapes: Any = None, others: tuple[Any, ...] = ()) -> list[str]:
    exported = smelt.export(function, inputs, dynamic_shapes=shapes)
    for given in (inputs, *others):
        torch.testing.assert_close(exported.run(*given), function(*given))
    return [node.op_type for node in exported.model.graph]


def test_a_branch_is_taken_by_its_condition():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            return torch.cond(x.sum() > 0, lambda a, b: self.linear(a) + b, lambda a, b: b - a, (x, y)) + 1

    with torch.no_grad():
        assert "If" in check(Model(), X, others=((-X,), (X.abs(),)))


def test_a_branch_on_a_size_is_taken_at_run_time():
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.shape[0] > 4, lambda a: a + 1, lambda a: a - 1, (x,))

    ops = check(Model(), X, shapes={"x": {0: "batch"}}, others=((torch.randn(6, 4),),))
    assert "If" in ops


def test_a_loop_runs_as_often_as_its_test_says():
    class Model(torch.nn.Module):
        def forward(self, i: torch.Tensor, x: torch.Tensor) -> Any:
            return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + i), (i, x))

    ops = check(Model(), torch.tensor(0), X, others=((torch.tensor(3), X), (torch.tensor(9), X)))
    assert "Loop" in ops


def test_a_scan_carries_state_and_stacks_rows():
    class Model(torch.nn.Module):
        def forward(self, start: torch.Tensor, rows: torch.Tensor) -> Any:
            return scan(lambda carry, row: (carry + row, carry * 2 + row.sum()), start, rows)

    ops = check(Model(), torch.zeros(4), X, others=((torch.ones(4), X * 2),))
    assert "Scan" in ops


def test_results_of_branches_with_sizes_of_their_own_are_known_after_them():
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = torch.cond(x.sum() > 0, lambda a: a[:, :2] * a.shape[0], lambda a: a[:, 2:].clone(), (x,))
            return half.reshape(-1, x.shape[0])

    check(Model(), X, shapes={"x": {0: "batch"}}, others=((torch.randn(5, 4),),))
