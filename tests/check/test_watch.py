"""Limits are in processor time: a busy machine decides nothing, a kernel that runs for ever is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from smelt.check.watch import Limits, run_worker

PROGRAM = """
import json, pathlib, sys, time
job = json.loads(pathlib.Path(sys.argv[1]).read_text())
with pathlib.Path(sys.argv[1]).with_name("events.jsonl").open("a") as events:
    events.write(json.dumps(job["event"]) + "\\n")
    events.flush()
    end = time.process_time() + job["busy"]
    while time.process_time() < end:
        pass
    time.sleep(job["asleep"])
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "busy_program.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "busy_program"


def ran(folder: Path, module: str, event: dict, busy: float, asleep: float = 0.0):
    job = {"event": event, "busy": busy, "asleep": asleep}
    return run_worker(job, folder, Limits(total_s=60, step_s=0.3), module)


def test_a_kernel_that_waits_for_a_processor_is_not_stopped(tmp_path: Path, program: str):
    assert not ran(tmp_path, program, {"at": "region", "index": 0}, 0.0, asleep=1.5).failure


def test_a_kernel_that_runs_on_and_on_is_stopped(tmp_path: Path, program: str):
    found = ran(tmp_path, program, {"at": "region", "index": 0}, 60.0)
    assert "no end after" in found.failure and 0.3 <= found.seconds < 10


def test_patience_grows_with_what_stock_takes(tmp_path: Path, program: str):
    assert not ran(tmp_path, program, {"at": "model", "binding": None, "stock_s": 1.0}, 1.2).failure


def test_a_reference_may_take_its_time(tmp_path: Path, program: str):
    assert not ran(tmp_path, program, {"at": "reference", "index": 0}, 1.2).failure
