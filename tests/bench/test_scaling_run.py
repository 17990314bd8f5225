"""Traces of a real library: every task of every launch, with work cut for as many threads as are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from smelt.base.config import Config
from smelt.base.errors import ConfigError
from smelt.bench.clocked import clocked_library
from smelt.bench.scaling import parse_counts
from smelt.cli.app import make_app
from smelt.codegen import launch_counts
from smelt.pipeline import Options, Result, compile_to
from smelt.runtime import LaunchTracer, SessionSettings, session_for

ROWS, WIDTH = 512, 256


def proto() -> onnx.ModelProto:
    """A product, and a maximum over rows that it needs: two launches."""
    weight = numpy_helper.from_array(np.ones((WIDTH, WIDTH), np.float32), "w")
    nodes = [helper.make_node("ReduceMax", ["x"], ["a"], axes=[0]), helper.make_node("MatMul", ["x", "w"], ["b"])]
    nodes.append(helper.make_node("Sub", ["b", "a"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    config = Config.from_env({"SMELT_STRICT": "1"}).with_(log="quiet")
    return compile_to(proto(), tmp_path_factory.mktemp("traced"), Options(force=True, verify=False), config)


def test_a_trace_has_every_task_and_changes_no_bits(made: Result) -> None:
    assert made.generated is not None and made.library is not None
    library = clocked_library(made.generated, made.library, Config.from_env())
    tracer = LaunchTracer(library.path, library.targets, launch_counts(made.generated.source))
    session = session_for(made.artifact.model_path, library.path, SessionSettings(threads=1))
    feeds = {"x": np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)}
    answers = [session.run(None, feeds)[0]]
    traces = {n: tracer.trace(n, lambda: answers.append(session.run(None, feeds)[0]), 3) for n in (1, 2, 64)}
    (entry,) = made.generated.source.entries
    for trace in traces.values():
        assert {(one.entry, one.place) for one in trace.launches} == {
            (entry.name, kernel.launch) for kernel in entry.kernels
        }
        assert trace.outside_us > 0 and all(us > 0 for one in trace.launches for loop in one.loops for us in loop)
    pair = session_for(made.artifact.model_path, library.path, SessionSettings(threads=2))
    traces[3] = tracer.trace(3, lambda: answers.append(pair.run(None, feeds)[0]), 3, cores=2)
    tasks = {n: sum(len(loop) for one in trace.launches for loop in one.loops) for n, trace in traces.items()}
    assert tasks[1] == tasks[2] and tasks[64] > tasks[3] >= tasks[2]
    costs = {n: sum(sum(loop) for one in trace.launches for loop in one.loops) for n, trace in traces.items()}
    assert costs[3] < 20 * costs[1]  # no wait for the other core is counted
    assert len(answers) == 1 + 4 * 4 and all(np.array_equal(one, answers[0]) for one in answers)


def test_a_barrier_takes_time_and_untraced_runs_follow(made: Result) -> None:
    assert made.generated is not None and made.library is not None
    library = clocked_library(made.generated, made.library, Config.from_env())
    tracer = LaunchTracer(library.path, library.targets, launch_counts(made.generated.source))
    session = session_for(made.artifact.model_path, library.path, SessionSettings(threads=2))
    feeds = {"x": np.ones((ROWS, WIDTH), np.float32)}
    assert 0.05 < tracer.barrier_us(2, lambda: session.run(None, feeds), 50) < 1e5
    assert np.array_equal(session.run(None, feeds)[0], np.full((ROWS, WIDTH), WIDTH - 1, np.float32))


def test_explain_predicts_for_the_threads_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smelt.bench.scaling._WALL_SECONDS", 0.1)
    onnx.save(proto(), tmp_path / "m.onnx")
    arguments = ["explain", str(tmp_path / "m.onnx"), "--no-verify", "--force", "--threads", "1,2,16", "--json"]
    result = CliRunner().invoke(make_app(), [*arguments, "--shapes", f"x:{ROWS},{WIDTH}", "--bandwidth", "50"])
    assert result.exit_code == 0, result.output
    scaling = json.loads(result.stdout)["scaling"]
    assert scaling["threads"] == [1, 2, 16] and scaling["measured_us"][2] is None and scaling["measured_us"][0] > 0
    assert scaling["costs"]["most_gbytes"] == 50 and len(scaling["rows"]) == 2
    assert scaling["predicted_us"][0] > scaling["predicted_us"][2] > 0


def test_an_artifact_has_no_source_to_predict_from(made: Result) -> None:
    result = CliRunner().invoke(make_app(), ["explain", str(made.artifact.directory), "--threads", "1,2"])
    assert result.exit_code != 0 and "--threads" in result.output


@pytest.mark.parametrize("text", ["", "0,1", "1,x", "1,129"])
def test_counts_of_threads_are_checked(text: str) -> None:
    with pytest.raises(ConfigError, match="not counts from 1 to 128"):
        parse_counts(text)
