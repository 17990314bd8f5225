"""Dumps that can be run again, the debug backend, and interception."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

import smelt  # noqa: E402
import smelt.frontends.torch_compile  # noqa: E402  # makes the backends known
from smelt.check.recorded import recorded_calls  # noqa: E402
from smelt.cli.app import make_app  # noqa: E402

PLAIN = {"kernels": False}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()


def cli(*words: object):
    return CliRunner().invoke(make_app(), [str(word) for word in words])


@torch.no_grad()
def test_a_dump_holds_models_graphs_and_the_first_call_of_each(tmp_path: Path):
    model, x = mlp(), torch.randn(3, 8)
    with smelt.dump(tmp_path):
        fast = torch.compile(model, backend="smelt", options=PLAIN)
        fast(x)
        fast(x + 1)
        smelt.export(model, (x,)).run(x)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{number}.{rest}"
        for number in ("0000", "0001")
        for rest in ("onnx", "fx.txt", "call0.inputs.npz", "call0.outputs.npz")
    }
    assert "gelu" in (tmp_path / "0000.fx.txt").read_text()
    call = recorded_calls(tmp_path)[0]
    np.testing.assert_allclose(next(iter(call.outputs().values())), model(x).numpy(), rtol=1e-5, atol=1e-6)
    fast(x)
    torch.compile(mlp(), backend="smelt", options=PLAIN)(x)
    assert len(list(tmp_path.glob("*.onnx"))) == 2


@torch.no_grad()
def test_every_call_is_kept_when_asked_for_and_numbers_go_on(tmp_path: Path):
    x = torch.randn(3, 8)
    for _ in range(2):
        torch._dynamo.reset()
        with smelt.dump(tmp_path, every_call=True):
            fast = torch.compile(mlp(), backend="smelt", options=PLAIN)
            fast(x)
            fast(x + 1)
    assert [(call.model.stem, call.number) for call in recorded_calls(tmp_path)] == [
        ("0000", 0), ("0000", 1), ("0001", 0), ("0001", 1),
    ]  # fmt: skip


@torch.no_grad()
def test_the_environment_names_a_folder_to_dump_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ONNXRT_DUMP_PATH", str(tmp_path / "dumped"))
    torch.compile(mlp(), backend="smelt", options=PLAIN)(torch.randn(3, 8))
    assert [call.number for call in recorded_calls(tmp_path / "dumped")] == [0]


@torch.no_grad()
def test_a_dump_may_have_a_prefix_and_begin_anew(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    for prefix in ("a-", "b-", "b-"):
        torch._dynamo.reset()
        with smelt.dump(tmp_path, prefix=prefix, clean=True):
            torch.compile(mlp(), backend="smelt", options=PLAIN)(torch.randn(3, 8))
    assert [call.model.name for call in recorded_calls(tmp_path)] == ["a-0000.onnx", "b-0000.onnx"]
    assert cli("replay", tmp_path).exit_code == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(smelt.SmeltError, match="prefix"), smelt.dump(tmp_path, prefix="../elsewhere"):
        pass


@torch.no_grad()
def test_replay_finds_the_call_that_differs(tmp_path: Path):
    with smelt.dump(tmp_path):
        for kind in (torch.nn.Tanh, torch.nn.Sigmoid):
            torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 4), kind()), backend="smelt", options=PLAIN)(
                torch.randn(3, 8)
            )
    same = cli("replay", tmp_path)
    assert same.exit_code == 0 and "2 calls: 2 the same, 0 different" in same.output
    model = onnx.load(tmp_path / "0001.onnx")
    model.graph.node[-1].op_type = "Tanh"
    onnx.save(model, tmp_path / "0001.onnx")
    other = cli("replay", tmp_path)
    assert other.exit_code == 1 and re.search(r"0000.onnx .*same", other.output)
    assert re.search(r"0001.onnx +0 +2 .*sigmoid", other.output)


def test_replay_of_a_folder_without_calls_says_how_to_make_some(tmp_path: Path):
    answer = cli("replay", tmp_path)
    assert answer.exit_code == 2 and "smelt.dump" in answer.output


@torch.no_grad()
def test_reduce_takes_a_dumped_folder(tmp_path: Path):
    with smelt.dump(tmp_path / "dumped"):
        torch.compile(mlp(), backend="smelt", options=PLAIN)(torch.randn(3, 8))
    script = tmp_path / "has_gelu"
    script.write_text('#!/bin/sh\ngrep -q Gelu "$1"\n')
    script.chmod(0o755)
    answer = cli("reduce", tmp_path / "dumped", "--test", script, "-o", tmp_path / "small")
    assert answer.exit_code == 0 and "1 node left of 3: Gelu" in answer.output
    assert [node.op_type for node in onnx.load(tmp_path / "small" / "model.onnx").graph.node] == ["Gelu"]


@torch.no_grad()
def test_the_debug_backend_tells_every_result_and_is_right(capsys: pytest.CaptureFixture[str]):
    def function(x, y):
        z = torch.log(x) + y
        return z.sum(0), (z * 2).to(torch.bfloat16), z > 0

    x, y = torch.tensor([1.0, -1.0, 2.0]).repeat(4, 1), torch.randn(4, 3)
    found = torch.compile(function, backend="smelt_debug")(x, y)
    for got, want in zip(found, function(x, y), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if "= Log:" in line)
    assert "float32[4, 3] in [0, 0.693147], 4 NaN" in line and "test_debugging.py" in line


@pytest.fixture
def wrong_gelu():
    """A converter that says something else than torch."""

    @smelt.register_converter("aten::gelu")
    def relu(call, self, approximate):
        return call.op("Relu", self)

    yield
    smelt.export.forget_converter("aten::gelu")


@torch.no_grad()
def test_nodes_are_compared_one_by_one(wrong_gelu: None):
    def function(x, weight):
        low, high = torch.nn.functional.gelu(x @ weight).split(4, dim=1)
        values, places = high.topk(2, dim=1)
        return torch.softmax(low, 1), values, places

    x, weight = torch.randn(3, 8), torch.randn(8, 8)
    with pytest.raises(smelt.SmeltError) as caught:
        torch.compile(function, backend="smelt", options={"check": "nodes"})(x, weight)
    text = str(caught.value)
    assert caught.value.code == "SM-TORCH-002" and "1 results differ" in text  # what follows is right on torch's values
    assert "gelu = aten.gelu.default: differs" in text and "test_debugging.py" in text


def test_a_check_of_nodes_gives_the_results_of_torch_with_gradients_and_free_sizes():
    model = mlp().train()
    fast = torch.compile(model, backend="smelt", options={"check": "nodes"}, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        model.zero_grad()
        fast(x).square().sum().backward()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for one, other in zip(found, model.parameters(), strict=True):
            torch.testing.assert_close(one, other.grad)


@torch.no_grad()
def test_debug_lines_may_go_to_a_function():
    lines: list[str] = []
    torch.compile(mlp(), backend="smelt", options={"debug": lines.append})(torch.randn(3, 8))
    assert sum(" = " in line for line in lines) == 3


@torch.no_grad()
def test_ranges_of_the_profiler_show_export_compilation_and_calls():
    x = torch.randn(3, 8)
    with torch.profiler.profile() as profile:
        fast = torch.compile(mlp(), backend="smelt", options=PLAIN)
        fast(x)
        fast(x)
        smelt.export(mlp(), (x,))
    counts = {event.key: event.count for event in profile.key_averages() if event.key.startswith("smelt.")}
    assert counts == {"smelt.export": 2, "smelt.compile": 1, "smelt.run": 2}


def test_interception_prints_or_hands_over_and_runs_the_original(capsys: pytest.CaptureFixture[str]):
    model, x = mlp(), torch.randn(3, 8)
    expected = model(x)
    seen: list[object] = []
    intercepted = smelt.intercept(model, lambda args, kwargs: seen.append((args, kwargs)))
    assert torch.equal(intercepted(x), expected) and intercepted is model
    assert seen[0][0][0] is x  # pyright: ignore[reportIndexIssue]
    model.stop_intercepting()
    model(x)
    assert len(seen) == 1
    assert smelt.intercept(lambda a, scale=1: scale)(x, scale=2) == 2
    assert "float32[3, 8], scale=2" in capsys.readouterr().out


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "debugging.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    exec("\n".join(blocks), {"__name__": "page"})
