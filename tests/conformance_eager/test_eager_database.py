"""The runner of PyTorch's operator database on the device, and the database through it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's operator database needs it")

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance_torch")]

import eager_page  # noqa: E402
import eager_run as runner  # noqa: E402


def answer(status: str, natives: dict[str, int] | None = None) -> dict[str, object]:
    return {
        "status": status,
        "forms": {"function": {"status": status, "runs": 2, "detail": "off by one"}},
        "natives": natives or {},
        "fallbacks": [["aten.svd.default", "no conversion", 3], ["aten.add_.Tensor", "a tensor without elements", 1]],
    }


def test_one_difference_misses_the_bar() -> None:
    found = {"add float32": answer("pass"), "svd int64": answer("refused")}
    assert runner.good(found) and not runner.good({})
    for status in ("crashed", "hanged", "error", "mismatch", "silent"):
        assert not runner.good({**found, "mul bool": answer(status)})
    assert runner.failures({"mul bool": answer("mismatch")}) == ["mul bool function: mismatch: off by one"]


def test_an_op_is_counted_once_for_all_its_forms() -> None:
    found = {"add float32": answer("pass", {"aten.add.Tensor": 4, "aten.add.Scalar": 1})}
    assert eager_page.natives(found) == {"add": 5}
    text = eager_page.page(found, 3)
    assert "**1** ATen operators ran in ONNX Runtime" in text and "`svd`" in text and "`add`" in text


def _run(out: Path, *options: str) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-W", "ignore", str(HERE / "eager_run.py"), "--json", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.exists(), done.stdout + done.stderr
    return json.loads(out.read_text())


def test_chosen_ops_are_the_cpus_in_every_form(tmp_path: Path) -> None:
    options = ("--ops", "^(add|cumsum|sgn)$", "--dtypes", "float32", "--limit", "2", "--workers", "1")
    found = _run(tmp_path / "results.json", *options)
    assert len(found) == 3 and runner.failures(found) == [] and runner.good(found)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_the_whole_database_is_the_cpus(tmp_path: Path) -> None:
    found = _run(tmp_path / "results.json", "--limit", "3")
    assert runner.failures(found) == []
    assert len(eager_page.natives(found)) >= 200
