"""What is slower than stock ONNX Runtime falls back to it, and nothing else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt import kernels
from smelt.base.config import Config
from smelt.check import Examination, Findings, Timed, speed_guard
from smelt.check import race as racing
from smelt.check.race import ASKED, FEWEST_ROUNDS, _asked, _decided, _rounds  # pyright: ignore[reportPrivateUsage]
from smelt.check.race_ahead import RaceAhead, race_limits
from smelt.check.race_sizes import other_calls
from smelt.check.speed_guard import gains, is_slower, seconds_for, seems_slower
from smelt.pipeline import Options, compile_to
from smelt.runtime import Executable, session_for

X = np.random.default_rng(3).standard_normal((64, 192), np.float32)


def written(path: Path) -> Path:
    """Two layers."""
    rng = np.random.default_rng(4)
    weights = [numpy_helper.from_array(rng.standard_normal((192, 192), np.float32) / 14, name) for name in ("v", "w")]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Tanh", ["c"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 192]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "layers", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def timing(config: Config) -> Config:
    return replace(config, timing=True, levels=("v3",))


def timed(ratio: float, spread: float = 0.01, rounds: int = 9) -> Timed:
    return Timed(1, 100.0, 100.0 * ratio, ratio, ratio * (1 - spread), ratio * (1 + spread), rounds)


@pytest.mark.parametrize(
    ("measured", "slower"),
    [
        (timed(1.2), False),
        (timed(0.99, 0.001), False),  # no more than code placement may cost
        (timed(0.9, 0.2), False),  # the interval holds 1
        (timed(0.9), True),
        (timed(0.5, rounds=4), False),
    ],
)
def test_only_an_interval_below_one_says_slower(measured: Timed, slower: bool):
    assert is_slower(measured) == slower


@pytest.mark.parametrize(
    ("measured", "slower"),
    [
        (timed(0.9, 0.2), True),
        (timed(0.98, 0.2), False),
        (timed(0.9, 0.2, rounds=4), False),
        (timed(0.975, 0.01), True),
    ],
)
def test_a_median_clearly_below_one_counts_where_the_interval_is_undecided(measured: Timed, slower: bool):
    assert seems_slower(measured) == slower


def test_a_wide_interval_says_little_beside_a_narrow_one():
    assert not gains([timed(0.99), timed(1.3, spread=0.6)]) and gains([timed(1.1), timed(0.9, spread=0.6)])
    assert not gains([timed(0.99), timed(1.1, rounds=2)])


@pytest.mark.parametrize(
    ("measured", "worth"),
    [
        ([timed(1.03, 0.1)], True),
        ([timed(1.01, 0.02)], False),  # the interval holds 1, and less than 2% is gained
        ([timed(1.01, 0.005)], True),
        ([timed(0.99), timed(1.02, 0.005)], False),  # what is gained at one size is lost at another
        ([timed(0.99), timed(1.2)], True),
    ],
)
def test_an_artifact_is_worth_having_that_gains_in_the_mean_or_by_every_interval(measured: list[Timed], worth: bool):
    assert gains(measured) == worth


def test_a_model_is_timed_at_a_smaller_and_a_larger_size_of_the_same_contents():
    feeds = {"ids": np.arange(128).reshape(1, 128), "mask": np.ones((1, 128), bool), "rate": np.array(16000)}
    dims = {"ids": ["batch", "seq"], "mask": ["batch", "seq"], "rate": []}
    small, large = other_calls(dims, feeds)
    assert small.sizes == "batch = 1, seq = 32" and large.sizes == "batch = 3, seq = 128"
    assert [call.feeds["ids"].shape for call in (small, large)] == [(1, 32), (3, 128)]
    assert small.feeds["mask"].shape == (1, 32) and large.feeds["rate"].shape == ()
    assert [call.feeds["x"].shape for call in other_calls({"x": ["n", 3]}, {"x": np.zeros((1, 3))})] == [(3, 3)]
    assert not list(other_calls({"x": [1, 3]}, {"x": np.zeros((1, 3))})) and not list(other_calls({}, feeds))


class OneAtATime:
    """A session that refuses batches."""

    def run(self, _: object, feeds: dict[str, Any]) -> None:
        if feeds["x"].shape[0] > 1:
            raise ValueError("one at a time")


def raced(
    monkeypatch: pytest.MonkeyPatch, folder: Path, stock_ms: float = 4.0, **job: object
) -> list[tuple[int, str]]:  # fmt: skip
    """Threads and sizes that are timed where one run takes 4 ms."""
    monkeypatch.setattr(racing, "session_for", lambda *_: OneAtATime())
    monkeypatch.setattr(racing, "_rounds", lambda *_: [[1000 * stock_ms, 4000.0]] * 5)
    heard: list[dict[str, Any]] = []
    recipes = [{"x": ["FLOAT", [1, 128], "normal", [1.0]]}]
    usual = {"began": time.time(), "seconds": 60.0, "threads": [2], "pairs": [["stock", "fast.onnx"]], "stock": "s",
             "library": "l", "feeds": None, "recipes": recipes, "attempt": 0,
             "dims": {"x": ["batch", "seq"]}}  # fmt: skip
    racing.race({**usual, **job}, folder, lambda **told: heard.append(told))
    assert not [event for event in heard if "failed" in event]
    return [(one["threads"], one["sizes"]) for one in heard if "raced" in one]


def test_a_race_is_run_at_other_sizes_that_stock_takes_where_time_allows(tmp_path, monkeypatch):
    small = "batch = 1, seq = 32"
    assert raced(monkeypatch, tmp_path) == [(2, ""), (2, small)]
    assert raced(monkeypatch, tmp_path, seconds=0.01) == [(2, "")]
    assert raced(monkeypatch, tmp_path, seconds=0.01, only=[[2, small]]) == [(2, small)]
    assert raced(monkeypatch, tmp_path, dims={}) == [(2, "")]
    assert raced(monkeypatch, tmp_path, threads=[2, 3], stock_ms=9.0) == [(2, ""), (3, "")]  # far ahead


def test_a_race_ends_early_only_when_ours_is_ahead_in_every_round():
    for count, ahead in ((4, 125.0), (7, 115.0), (12, 108.0)):
        assert _decided([[ahead, 100.0]] * count)
        assert not _decided([[ahead, 100.0]] * (count - 1))
    assert not _decided([*[[125.0, 100.0]] * 5, [104.0, 100.0]])
    assert not _decided([[50.0, 100.0]] * 20)


def test_timing_takes_a_quarter_of_the_compilation_and_three_seconds_at_most():
    assert seconds_for(8.0) == 2.0 and seconds_for(1000.0) == seconds_for(100.0) == 3.0 and seconds_for(0.0) == 1.0


class Slow:
    """A session that takes a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.runs = seconds, 0

    def run(self, *_: object) -> None:
        self.runs += 1
        time.sleep(self.seconds)


