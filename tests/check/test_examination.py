"""Never wrong, never slower: kernels that are wrong, slow, crash or hang fall back to ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from smelt.base.config import Config
from smelt.check.watch import Limits, Ran, Worker, run_worker
from smelt.ir.kernel import expr as E
from smelt.ops.registry import lookup
from smelt.pipeline import Options, Result, compile_to
from smelt.runtime import Executable

LEVELS = ("v2", "v3")


def compiled(model: onnx.ModelProto, folder: Path, config: Config, **options) -> Result:
    options = {"force": True, "levels": LEVELS, "exclude": ("MatMul",), **options}
    return compile_to(model, folder / "out", Options(**options), config)


def rejections(result: Result) -> dict[int, str]:
    assert result.findings is not None
    return dict(result.findings.rejected)


def answers_as_numpy(result: Result) -> bool:
    x = np.random.default_rng(3).standard_normal((5, 8), np.float32)
    c = (np.tanh(x) * x) @ x.T
    return np.allclose(Executable.open(result.artifact).run({"x": x})[0], 1 / (1 + np.exp(-c)) - c, atol=1e-5)


def test_right_kernels_pass_at_every_level_of_this_machine(two_regions, tmp_path: Path, config: Config):
    result = compiled(two_regions, tmp_path, config)
    assert not rejections(result)
    verdicts = {v.region: v for v in result.findings.verdicts}
    assert len(result.plan.regions) == len(verdicts) - 1
    for region in result.plan.regions:
        verdict = verdicts[region.index]
        assert verdict.error is not None and verdict.error <= 1e-6 and "v2" in verdict.levels
    assert verdicts[None].error <= 1e-5
    assert result.artifact.manifest["verified"]["rejected"] == []


def test_a_kernel_off_by_a_thousandth_is_rejected_and_the_rest_stays(two_regions, tmp_path, config, monkeypatch):
    def wrong(call):
        return call.k.map(lambda x: E.op("mul", E.op("tanh", x), E.const(1.001, "f32")), call.x())

    declaration = lookup("", "Tanh", 17)
    monkeypatch.setitem(declaration.__dict__, "lowering", wrong)
    result = compiled(two_regions, tmp_path, config)
    (reason,) = rejections(result).values()
    assert "verification failed" in reason and "off by more than 1e-06" in reason
    assert len(result.plan.regions) >= 1 and answers_as_numpy(result)
    assert any(fallback.node.op_type == "Tanh" and fallback.reason == reason for fallback in result.plan.fallbacks)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("*(volatile int *)8 = 1;", "SIGSEGV"),
        ("return smelt_fail(env, SMELT_E_VALUE, -1, 7, 0, 0);", "refused its inputs"),
    ],
    ids=["crash", "error"],
)
def test_a_kernel_that_does_not_come_back_is_rejected(two_regions, tmp_path, config: Config, spoil, code, said):
    spoil(0, code)
    result = compiled(two_regions, tmp_path, config.with_(verify_timeout_s=20.0), levels=("v2",))
    assert list(rejections(result)) == [0] and said in rejections(result)[0]
    assert result.plan.regions and answers_as_numpy(result)


@pytest.mark.full
def test_a_busy_machine_gives_the_same_plan(two_regions, tmp_path: Path, config: Config):
    """Nothing in verification depends on a clock: as many processes as compete for the processors, the plan is one."""
    quiet = compiled(two_regions, tmp_path / "quiet", config, force=False, timing=False)
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        elsewhere = config.with_(cache_dir=tmp_path / "cache")
        busy = compiled(two_regions, tmp_path / "busy", elsewhere, force=False, timing=False)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert quiet.artifact.manifest == busy.artifact.manifest


def test_a_slow_kernel_falls_back(two_regions, tmp_path: Path, config: Config, spoil):
    spoil(0, "for (volatile int64_t i = 0; i < 300000; i++) {}")
    result = compiled(two_regions, tmp_path, config, levels=("v2",), tune=True)
    assert "slower" in rejections(result)[0]
    assert 0 not in [region.index for region in result.plan.regions] and answers_as_numpy(result)


def test_a_model_slower_than_stock_falls_back_as_a_whole(two_regions, tmp_path: Path, config: Config, spoil):
    for index in range(4):
        spoil(index, "for (volatile int64_t i = 0; i < 300000; i++) {}")
    result = compiled(two_regions, tmp_path, config, levels=("v2",), tune=True)
    assert not result.plan.regions and result.artifact.manifest["library"] is None
    assert answers_as_numpy(result)


def test_tuning_reports_the_time_of_regions_and_of_the_model(two_regions, tmp_path, config, monkeypatch):
    monkeypatch.setattr("smelt.check.tune._LOSS", 1e9)  # who is faster is not asked here
    feeds = {"x": np.random.default_rng(0).standard_normal((256, 8), np.float32)}
    result = compiled(two_regions, tmp_path, config, levels=("v2",), tune=True, feeds=feeds)
    whole = next(v for v in result.findings.verdicts if v.region is None)
    assert whole.time_us > 0 and whole.stock_time_us > 0 and whole.ratio[0] <= whole.ratio[1]
    assert whole.error is not None, "timing keeps what verification found"
    kept = {region.index for region in result.plan.regions}
    assert all(v.time_us is not None and v.time_us > 0 for v in result.findings.verdicts if v.region in kept)


def test_nan_handling_is_examined(two_regions, tmp_path: Path, config: Config, monkeypatch):
    def drops_nan(call):
        zero = E.const(0.0, "f32")
        return call.k.map(lambda a, b: E.select(E.op("eq", b, b), E.op("mul", a, b), zero), call.x(0), call.x(1))

    monkeypatch.setitem(lookup("", "Mul", 17).__dict__, "lowering", drops_nan)
    result = compiled(two_regions, tmp_path, config)
    assert any("with NaN and inf among the inputs" in reason for reason in rejections(result).values())


def test_inputs_that_the_model_refuses_leave_it_to_stock_with_a_reason(two_regions, tmp_path: Path, config: Config):
    feeds = {"x": np.zeros((3, 9), np.float32)}
    result = compiled(two_regions, tmp_path, config, feeds=feeds)
    assert not result.plan.regions
    assert any(
        "the inputs given are" in note or "not verified" in note
        for note in [*result.notes, *rejections(result).values()]
    )


def test_the_worker_is_stopped_at_its_memory_limit(tmp_path: Path):
    job = {"mode": "verify", "threads": 1, "attempt": 0, "feeds": None, "size": "small"}
    ran = run_worker(job, tmp_path, Limits(total_s=60, step_s=60, memory_bytes=64 << 20))
    assert ran.failure


def test_a_worker_that_dies_tells_what_it_was_doing(tmp_path: Path):
    ran = run_worker({"mode": "verify"}, tmp_path, Limits(total_s=60, step_s=60))
    assert ran.failure.startswith("ended with code 1") and ran.last_step == {"at": "start"}


def test_an_early_process_waits_for_its_job_and_ends_with_its_owner(tmp_path: Path):
    worker = Worker(tmp_path)
    worker.close()
    assert worker.follow(Limits(total_s=60, step_s=60)).failure == "died of SIGKILL"


def test_stock_runs_the_model_while_the_library_is_built(two_regions, tmp_path: Path, config: Config, monkeypatch):
    followed: list[Ran] = []
    follow = Worker.follow

    def kept(worker: Worker, limits: Limits) -> Ran:
        followed.append(follow(worker, limits))
        return followed[-1]

    monkeypatch.setattr(Worker, "follow", kept)
    compiled(two_regions, tmp_path, config.with_(cache_dir=tmp_path / "cache"))
    steps = [event["at"] for event in followed[0].events if "at" in event]
    assert steps.index("observe") < steps.index("build") < steps.index("region")


def test_a_build_that_fails_leaves_no_process_and_no_files(two_regions, tmp_path: Path, config: Config, monkeypatch):
    started: list[Worker] = []
    begin = Worker.__init__

    def kept(worker: Worker, *arguments) -> None:
        started.append(worker)
        begin(worker, *arguments)

    monkeypatch.setattr(Worker, "__init__", kept)
    result = compiled(two_regions, tmp_path, config.with_(cflags="--no-such-flag", strict=False))
    assert not result.plan.regions
    assert started and all(worker._process.poll() is not None for worker in started)
    assert not any((config.cache_dir / "tmp").iterdir())
