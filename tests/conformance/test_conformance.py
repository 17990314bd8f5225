"""The runner of the ONNX suite itself, and a few cases through it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import batches  # noqa: E402
import run as runner  # noqa: E402
from pool import run_all  # noqa: E402

from smelt.base.config import Config, child_environment  # noqa: E402
from smelt.toolchain import bounds_environment, find_compiler  # noqa: E402

FAKE = """
import json, os, sys, time
print(json.dumps({"ready": []}), flush=True)
for line in sys.stdin:
    name = json.loads(line)["name"]
    if name == "crash": os.abort()
    if name == "hang": time.sleep(60)
    print(json.dumps({"status": "pass", "detail": name}), flush=True)
"""


FAKE_BATCHES = """
import json, os, sys
print(json.dumps({"ready": []}), flush=True)
for line in sys.stdin:
    names = json.loads(line)["names"]
    if "test_acosh" in names: os.abort()
    print(json.dumps({"status": "pass", "detail": "", "ran": len(names), "nodes": [1, 0]}), flush=True)
"""


def test_the_pool_survives_a_crash_and_a_hang(tmp_path: Path):
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)
    names = ["a", "crash", "b", "hang", "c", "crash", "d"]
    answers = list(run_all([{"name": n} for n in names], 2, 3.0, (sys.executable, str(fake))))
    assert sorted(r["name"] for r, _ in answers) == sorted(names)
    wanted = {"crash": "crashed", "hang": "hanged"}
    assert all(answer["status"] == wanted.get(request["name"], "pass") for request, answer in answers)


def test_a_worker_that_does_not_start_is_an_error():
    with pytest.raises(RuntimeError, match="does not start"):
        list(run_all([{"name": "a"}], 1, 3.0, (sys.executable, "-c", "")))


def test_a_case_that_only_stock_passes_is_a_failure_and_misses_the_bar():
    good = {"status": "pass", "families": ["whole"], "nodes": 1, "in_kernels": 1, "left": []}
    results = {
        "stock": {"x": {"status": "pass", "families": ["whole"]}, "y": {"status": "error", "families": []}},
        "force": {"x": good | {"status": "mismatch", "detail": "off by one"}, "y": good | {"status": "error"}},
    }
    assert runner.failures(results, ["x", "y"]) == [("force", "x")]
    assert "0.0%" in runner.report(results, ["x", "y"])
    assert "off by one" in runner.report(results, ["x", "y"])
    results["force"]["x"] = good
    assert runner.failures(results, ["x", "y"]) == []


def test_some_cases_pass_by_default_and_by_force(tmp_path: Path):
    out = tmp_path / "results.json"
    names = ("add", "and2d", "argmax_default_axis_example", "concat_1d_axis_0", "layer_normalization_2d_axis0")
    pattern = f"^test_({'|'.join(names)}|reduce_l2_do_not_keepdims_example)$"
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(HERE / "run.py"),
        "--only",
        pattern,
        "--json",
        str(out),
        "--workers",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(out.read_text())
    assert {mode: len(found) for mode, found in results.items()} == {"stock": 6, "default": 6, "force": 6}
    assert all(r["status"] == "pass" and r["in_kernels"] == r["nodes"] for r in results["force"].values())


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_every_case_that_stock_passes_passes(tmp_path: Path):
    command = [sys.executable, "-W", "ignore", str(HERE / "run.py"), "--json", str(tmp_path / "results.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.full
@pytest.mark.timeout(10_000)
def test_no_case_touches_memory_that_is_not_its_own() -> None:
    """By force, in libraries that check bounds: what stock passes passes, and nothing ends a process."""
    command = [sys.executable, "-W", "ignore", str(HERE / "batches.py")]
    environment = child_environment(bounds_environment(find_compiler(Config.from_env())))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(done.stdout.split()[0]) > 1000


def test_cases_of_a_batch_are_named_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE_BATCHES)
    monkeypatch.setattr(batches, "WORKER", fake)
    cases = batches.node_cases("^test_(abs|acos|acosh|add)$")
    done = batches.run_batches(cases, "v2")
    assert done.ran == 3 and list(done.failed) == ["test_acosh"] and done.failed["test_acosh"].startswith("crashed")


SAMPLE = """argmax_random averagepool_2d_pads basic_conv_with_padding convtranspose_pad cumsum_2d_axis_1
einsum_batch_matmul gather_1 gelu_default_1 layer_normalization_3d_axis1_epsilon logsoftmax_axis_1 maxpool_2d_dilations
mod_mixed nonzero_example pow_types_int reduce_log_sum_exp_default_axes resize_upsample_scales_linear scatternd_add"""


def test_the_plain_backend_agrees_with_the_c_backend_on_a_sample() -> None:
    done = batches.run_batches(batches.node_cases(f"^test_({'|'.join(SAMPLE.split())})"), "v2", against="plain")
    assert not done.failed and done.ran > 20
    assert done.nodes[0] == done.nodes[1] > done.ran


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_plain_backend_agrees_with_the_c_backend_on_the_node_suite() -> None:
    """Nodes whose types or sizes only a declaration tells are not in kernels of the plain backend."""
    done = batches.run_batches(batches.node_cases(), "v2", against="plain")
    assert not done.failed and done.ran > 1000
    assert done.nodes[1] > 0.98 * done.nodes[0]