def test_a_race_keeps_to_its_time_unless_ours_seems_to_be_behind():
    assert len(_rounds(Slow(0.06), Slow(0.03), {}, 0.0)) == 2  # type: ignore[arg-type]
    assert len(_rounds(Slow(0.02), Slow(0.06), {}, 0.0)) == FEWEST_ROUNDS  # type: ignore[arg-type]


class Clock:
    """Stands for the module `time`: it passes where somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s

    perf_counter = thread_time = time

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Ticking:
    """A session of a known duration by such a clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.runs = clock, seconds, 0

    def run(self, *_: object) -> None:
        self.runs += 1
        self.clock.sleep(self.seconds)


@pytest.mark.parametrize(
    ("milliseconds", "spare_s", "rounds"),
    [(6.0, 0.25, FEWEST_ROUNDS), (60.0, 0.25, 2), (6.0, 0.01, 2), (60.0, 10.0, FEWEST_ROUNDS)],
)
def test_rounds_enough_for_evidence_are_run_where_they_cost_little(
    milliseconds: float, spare_s: float, rounds: int, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr(racing, "time", clock)
    left, right = Ticking(clock, 1.1e-3 * milliseconds), Ticking(clock, 1e-3 * milliseconds)
    made = _rounds(left, right, {}, 0.0, clock.time, spare_s=spare_s)  # type: ignore[arg-type]
    assert len(made) == rounds


def test_a_session_that_has_just_run_is_not_run_again_before_it_is_timed(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(racing, "time", clock)
    left, right = Ticking(clock, 5.5e-3), Ticking(clock, 5e-3)
    rounds = _rounds(left, right, {}, 0.2, clock.time)  # type: ignore[arg-type]
    assert len(rounds) == 12 and all(pair == pytest.approx([5500.0, 5000.0]) for pair in rounds)
    assert left.runs + right.runs == 4 + 4 + 3 * (len(rounds) - 1)  # twice each, a first round, then one warm run each


def test_opening_sessions_is_taken_from_every_number_of_threads_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, shares = Clock(), list[float]()

    def opened(*_: object) -> Ticking:
        clock.sleep(0.2)
        return Ticking(clock, 0.0)

    def rounds(_left: object, _right: object, _feeds: object, seconds: float, *_: object) -> list[list[float]]:
        shares.append(seconds)
        clock.sleep(seconds)
        return [[1000.0, 1000.0]] * 5

    monkeypatch.setattr(racing, "time", clock)
    monkeypatch.setattr(racing, "session_for", opened)
    monkeypatch.setattr(racing, "_rounds", rounds)
    job = {
        "began": 0.0, "seconds": 1.0, "threads": [1, 2], "pairs": [["stock", "fast.onnx"]],
        "stock": "s", "library": "l", "feeds": None, "recipes": [],
    }  # fmt: skip
    racing.race(job, tmp_path, lambda **_: None)
    assert shares == pytest.approx([0.3, 0.3])
    assert clock.now_s == pytest.approx(1.4)  # the sessions of a second number of threads come on top


class Uneven(Slow):
    """Now fast and now slow, as on a machine that others use."""

    def run(self, *_: object) -> None:
        self.runs += 1
        time.sleep(self.seconds * (0.5 if self.runs % 5 < 2 else 1.5))


def test_a_race_that_leaves_doubt_goes_on_after_its_time():
    rounds = _rounds(Slow(0.021), Uneven(0.021), {}, 0.0)  # type: ignore[arg-type]
    assert FEWEST_ROUNDS < len(rounds) <= 25


def test_every_number_of_threads_is_timed_though_the_first_took_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def opened(*_: object) -> Slow:
        return Slow(0.001)

    monkeypatch.setattr(racing, "session_for", opened)
    heard: list[dict[str, object]] = []
    job = {
        "began": time.time() - 1, "seconds": 1.0, "threads": [2, 1], "pairs": [["stock", "fast.onnx"]],
        "stock": "s", "library": "l", "feeds": None, "recipes": [],
    }  # fmt: skip
    racing.race(job, tmp_path, lambda **told: heard.append(told))
    assert [one["threads"] for one in heard if "raced" in one] == [2, 1]


def test_one_thread_is_timed_by_its_own_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A run that waits for the processor, as under load, takes no more of it."""

    class Waiting:
        def run(self, *_: object) -> list[object]:
            began = time.thread_time()
            while time.thread_time() < began + 0.001:  # as long as a clock can tell: it is not repeated
                pass
            time.sleep(0.01)
            return []

    monkeypatch.setattr(racing, "session_for", lambda *_: Waiting())
    heard: list[dict[str, Any]] = []
    job = {
        "began": time.time(), "seconds": 0.5, "threads": [1, 2], "pairs": [["stock", "fast.onnx"]],
        "stock": "s", "library": "l", "feeds": None, "recipes": [],
    }  # fmt: skip
    racing.race(job, tmp_path, lambda **told: heard.append(told))
    one, two = ([us for pair in event["rounds"] for us in pair] for event in heard if "raced" in event)
    assert max(one) < 5_000 and min(two) > 9_000


def test_inputs_that_stock_dies_of_are_replaced_by_others(timing: Config, tmp_path: Path):
    class Dying(Races):
        attempts: ClassVar[list[object]] = []

        def __call__(self, job: dict[str, Any], *_: object) -> object:
            self.attempts.append(job["attempt"])
            if job["attempt"] == 0:
                return speed_guard.Ran(({"at": "observe", "attempt": 1},), "died of SIGFPE")
            return super().__call__(job)

    def nothing(*_: object) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed_guard, "run_worker", Dying({"stock": 1.5}))
        patch.setattr(RaceAhead, "begin", nothing)
        found = compile_to(written(tmp_path / "model.onnx"), tmp_path / "out", Options(), timing).findings
    assert found is not None and Dying.attempts == [0, 2]
    assert [round(one.ratio, 1) for one in found.timed] == [1.5] * len(found.timed) and found.timed


def test_the_timing_process_starts_without_an_ir():
    program = "import sys, smelt.check.race as r; assert not [m for m in sys.modules if m.split('.')[0] == 'onnx_ir']"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_a_process_did_before_it_was_asked_is_part_of_its_time(tmp_path: Path):
    asked = {"pairs": [["stock", "fast.onnx"]], "began": time.time(), "seconds": 1e6, "library": "l.so"}
    (tmp_path / ASKED).write_text(json.dumps(asked))
    job = _asked({"threads": [1]}, tmp_path)
    assert job["threads"] == [1] and job["pairs"] == asked["pairs"] and 0 < job["seconds"] < 1e6
    assert _asked(asked, tmp_path) is asked


def test_a_process_that_began_ahead_answers_once(timing: Config, tmp_path: Path):
    path, wanted = written(tmp_path / "model.onnx"), Examination(verify=True, tune=False, feeds={"x": X})
    with RaceAhead(path) as ahead, RaceAhead(None) as none:
        for one in (ahead, none):
            one.begin(ir.load(path), wanted, timing)
        assert none.folder is None and none.race({}, race_limits(timing)) is None
        asked = {"pairs": [["stock", "stock"]], "began": time.time(), "seconds": 0.2, "library": "l.so"}
        ran = ahead.race(asked, race_limits(timing))
        assert ran is not None and not ran.failure and any("raced" in event for event in ran.events)
        assert ahead.race(asked, race_limits(timing)) is None


def test_slow_kernels_are_not_handed_out_and_the_report_says_so(timing: Config, tmp_path: Path):
    path = written(tmp_path / "model.onnx")
    slow = replace(timing, cflags="-O0 -fno-inline")
    result = compile_to(path, tmp_path / "out", Options(feeds={"x": X}), slow)
    assert result.plan.regions == () and result.library is None
    assert {fallback.node.op_type for fallback in result.plan.fallbacks} == {"MatMul", "Tanh"}
    assert all("slower than stock ONNX Runtime" in fallback.reason for fallback in result.plan.fallbacks)
    assert any("the model is stock's own" in note for note in result.notes)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["library"] is None and manifest["timed"][0]["interval"][1] < 1
    expected = session_for(path, None).run(None, {"x": X})
    np.testing.assert_allclose(Executable.open(tmp_path / "out").run({"x": X})[0], expected[0], rtol=1e-5)
    kept = compile_to(path, tmp_path / "kept", Options(feeds={"x": X}, timing=False), slow)
    assert len(kept.plan.regions) == 1


def test_what_was_measured_is_kept_in_the_manifest_and_remembered(
    timing: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path / "model.onnx")
    first = compile_to(path, tmp_path / "out", Options(feeds={"x": X}), timing)
    assert first.findings is not None
    counts = [one.threads for one in first.findings.timed]  # one thread only where time allows it
    assert counts and counts == sorted(counts) and set(counts) <= {1, len(os.sched_getaffinity(0))}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [one["threads"] for one in manifest["timed"]] == counts

    def raced(*_: object) -> None:
        pytest.fail("timed again")

    monkeypatch.setattr(speed_guard, "run_worker", raced)
    again = compile_to(path, tmp_path / "again", Options(feeds={"x": X}), timing)
    assert again.findings is not None and again.findings.timed == first.findings.timed


@pytest.mark.parametrize(
    "options",
    [Options(timing=False), Options(ephemeral=True), Options(force=True), Options(verify=False)],
    ids=["no timing", "ephemeral", "forced", "not verified"],
)
def test_some_artifacts_are_not_timed(
    options: Options, timing: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def raced(*_: object) -> None:
        pytest.fail("timed")

    monkeypatch.setattr(kernels, "guard_speed", raced)
    compile_to(written(tmp_path / "model.onnx"), tmp_path / "out", replace(options, feeds={"x": X}), timing)


class Races:
    """Stands for the timing process: says what each pair comes to."""

    def __init__(self, ratios: dict[str, float]) -> None:
        self.ratios, self.asked = ratios, list[list[str]]()

    def __call__(self, job: dict[str, object], *_: object) -> object:
        pairs: Sequence[tuple[str, str]] = job["pairs"]  # type: ignore[assignment]
        threads: Sequence[int] = job["threads"]  # type: ignore[assignment]
        self.asked.append([left for left, _ in pairs])
        events = [
            {"raced": [left, right], "threads": count, "rounds": [[self.ratio(left, right) * 100, 100.0]] * 9}
            for count in threads
            for left, right in pairs
        ]
        return speed_guard.Ran(tuple(events))

    def ratio(self, left: str, right: str) -> float:
        return self.ratios.get(f"{left} {right}", self.ratios.get(left, 1.0))


def guarded(path: Path, config: Config, folder: Path, exclude: tuple[str, ...], races: Races) -> Findings:
    def nothing(*_: object) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed_guard, "run_worker", races)
        patch.setattr(RaceAhead, "begin", nothing)
        patch.setattr(speed_guard, "recall", nothing)
        patch.setattr(speed_guard, "remember", nothing)
        found = compile_to(path, folder, Options(feeds={"x": X}, exclude=exclude), config).findings
    assert found is not None
    return found


def two_regions(path: Path) -> Path:
    """Two products with a node between them that falls back to ONNX Runtime."""
    written(path)
    model = onnx.load(path)
    model.graph.node[1].name = "border"
    onnx.save(model, path)
    return path


def test_of_several_regions_the_one_that_loses_falls_back(timing: Config, tmp_path: Path):
    path = two_regions(tmp_path / "model.onnx")
    races = Races({"stock fast.onnx": 0.8, "without0.onnx": 0.7, "without1.onnx": 1.2, "stock kept.onnx": 1.1})
    found = guarded(path, timing, tmp_path / "out", ("border",), races)
    assert len(found.rejected) == 1
    assert races.asked == [["stock"], ["stock"], ["without0.onnx", "without1.onnx"], ["stock"]]
    assert all(one.ratio == pytest.approx(1.1) for one in found.timed)
    np.testing.assert_allclose(
        Executable.open(tmp_path / "out").run({"x": X})[0], session_for(path, None).run(None, {"x": X})[0], rtol=1e-5
    )


def test_where_no_region_is_to_blame_all_fall_back(timing: Config, tmp_path: Path):
    path = two_regions(tmp_path / "model.onnx")
    found = guarded(path, timing, tmp_path / "out", ("border",), Races({"stock fast.onnx": 0.8}))
    assert len(found.rejected) == 2


def test_a_loss_that_is_not_seen_again_changes_nothing(timing: Config, tmp_path: Path):
    class Once(Races):
        def ratio(self, left: str, right: str) -> float:
            del left, right
            return 0.8 if len(self.asked) == 1 else 1.1

    path = two_regions(tmp_path / "model.onnx")
    races = Once({})
    assert not guarded(path, timing, tmp_path / "out", ("border",), races).rejected
    assert races.asked == [["stock"], ["stock"]]


def test_what_gains_nothing_twice_is_stocks_own_model(timing: Config, tmp_path: Path):
    path = two_regions(tmp_path / "model.onnx")
    races = Races({"stock fast.onnx": 1.0})
    found = guarded(path, timing, tmp_path / "out", ("border",), races)
    assert len(found.rejected) == 2 and all("not faster than stock" in reason for reason in found.rejected.values())
    assert races.asked[:2] == [["stock"], ["stock"]]


def test_what_gains_when_timed_again_is_kept(timing: Config, tmp_path: Path):
    class Later(Races):
        def ratio(self, left: str, right: str) -> float:
            del left, right
            return 1.0 if len(self.asked) == 1 else 1.1

    found = guarded(two_regions(tmp_path / "model.onnx"), timing, tmp_path / "out", ("border",), Later({}))
    assert not found.rejected and all(one.ratio == pytest.approx(1.1) for one in found.timed)


def test_a_loss_at_another_size_counts_and_is_looked_at_there(timing: Config, tmp_path: Path):
    class Short(Races):
        only: ClassVar[list[object]] = []

        def __call__(self, job: dict[str, Any], *_: object) -> object:
            self.only.append(job.get("only"))
            usual = super().__call__(job)
            slow = [{"raced": list(pair), "threads": 1, "sizes": "seq = 32", "rounds": [[90.0, 100.0]] * 9}
                    for pair in job["pairs"]]  # fmt: skip
            return speed_guard.Ran((*usual.events, *slow))  # type: ignore[attr-defined]

    path = two_regions(tmp_path / "model.onnx")
    found = guarded(path, timing, tmp_path / "out", ("border",), Short({"stock": 1.5}))
    assert len(found.rejected) == 2 and "(seq = 32)" in next(iter(found.rejected.values()))
    assert Short.only[0] is None and all(only == [(1, "seq = 32")] for only in Short.only[1:])


def test_a_failed_measurement_is_said_and_costs_nothing(timing: Config, tmp_path: Path):
    class Dead(Races):
        def __call__(self, job: dict[str, object], *_: object) -> object:
            del job
            return speed_guard.Ran((), "was killed")

    found = guarded(two_regions(tmp_path / "model.onnx"), timing, tmp_path / "out", (), Dead({}))
    assert not found.rejected and any("Not timed" in note for note in found.notes)
