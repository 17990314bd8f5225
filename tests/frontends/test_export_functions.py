"""Submodules as functions of the exported model; rules chosen for an export."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")

import smelt  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.linear = torch.nn.Linear(size, size)

    def forward(self, x, mask):
        return x + torch.where(mask, self.linear(self.norm(x)), 0.0)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(8) for _ in range(3)])
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 2), torch.nn.Tanh())

    def forward(self, x):
        mask = (torch.arange(x.shape[1]) < x.shape[1] - 1)[:, None]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def exported(**options: object):
    torch.manual_seed(0)
    net = Net().eval()
    return net, smelt.export(net, (torch.randn(2, 5, 8),), dynamic_shapes=({0: "n", 1: "m"},), **options)


def test_modules_that_compute_alike_share_a_function():
    net, model = exported(functions=True)
    assert [(function.domain, function.name) for function in model.model.functions.values()] == [
        ("smelt.modules", "Block")
    ]
    assert Counter(node.op_type for node in model.model.graph)["Block"] == 3
    names = [value.name for value in next(iter(model.model.functions.values())).inputs]
    assert {"norm_weight", "norm_bias", "linear_bias"} <= set(names)
    x = torch.randn(3, 7, 8)
    torch.testing.assert_close(model.run(x), net(x), rtol=1e-5, atol=1e-6)
    assert not any("smelt.module" in node.metadata_props for node in model.model.graph)


def test_a_model_with_functions_is_sound_for_other_tools(tmp_path: Path):
    from onnx.reference import ReferenceEvaluator

    net, model = exported(functions=True)
    path = model.save(tmp_path / "model.onnx").model_path
    onnx.checker.check_model(str(path), full_check=True)
    x = torch.randn(3, 7, 8)
    wanted = net(x).detach().numpy()
    by_standard = ReferenceEvaluator(str(path)).run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(by_standard, wanted, rtol=1e-5, atol=1e-6)
    with smelt.compile(path, force=True) as compiled:
        np.testing.assert_allclose(compiled.run({"x": x.numpy()})[0], wanted, rtol=1e-5, atol=1e-6)
        assert compiled.coverage.in_kernels > 0


def test_only_the_classes_listed_become_functions():
    _, model = exported(functions=[torch.nn.LayerNorm])
    assert [function.name for function in model.model.functions.values()] == ["LayerNorm"]
    _, named = exported(functions=["Block"])
    assert [function.name for function in named.model.functions.values()] == ["Block"]
    _, without = exported()
    assert not without.model.functions


def test_modules_that_compute_differently_have_functions_of_their_own():
    class Scaled(torch.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x):
            return torch.tanh(x * self.scale)

    net = torch.nn.Sequential(Scaled(2.0), Scaled(2.0), Scaled(3.0))
    x = torch.randn(4)
    model = smelt.export(net, (x,), functions=True)
    assert [node.op_type for node in model.model.graph] == ["Scaled", "Scaled", "Scaled_2"]
    torch.testing.assert_close(model.run(x), net(x))


def test_a_module_that_cannot_be_taken_out_whole_stays():
    """Its nodes lie around a node of others: the mask of the caller is computed from what it gives."""

    class Twice(torch.nn.Module):
        def forward(self, x, between):
            return torch.exp(between(torch.tanh(x)))

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Twice()

        def forward(self, x):
            return self.inner(x, torch.sin)

    x = torch.randn(4)
    model = smelt.export(Outer(), (x,), functions=True)
    torch.testing.assert_close(model.run(x), Outer()(x))


def test_patterns_are_chosen_and_reported(tmp_path: Path):
    def function(x):
        return (x * 1.0).unsqueeze(0).unsqueeze(1)

    x = torch.randn(3)
    plain, simple = (smelt.export(function, (x,), patterns=p) for p in ("none", "default"))
    assert [n.op_type for n in plain.model.graph] == ["Mul", "Unsqueeze", "Unsqueeze"]
    assert [n.op_type for n in simple.model.graph] == ["Unsqueeze"]
    assert plain.report.patterns == {} and simple.report.patterns["neutral-elements"][0] == 1
    assert "merge-unsqueezes: 1 times" in str(simple.report)
    smelt.export(function, (x,), dump_patterns=tmp_path)
    assert {path.name.partition("-")[2] for path in tmp_path.iterdir()} >= {"merge-unsqueezes.txt"}
    with pytest.raises(smelt.SmeltError, match="SM-PASS-002"):
        smelt.export(function, (x,), patterns="defualt")


def test_an_index_of_ranges_is_a_slice():
    def function(x, mask):
        rows = torch.arange(x.shape[0])
        return x + mask[rows[:, None], torch.arange(x.shape[1])]

    x, mask = torch.randn(3, 4), torch.randn(3, 4)
    shapes = ({0: "n", 1: "m"}, {0: "n", 1: "m"})
    model = smelt.export(function, (x, mask), dynamic_shapes=shapes)
    assert not {"GatherND", "Range"} & {n.op_type for n in model.model.graph}
    x, mask = torch.randn(5, 2), torch.randn(5, 2)
    torch.testing.assert_close(model.run(x, mask), function(x, mask))
