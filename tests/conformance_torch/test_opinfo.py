"""The runner of PyTorch's operator database itself, and a fixed part of the database through it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's operator database needs it")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import opinfo_run as runner  # noqa: E402
from opinfo_compare import Mismatch, compare, places_that_hold  # noqa: E402
from opinfo_samples import Sample, is_random  # noqa: E402

# One or two of every family of the exporter's table.
CHOSEN = (
    "add", "addmm", "all", "arange", "argmax", "cat", "cumsum", "div.floor_rounding", "einsum", "gather", "index_put",
    "logsumexp", "nn.functional.avg_pool2d", "nn.functional.batch_norm", "nn.functional.conv2d",
    "nn.functional.cross_entropy", "nn.functional.layer_norm", "nn.functional.pad.reflect", "scatter_add", "sort",
)  # fmt: skip


def _results(**statuses: str) -> dict[str, dict[str, str]]:
    return {f"{name} float32": {"status": status} for name, status in statuses.items()}


def test_an_entry_is_as_good_as_its_worst_dtype():
    found = {"add float32": {"status": "pass"}, "add int64": {"status": "mismatch"}, "sub bool": {"status": "refused"}}
    assert runner.by_entry(found) == {"add": "mismatch", "sub": "refused"}


def test_one_wrong_answer_misses_the_bar_and_so_do_too_many_ops_left_in_torch():
    passed = dict.fromkeys((f"op{k}" for k in range(17)), "pass")
    left = {"a": "partly", "b": "partly", "c": "partly"}
    assert runner.good(_results(**passed, **left))
    assert not runner.good(_results(**passed, **left, d="partly"))
    assert not runner.good(_results(**passed, wrong="mismatch"))
    assert not runner.good(_results(**passed, wrong="error"))
    assert runner.good(_results(**passed, other="refused"))


def test_the_report_names_what_failed_and_why():
    answer = {"status": "mismatch", "samples": [{"status": "pass"}, {"status": "mismatch", "detail": "off by one"}]}
    text = runner.report({"plain": {"add float32": answer}}, verbose=True)
    assert "add float32: mismatch: off by one" in text


def test_two_exporters_are_compared_over_what_both_were_asked():
    theirs = _results(a="pass", b="error", c="mismatch", other="pass")
    lines = runner.comparison(_results(a="pass", b="partly", c="pass", d="pass", e="refused"), theirs)
    assert lines[0].startswith("of 3 ops")
    assert "3 right, 2 in ONNX Runtime alone" in lines[1]
    assert "1 right, 1 wrong, 1 refused" in lines[2]
    assert "only smelt   2, only torch.onnx 0" in lines[3]


def test_a_part_of_the_database_is_the_same_in_every_run():
    names = {f"op{k}": k for k in range(50)}
    assert len(runner.drawn(names, 7)) == 7
    assert runner.drawn(names, 7) == runner.drawn(dict(reversed(names.items())), 7)
    assert runner.drawn(names, 0) == names


def test_values_shapes_dtypes_and_structure_are_compared():
    one = torch.ones(3)
    compare((one, 2), (one.clone(), 2), lambda: one.double(), values=True)
    for wrong in (one + 1e-3, one.double(), torch.ones(4), (one, one), torch.tensor([1, 1, float("nan")])):
        with pytest.raises(Mismatch):
            compare(wrong, one, lambda: one.double(), values=True)
    compare(one + 1, one, lambda: one, values=False)


def test_a_result_may_be_as_far_from_the_exact_one_as_eager_torch_is():
    exact = torch.tensor([1.0], dtype=torch.float64)
    want = torch.tensor([1.001])
    compare(torch.tensor([0.999]), want, lambda: exact, values=True)
    with pytest.raises(Mismatch, match="off by"):
        compare(torch.tensor([0.99]), want, lambda: exact, values=True)


def test_any_of_several_equal_elements_may_be_named_but_no_other():
    source, values = torch.tensor([3, 1, 1, 2]), torch.tensor(1)
    assert places_that_hold(source, torch.tensor(1), values, 0)
    assert places_that_hold(source, torch.tensor(2), values, 0)
    assert not places_that_hold(source, torch.tensor(3), values, 0)


def test_random_ops_are_recognized():
    assert is_random(Sample(torch.rand_like, (torch.ones(2),), {}))
    assert not is_random(Sample(torch.nn.functional.dropout, (torch.ones(2),), {"training": False}))


def test_chosen_ops_run_in_onnx_runtime_alone(tmp_path: Path):
    pattern = "^(" + "|".join(name.replace(".", r"\.") for name in CHOSEN) + ")$"
    found = _run(tmp_path, "plain", "--ops", pattern, "--dtypes", "float32", "--limit", "1", "--workers", "1")
    assert sorted(key.split()[0] for key in found) == sorted(CHOSEN)
    assert {key: answer for key, answer in found.items() if answer["status"] != "pass"} == {}


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_the_whole_database_meets_the_bars(tmp_path: Path):
    assert runner.good(_run(tmp_path, "smelt"))


def _run(tmp_path: Path, mode: str, *options: str) -> dict[str, dict[str, str]]:
    out = tmp_path / "results.json"
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(HERE / "opinfo_run.py"),
        "--modes",
        mode,
        "--json",
        str(out),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.exists(), done.stdout + done.stderr
    return json.loads(out.read_text())[mode]
