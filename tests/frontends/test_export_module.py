"""`smelt.export`: a module in, a model that saves and runs out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import smelt
from smelt.base.errors import ExportError, InputError


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> Any:
        y = self.relu(self.layer(x) + 1)
        return {"y": y if scale is None else y * scale, "n": (x.shape[0] * 2, torch.nonzero(y > 1).size(0))}


@pytest.fixture(scope="module")
def block() -> torch.nn.Module:
    torch.manual_seed(0)
    return Block().eval()


@pytest.fixture(scope="module")
def exported(block: torch.nn.Module) -> smelt.Exported:
    x = torch.randn(2, 5, 16)
    return smelt.export(
        block, (x,), {"scale": torch.ones(1)}, dynamic_shapes={"x": {0: "batch", 1: "length"}, "scale": None}
    )


def test_the_exported_module_gives_what_the_module_gives_at_every_size(block: Any, exported: smelt.Exported):
    for shape in ((2, 5, 16), (3, 7, 16), (4, 2, 16)):
        x, scale = torch.randn(*shape), torch.tensor([2.0])
        expected = block(x, scale=scale)
        torch.testing.assert_close(exported.run(x, scale=scale), expected, rtol=1e-4, atol=1e-5)


def test_names_of_dimensions_are_the_users(exported: smelt.Exported):
    assert [str(dim) for dim in exported.model.graph.inputs[0].shape] == ["batch", "length", "16"]


def test_everything_is_said_by_the_table(exported: smelt.Exported):
    assert "by table" in str(exported.report) and "torchlib" not in str(exported.report)


@pytest.mark.parametrize("external", [False, True, "weights.bin"])
def test_a_saved_model_is_valid(exported: smelt.Exported, tmp_path: Path, external: bool | str):
    exported.save(tmp_path / "model.onnx", external_data=external)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == {False: ["model.onnx"], True: ["model.onnx", "model.onnx.data"]}.get(
        external, ["model.onnx", "weights.bin"]
    )


def test_torchs_own_conversions_come_first_when_asked_for(block: Any, monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(2, 5, 16)
    for chosen in ({"exporter": "torch"}, {}):
        exported = smelt.export(block, (x,), **chosen)
        kinds = {kind for counts in exported.report.origins.values() for kind in counts}
        assert "torchlib" in kinds
        torch.testing.assert_close(exported.run(x), block(x), rtol=1e-4, atol=1e-5)
        monkeypatch.setenv("ONNXRT_CHANGE_REWRITER", "0")
    with pytest.raises(smelt.SmeltError, match="'smelt' or 'torch'"):
        smelt.export(block, (x,), exporter="onnx")


def test_a_function_is_exported_with_the_sizes_of_its_arguments():
    exported = smelt.export(lambda x, y: x @ y, (torch.ones(2, 3), torch.ones(3, 4)), dynamic_shapes=({0: "n"}, None))
    assert exported.run(torch.ones(7, 3), torch.ones(3, 4)).shape == (7, 4)


def test_experts_of_a_mixture_are_exported():
    pytest.importorskip("transformers.integrations.moe")
    target = torch.ops.transformers.grouped_mm_fallback
    rows, weight, ends = torch.randn(8, 4), torch.randn(3, 4, 5), torch.tensor([2, 2, 7], dtype=torch.int32)
    exported = smelt.export(lambda x, o: target(x, weight, o), (rows, ends))
    for offsets in (ends, torch.tensor([0, 8, 8], dtype=torch.int32)):
        torch.testing.assert_close(exported.run(rows, offsets), target(rows, weight, offsets))


def test_weights_are_not_copied():
    linear = torch.nn.Linear(8, 8)
    exported = smelt.export(linear, (torch.randn(2, 8),))
    addresses = {v.const_value.numpy().ctypes.data for v in exported.model.graph.initializers.values()}
    assert {linear.weight.data_ptr(), linear.bias.data_ptr()} <= addresses


def test_inputs_and_outputs_can_be_named():
    exported = smelt.export(
        torch.nn.Linear(4, 2), (torch.randn(3, 4),), input_names=["features"], output_names=["scores"]
    )
    assert (exported.input_names, exported.output_names) == (["features"], ["scores"])


def test_outputs_are_named_by_what_the_module_returns(exported: smelt.Exported):
    assert exported.output_names == ["y", "n.0", "n.1"]
    x = (torch.randn(3, 4),)
    assert smelt.export(torch.nn.Linear(4, 2), x).output_names == ["output"]
    assert smelt.export(lambda x: (x + 1, [x * 2, x - 1]), x).output_names == ["output_0", "output_1.0", "output_1.1"]


def test_shapes_of_some_arguments_and_keywords_that_are_not_named():
    class Loose(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, **options: Any) -> Any:
            y = x.sum(1) if mask is None else (x * mask).sum(1)
            return {"total": y} if options.get("return_dict") else y

    x, mask = torch.randn(3, 4), torch.ones(3, 4)
    exported = smelt.export(
        Loose(),
        (),
        {"mask": mask, "x": x, "return_dict": True},
        dynamic_shapes={"x": {0: "batch"}, "mask": {0: "batch"}},
    )
    assert exported.output_names == ["total"]
    assert {str(value.shape) for value in exported.model.graph.inputs} == {"[batch,4]"}


def test_the_exporter_shows_its_parameters():
    assert list(inspect.signature(smelt.export).parameters)[:4] == ["module", "args", "kwargs", "dynamic_shapes"]
    assert all(name in smelt.__all__ for name in dir(smelt))


def test_in_place_writes_through_views_are_understood():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 0] = 7
        y.add_(1)
        return y

    x = torch.randn(3, 4)
    torch.testing.assert_close(smelt.export(function, (x,)).run(x), function(x))


def one_after_another(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    for i in range(1, 4):
        y[..., i, :i] = y[..., i, :i].clone() * y[..., :i, i] + 1
    return y + y[:, 1:2].mT


def in_steps(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y.transpose(1, 2)[:, 1:3].add_(x[:, 1:3]).mul_(2)
    y[:, ::2].unsqueeze(1)[0].fill_(5)
    return y


def of_other_types(x: torch.Tensor) -> torch.Tensor:
    half = x.half()
    half[0].add_(x[1])
    half.mul_(torch.tensor(2.5, dtype=torch.float64))
    return half


def viewed_afterwards(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).relu_().flatten(1)[:, 1:]


def interleaved(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of several axes: a view of the first is written and read on."""
    y = x * 3
    first = y[0]
    for axis in (1, 2):
        first[..., axis::3] = y[axis, ..., axis::3]
    return first.sin() + y.sum(0)


