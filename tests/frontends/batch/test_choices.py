from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from tests.frontends.batch.data import dense_model, rows, write_parquet

from smelt.frontends.batch import probe, report
from smelt.frontends.batch.records import Stages


@pytest.mark.usefixtures("in_threads")
def test_batch_workers_and_threads_are_measured_within_the_cpus(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe, "_NOT_WORTH_S", 0.0)
    monkeypatch.setattr(probe, "_TIMED_S", 0.02)
    monkeypatch.setattr(probe, "usable_cpus", lambda: 4)
    data = write_parquet(tmp_path / "in.parquet", rows(2000), group=500)
    made = run(dense_model(tmp_path), data, batch="auto", workers="auto", threads="auto")
    tried = {(workers, threads) for workers, threads, _, _ in made.measured}
    assert tried == {(1, 4), (2, 2), (4, 1)}
    assert made.workers * made.threads == 4
    raced = made.measured[1:]  # the first one only told how long the run would take
    chosen = max(rate for *key, rate in raced if key == [made.workers, made.threads, made.batch])
    assert chosen * 1.05 > max(rate for *_, rate in raced)
    given = run(dense_model(tmp_path), data, "other", batch="auto", workers=3, threads=1)
    assert (given.workers, given.threads) == (3, 1)


def test_no_more_workers_than_parts_and_none_idle_at_the_end(
    run, in_threads, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probe, "_NOT_WORTH_S", 0.0)
    monkeypatch.setattr(probe, "_TIMED_S", 0.02)
    monkeypatch.setattr(probe, "usable_cpus", lambda: 4)
    data = write_parquet(tmp_path / "in.parquet", rows(200), group=200)
    made = run(dense_model(tmp_path), data, batch="auto", workers="auto", threads="auto")
    assert {(workers, threads) for workers, threads, _, _ in made.measured} == {(1, 4)}
    assert probe.evenness([10, 10, 10], 2) == 0.75
    assert probe.evenness([10, 30], 2) == pytest.approx(2 / 3)
    assert probe.evenness([10, 10, 20], 2) == 2 / 3  # handed out in their order
    assert probe.evenness([10] * 1000, 2) == probe.evenness([], 2) == 1.0


def test_a_short_run_is_not_measured(run, in_threads, tmp_path: Path):
    started = time.perf_counter()
    made = run(dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(50)), batch="auto", workers="auto")
    assert made.batch == 32 and made.workers == 1 and len(made.measured) <= 1
    assert time.perf_counter() - started < 60


def test_progress_says_rate_time_left_and_failures():
    told: list[tuple[str, int]] = []

    class Bars:
        def task(self, title: str, total: int | None = None):
            assert (title, total) == ("rows", 1000)
            return lambda text="", advance=1: told.append((text, advance))

    watcher = report.Watcher(1000, 200, 3, Bars())
    watcher.started -= 10.0
    watcher.stages({"rows": 100, "failed": 1, "infer": 9.0})
    assert told[0] == ("", 200)
    assert told[1] == ("10 rows/s, 0:01:10 left, 4 failed", 100)
    watcher.note("a worker was killed")
    watcher.stages({"rows": 100})
    assert told[2:] == [("a worker was killed", 0), ("a worker was killed", 100)]  # not overwritten at once


def test_what_limited_is_the_busiest_stage():
    assert report.limit_of(Stages(read=9.0, infer=2.0), 10.0, 1).startswith("reading (90%")
    assert report.limit_of(Stages(infer=15.0), 10.0, 2).startswith("inference (75%")
    assert "starting" in report.limit_of(Stages(infer=1.0), 10.0, 1)
