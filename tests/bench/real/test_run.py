"""One model through all steps, and what becomes of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.base import Config
from smelt.bench import Pace, Plan
from smelt.bench.outcome import Row
from smelt.bench.paired import Ratio
from smelt.bench.real import __main__ as program
from smelt.bench.real import judge as judging
from smelt.bench.real.collect import model_of
from smelt.bench.real.judge import judge
from smelt.bench.real.page import findings, is_right, write_page
from smelt.bench.real.results import Facts, Known, Store
from smelt.bench.real.steps import RealModel, _decided_rows  # pyright: ignore[reportPrivateUsage]
from smelt.runtime import Executable, Session, SessionSettings


def tiny(path: Path, factor: float = 2.0) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])
    weight = numpy_helper.from_array(np.full((64, 64), factor, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "tiny", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`make real` over one small model, without timing; the folder of its results."""
    folder = tmp_path_factory.mktemp("real")
    model = model_of("made/tiny", "here", tiny(folder / "tiny.onnx"))

    def collect(*_: object) -> list[RealModel]:
        return [model]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "collect", collect)
        patch.setenv("SMELT_LEVELS", "v2")
        assert program.main(["--results", str(folder / "real"), "--steps", "compile,verify,right", "--warm"]) == 0
        yield folder / "real"


def test_a_model_is_compiled_verified_and_judged_at_two_sizes(run: Path, capsys: pytest.CaptureFixture[str]):
    known = Store(run, {}).read("made/tiny")
    assert known.step("compile")["in_kernels"] == known.step("compile")["nodes"] == 2
    assert known.step("verify")["right"] and is_right(known)
    assert [size["shapes"] for size in known.step("right")["sizes"]] == ["x 1x64", "x 3x64"]
    assert known.step("compile")["faults"] == [] and "timed" in known.step("compile")
    capsys.readouterr()
    assert program.main(["--results", str(run), "--steps", "compile,verify,right"]) == 0
    assert "compile" not in capsys.readouterr().out  # nothing is done twice


class Rounds:
    """Stands for a benchmark: what a number of rounds comes to."""

    def __init__(self, few: Ratio, many: Ratio) -> None:
        self.plan, self.found, self.asked = Plan(pace=Pace(rounds=11)), {11: few, 44: many}, list[int]()

    def rows(self, threads: int) -> list[Row]:
        self.asked.append(self.plan.pace.rounds)
        ratio = self.found[self.plan.pace.rounds]
        return [Row("m", "", "ort", threads), Row("m", "", "smelt", threads, ratio=ratio)]


@pytest.mark.parametrize(
    ("low", "high", "asked"), [(0.97, 1.05, [11, 44]), (0.98, 1.05, [11]), (0.9, 0.97, [11]), (0.97, 0.98, [11, 44])]
)
def test_a_ratio_that_does_not_tell_is_measured_again_in_more_rounds(low: float, high: float, asked: list[int]):
    few, many = Ratio(1.0, low, high, 11), Ratio(0.96, 0.95, 0.97, 44)
    bench = Rounds(few, many)
    rows = _decided_rows(bench, 1)  # type: ignore[arg-type]
    assert bench.asked == asked and rows[-1].ratio == (many if len(asked) > 1 else few)
    assert bench.plan.pace.rounds == 11


def test_an_artifact_of_another_model_is_not_right(run: Path, tmp_path: Path):
    other = tiny(tmp_path / "other.onnx", 0.01)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 64), np.float32)}
    found = judge(other, Store(run, {}).artifact("made/tiny"), feeds, [1])
    assert not found.right and "off by more than" in found.problem


