"""Limits are in processor time: a busy machine decides nothing, a kernel that runs for ever is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
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


SLEEPER = """
import os, pathlib, sys, time
from smelt.check.worker import begin
begin(pathlib.Path(sys.argv[1]))
pathlib.Path(sys.argv[1]).with_name("started").write_text(str(os.getpid()))
time.sleep(600)
"""
STARTER = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from smelt.check.watch import Limits, run_worker
run_worker({}, pathlib.Path(sys.argv[1]), Limits(total_s=600, step_s=600), "sleeper")
"""


def test_a_worker_does_not_outlive_who_started_it(tmp_path: Path):
    (tmp_path / "sleeper.py").write_text(SLEEPER, encoding="utf-8")
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    starter = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    started = tmp_path / "started"
    wait_until(lambda: started.exists() and started.read_text())
    starter.kill()
    starter.wait()
    wait_until(lambda: not Path(f"/proc/{started.read_text()}").exists())


def wait_until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
