"""Whole runs on models that take microseconds: workers, rows and their forms."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from smelt.base import Config, SmeltError
from smelt.bench import (
    Pace,
    Plan,
    file_case,
    find_peers,
    micro_case,
    parse_threads,
    run_suite,
    to_csv,
    to_json,
    to_markdown,
)
from smelt.bench.contestant import Contestant, PeerError, choose_cpus
from smelt.bench.peers import PEERS, Job, read_feeds, write_feeds

QUICK = Pace(rounds=8, slice_s=0.004, warm_s=0.002)


@pytest.fixture
def job(config: Config, tmp_path: Path) -> Job:
    case = micro_case("softmax", config)
    write_feeds(tmp_path / "feeds.npz", case.feeds)
    return Job("ort", case.model, tmp_path / "feeds.npz", 1)


def state_of(process_id: int) -> str:
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]


def test_smelt_and_stock_are_compared_and_agree(config: Config):
    outcome = run_suite([micro_case("softmax", config)], Plan(("ort", "smelt"), (1,), QUICK), config)
    stock, ours = outcome.rows
    assert (stock.peer, ours.peer) == ("ort", "smelt")
    assert not stock.problem and not ours.problem
    assert stock.ratio is None and ours.ratio is not None and ours.ratio.rounds == 8
    assert ours.error is not None and ours.error < 1e-5
    assert ours.coverage == "12 of 12 nodes in 1 region"
    assert ours.share is not None and 0 < ours.share < 2
    assert stock.p50_ms is not None and stock.p99_ms is not None and 0 < stock.p50_ms <= stock.p99_ms


def test_a_peer_that_cannot_run_is_a_row_with_the_reason(config: Config, monkeypatch: pytest.MonkeyPatch):
    missing = dataclasses.replace(PEERS["openvino"], packages=("no_such_package",))
    monkeypatch.setitem(PEERS, "openvino", missing)
    case = dataclasses.replace(micro_case("softmax", config), module="")
    outcome = run_suite([case], Plan(("ort", "openvino", "eager", "ort-fused"), (1,), QUICK), config)
    assert [bool(row.problem) for row in outcome.rows] == [False, True, True, True]
    assert "no_such_package" in outcome.rows[1].problem
    assert "torch" in outcome.rows[2].problem


def test_a_peer_given_twice_is_told_apart(config: Config):
    outcome = run_suite([micro_case("softmax", config)], Plan(("ort", "ort"), (1,), QUICK), config)
    assert [row.peer for row in outcome.rows] == ["ort", "ort#2"]
    assert outcome.rows[1].error == 0.0


def test_a_peer_that_dies_on_the_way_is_left_out_and_the_others_are_timed(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    killed: list[int] = []

    def run(self: Contestant, repeat: int, warm: int = 0) -> list[float]:
        if self.name == "smelt" and not killed:
            killed.append(self.process_id)
            os.kill(self.process_id, 9)
        return ask(self, repeat, warm)

    ask = Contestant.run
    monkeypatch.setattr(Contestant, "run", run)
    outcome = run_suite([micro_case("softmax", config)], Plan(("ort", "smelt", "ort"), (1,), QUICK), config)
    assert killed
    assert ["ended" in row.problem for row in outcome.rows] == [False, True, False]
    assert outcome.rows[2].ratio is not None


def test_what_would_take_longer_than_the_time_given_is_left_for_the_next_call(config: Config):
    said: list[str] = []
    cases = [micro_case("softmax", config)]
    outcome = run_suite(cases, Plan(("ort",), (1,), QUICK), config, say=said.append, limit_s=1.0)
    assert outcome.rows == ()
    assert said[0].startswith("1 measurements ahead, about") and "left for the next call" in said[1]


def test_peers_that_compile_open_side_by_side_and_outlive_it(config: Config, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PEERS, "ort", dataclasses.replace(PEERS["ort"], needs_module=True))
    outcome = run_suite([micro_case("softmax", config)], Plan(("ort", "ort"), (1,), QUICK), config)
    assert [row.problem for row in outcome.rows] == ["", ""]


def test_a_peer_that_does_not_open_in_time_is_a_row_with_the_reason(config: Config):
    outcome = run_suite([micro_case("softmax", config)], Plan(("ort",), (1,), QUICK, patience_s=0.01), config)
    assert "no answer in 0.01 s" in outcome.rows[0].problem


def test_without_the_first_peer_nothing_is_compared(config: Config):
    case = dataclasses.replace(micro_case("softmax", config), module="")
    outcome = run_suite([case], Plan(("eager", "ort"), (1,), QUICK), config)
    assert outcome.rows[0].problem
    assert outcome.rows[1].median_ms is not None
    assert outcome.rows[1].ratio is None


def test_every_form_has_every_row(config: Config):
    outcome = run_suite([micro_case("softmax", config)], Plan(("ort", "ort"), (1,), Pace(2, 0.001, 0.001)), config)
    facts = json.loads(to_json(outcome), parse_constant=pytest.fail)
    assert [row["peer"] for row in facts["rows"]] == ["ort", "ort#2"]
    assert facts["rows"][1]["verdict"] == "too few rounds"
    assert [row["peer"] for row in csv.DictReader(io.StringIO(to_csv(outcome)))] == ["ort", "ort#2"]
    assert sum(line.startswith("| softmax") for line in to_markdown(outcome).splitlines()) == 2


def test_a_contestant_is_stopped_between_its_turns(job: Job):
    with Contestant.open(job, choose_cpus(1)) as contestant:
        assert len(contestant.run(5, warm=2)) == 5
        deadline = time.monotonic() + 10
        while state_of(contestant.process_id) != "T" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert state_of(contestant.process_id) == "T"
    assert not Path(f"/proc/{contestant.process_id}").exists()


def test_a_contestant_runs_where_it_was_put(job: Job):
    cpus = choose_cpus(1)
    with Contestant.open(job, cpus) as contestant:
        assert os.sched_getaffinity(contestant.process_id) == set(cpus)


def test_a_model_that_does_not_load_is_an_error_with_its_reason(job: Job, tmp_path: Path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(PeerError, match=r"broken\.onnx|Protobuf|INVALID"):
        Contestant.open(dataclasses.replace(job, model=broken), choose_cpus(1))


def test_a_dead_worker_is_an_error_and_not_a_hang(job: Job):
    with Contestant.open(job, choose_cpus(1)) as contestant:
        os.kill(contestant.process_id, 9)
        with pytest.raises(PeerError, match="ended"):
            contestant.run(1)


def test_feeds_of_any_name_survive_the_way_to_the_worker(tmp_path: Path):
    feeds = {"a/b": np.ones((2, 3), np.float32), "../x\n": np.array(4), "file": np.zeros(0, np.bool_)}
    write_feeds(tmp_path / "feeds.npz", feeds)
    back = read_feeds(tmp_path / "feeds.npz")
    assert list(back) == list(feeds)
    for name, array in feeds.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype


def test_names_of_peers_and_threads_are_checked():
    assert find_peers(["ort", " smelt "]) == ("ort", "smelt")
    assert {"ort", "smelt"} <= set(find_peers(["all"]))
    with pytest.raises(SmeltError, match="openvino"):
        find_peers(["openvinno"])
    assert parse_threads("1") == (1,)
    for text in ("0", "x", "100000", "1;2"):
        with pytest.raises(SmeltError, match="threads"):
            parse_threads(text)


def test_a_file_is_described_by_its_feeds(tmp_path: Path):
    case = file_case(tmp_path / "m.onnx", {"x": np.ones((1, 128)), "s": np.array(1)})
    assert case.about == "x 1x128, s scalar"


def test_scalars_stay_scalars_on_the_way_to_a_peer(tmp_path: Path):
    """Inputs are made contiguous, which must not give them an axis."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "scalar", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "scalar.onnx").write_bytes(model.SerializeToString())
    write_feeds(tmp_path / "feeds.npz", {"x": np.array(2.0, np.float32)})
    loaded = PEERS["ort"].open(Job("ort", tmp_path / "scalar.onnx", tmp_path / "feeds.npz", 1))
    loaded.run()
    assert loaded.outputs()[0].shape == ()
