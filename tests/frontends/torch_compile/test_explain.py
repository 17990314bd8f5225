"""`smelt.explain` says what became of a model."""

from __future__ import annotations

import torch
from torch import nn

import smelt


@torch.library.custom_op("smelt_tests::untold", mutates_args=())
def untold(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(max=3.0)


@untold.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        torch._dynamo.graph_break()
        return untold(x).sin()


@torch.no_grad()
def test_breaks_and_nodes_left_in_torch_are_named_with_their_source():
    told = smelt.explain(Broken(), torch.randn(3, 4), options={"kernels": False})
    assert len(told.graphs) == 2 and len(told.breaks) == 1
    assert [target for target, _ in told.fallback_nodes] == ["smelt_tests.untold.default"]
    text = str(told)
    assert "1 graph break" in text and "smelt_tests.untold.default" in text and "untold(x).sin()" in text


def test_backward_graphs_are_told_and_gradients_left_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    told = smelt.explain(model, torch.randn(3, 4), options={"kernels": False})
    assert [graph.kind for graph in told.graphs] == ["forward", "backward"]
    assert all(parameter.grad is None for parameter in model.parameters())


@torch.no_grad()
def test_rules_that_were_applied_are_counted():
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 1.0).unsqueeze(0).unsqueeze(1).exp()

    told = smelt.explain(function, torch.randn(3), options={"kernels": False})
    assert told.graphs[0].parts[0].rules["neutral-elements"][0] == 1
    assert "neutral-elements x1" in str(told) and "merge-unsqueezes x1" in str(told)
    without = smelt.explain(function, torch.randn(3), options={"kernels": False, "patterns": "none"})
    assert not without.graphs[0].parts[0].rules