def seen_through_an_older_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    row, part = y[0], y[:, 1]
    part[0] = 7
    kept = y[1].add_(1)
    y.mul_(3)
    return y, row, part, kept


def seen_through_a_reshaped_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    flat = y.reshape(-1)
    y[0].mul_(3)
    return flat, y


PLAIN_WRITES = [one_after_another, viewed_afterwards, interleaved, in_steps, seen_through_an_older_view]


@pytest.mark.parametrize("function", [*PLAIN_WRITES, of_other_types, seen_through_a_reshaped_view])
def test_in_place_writes_give_what_torch_gives(function: Any):
    x = torch.randn(3, 4, 4)
    torch.testing.assert_close(smelt.export(function, (x,)).run(x), function(x))


@pytest.mark.parametrize("function", PLAIN_WRITES)
def test_plain_in_place_writes_need_no_second_tracing(function: Any, monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(3, 4, 4)
    program = torch.export.export(Calling(function), (x,), strict=False)
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
    torch.testing.assert_close(smelt.export(program).run(x), function(x))


class Calling(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def test_arguments_of_another_structure_are_refused(exported: smelt.Exported):
    with pytest.raises(InputError, match="structure"):
        exported.run(torch.randn(2, 5, 16))


def test_what_torch_cannot_capture_is_said():
    with pytest.raises(ExportError) as error:
        smelt.export(lambda x: x + 1 if x.sum() > 0 else x, (torch.randn(3),))
    assert error.value.code == "SM-EXPORT-003"


def test_a_compiled_export_runs(exported: smelt.Exported, tmp_path: Path):
    exported.save(tmp_path / "model.onnx")
    assert smelt.compile(str(tmp_path / "model.onnx"), verify=False) is not None