def test_sizes_that_stock_refuses_with_its_optimizers_are_judged_all_the_same(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model, feeds = tiny(tmp_path / "same.onnx"), {"x": np.random.default_rng(0).standard_normal((2, 64), np.float32)}
    other, artifact = tiny(tmp_path / "other.onnx", 3.0), Store(run, {}).artifact("made/tiny")
    opened = judging.session_for

    def refusing(path: Path, library: Path | None, settings: SessionSettings) -> Session:
        if settings.optimization != "disable":
            raise RuntimeError("stock refuses it")
        return opened(path, library, settings)

    monkeypatch.setattr(judging, "session_for", refusing)
    assert judge(model, artifact, feeds, [1]).right
    assert "off by more than" in judge(other, artifact, feeds, [1]).problem
    monkeypatch.setattr(Executable, "open", _refused)
    assert judge(model, artifact, feeds, [1]).right  # users' stock refuses it too
    monkeypatch.setattr(judging, "session_for", opened)
    assert "refused" in judge(model, artifact, feeds, [1]).problem


def _refused(*_: object) -> Executable:
    raise RuntimeError("refused")


def test_an_artifact_that_overflows_where_stock_does_not_is_not_right(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = tiny(tmp_path / "same.onnx")
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 64), np.float32)}
    artifact = Store(run, {}).artifact("made/tiny")
    assert judge(model, artifact, feeds, [1]).right
    monkeypatch.setattr(
        Executable, "run", lambda self, fed: [y + 0 * np.exp(fed["x"]) for y in self.session.run(None, fed)]
    )
    assert "large inputs" in judge(model, artifact, feeds, [1]).problem


def test_results_of_other_sources_are_made_again_unless_they_are_to_be_kept(tmp_path: Path):
    known = Known("a/b")
    Store(tmp_path, {"smelt": "1"}).write(known, "right", {"sizes": []})
    assert Store(tmp_path, {"smelt": "1"}).has(known, "right")
    assert not Store(tmp_path, {"smelt": "2"}).has(known, "right")
    assert Store(tmp_path, {"smelt": "2"}, keep=True).has(known, "right")
    assert [one.name for one in Store(tmp_path, {}).all()] == ["a/b"]


def result(name: str, ratio: list[float], problem: str = "") -> Known:
    row: Facts = {
        "shapes": "x 1",
        "threads": 1,
        "ms": {"ort": 2.0, "smelt": 1.0},
        "ratio": ratio,
        "vs_best": ratio,
        "best": "ort",
    }
    compiled: Facts = {
        "in_kernels": 3,
        "nodes": 4,
        "wall_s": 2.0,
        "cpu_s": 3.0,
        "stages": {},
        "reasons": ["why (1)"],
        "notes": [],
    }
    steps: dict[str, Facts] = {
        "compile": compiled,
        "verify": {"right": True, "problem": ""},
        "right": {"sizes": [{"shapes": "x 1", "problem": problem}]},
        "time": {"rows": [row]},
    }
    return Known(name, {"problem": ""}, {step: {"depends_on": {}, "found": found} for step, found in steps.items()})


def test_the_page_has_every_model_and_findings_put_the_worst_first(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- real -->\nold\n<!-- /real -->\nafter\n")
    known = [result("p/fast", [2.0, 1.9, 2.1]), result("p/slow", [0.5, 0.4, 0.6], problem="it is off")]
    write_page(known, "a machine", page)
    text = page.read_text()
    assert "| p/fast | x 1 | yes | 3 of 4 | 2.0 (3.0) | **2.00** [1.90, 2.10] | **2.00** [1.90, 2.10] ort |" in text
    assert "1 of 2 right" in text and "1.00x stock" in text and "slower than stock on 1" in text
    assert "| p/slow | x 1 | **no** |" in text and "old" not in text and text.endswith("after\n")
    known[0].step("compile")["faults"] = ["build: it broke"]
    told = "\n".join(findings(known))
    assert "p/slow: x 1: it is off" in told and "p/fast: fault: build: it broke" in told
    assert told.index("p/slow (x 1)") < told.index("p/fast (x 1)")


def test_results_are_plain_json(run: Path):
    assert json.loads((run / "made+tiny.json").read_text())["name"] == "made/tiny"


def test_this_repository_has_the_page_with_its_place(config: Config):
    del config
    assert "<!-- real -->\n" in (Path(__file__).parents[3] / "docs" / "real_models.md").read_text()
