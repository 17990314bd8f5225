"""What was examined once is not examined again, and only that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.base.config import Config
from smelt.check import remembered
from smelt.check.findings import Findings, Verdict
from smelt.check.remembered import recall, remember
from smelt.check.watch import Limits, Ran, Worker
from smelt.pipeline import Options, compile_to
from smelt.toolchain import Cache


def weighted(scale: float) -> onnx.ModelProto:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Mul", ["a", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 300])
    weight = numpy_helper.from_array(np.full(300, scale, np.float32), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time that the examining process was followed to its end."""
    started: list[int] = []
    original = Worker.follow

    def counted(worker: Worker, limits: Limits) -> Ran:
        started.append(1)
        return original(worker, limits)

    monkeypatch.setattr(Worker, "follow", counted)
    return started


def test_the_same_model_is_examined_once_and_another_weight_again(tmp_path: Path, config: Config, runs: list[int]):
    options = Options(force=True, levels=("v2",))
    first = compile_to(weighted(2.0), tmp_path / "a", options, config)
    again = compile_to(weighted(2.0), tmp_path / "b", options, config)
    assert len(runs) == 1 and first.findings == again.findings
    compile_to(weighted(3.0), tmp_path / "c", options, config)
    assert len(runs) == 2


def test_other_sources_examine_again(
    tmp_path: Path, config: Config, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(force=True, levels=("v2",))
    compile_to(weighted(5.0), tmp_path / "a", options, config)
    monkeypatch.setattr(remembered, "examining_sources", lambda: "other sources")
    compile_to(weighted(5.0), tmp_path / "b", options, config)
    assert len(runs) == 2


def test_findings_survive_the_cache_unchanged(config: Config):
    cache = Cache(config.cache_dir)
    verdicts = (Verdict(0, 1e-7, 2e-7, 1e-6, levels=("v3", "v2")), Verdict(None, time_us=3.0, ratio=(0.9, 1.1)))
    findings = Findings(verdicts, {3: "slower than the nodes that it replaces"})
    remember(cache, "a" * 64, findings)
    assert recall(cache, "a" * 64) == findings and recall(cache, "b" * 64) is None


def test_a_limit_that_was_hit_is_not_kept(config: Config):
    cache = Cache(config.cache_dir)
    remember(cache, "e" * 64, Findings(rejected={0: "verification did not end within 9 s"}))
    remember(cache, "f" * 64, Findings(rejected={0: "its kernel no end after 4 s in one region in verification"}))
    assert recall(cache, "e" * 64) is None and recall(cache, "f" * 64) is None


def test_what_could_not_be_examined_is_not_kept(config: Config):
    cache = Cache(config.cache_dir)
    remember(cache, "c" * 64, Findings(rejected={0: "not verified: no inputs"}))
    remember(cache, "d" * 64, Findings(notes=("Nothing was timed.",)))
    assert recall(cache, "c" * 64) is None and recall(cache, "d" * 64) is None
