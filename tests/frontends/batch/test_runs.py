from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.frontends.batch import data as sets  # noqa: E402
from tests.frontends.batch.data import (  # noqa: E402
    dense_model,
    expected,
    failures,
    part_bytes,
    results,
    rows,
    token_model,
    vectors,
    write_parquet,
)

from smelt.base.errors import BatchError, InputError  # noqa: E402

threads = pytest.mark.usefixtures("in_threads")


@threads
def test_a_rerun_skips_finished_parts_and_takes_new_files(run, tmp_path: Path):
    model = dense_model(tmp_path)
    write_parquet(tmp_path / "in" / "b.parquet", rows(250))
    assert run(model, tmp_path / "in").parts_done == 3
    before = part_bytes(tmp_path / "out")
    (tmp_path / "out" / "part-000001.parquet").unlink()
    again = run(model, tmp_path / "in")
    assert (again.parts_done, again.parts_skipped) == (1, 2)
    assert part_bytes(tmp_path / "out") == before
    write_parquet(tmp_path / "in" / "a.parquet", rows(50, 1))
    assert run(model, tmp_path / "in").parts_done == 1
    made = [(tmp_path / "out" / "_smelt" / name).read_bytes() for name in ("report.json", "report.html")]
    assert run(model, tmp_path / "in").lines() == ["done before: 300 rows in 4 parts"]
    assert made == [(tmp_path / "out" / "_smelt" / name).read_bytes() for name in ("report.json", "report.html")]
    np.testing.assert_allclose(results(tmp_path / "out"), expected(np.vstack([rows(250), rows(50, 1)])), atol=1e-6)


@threads
def test_another_model_mapping_batch_or_input_is_refused_until_restart(run, tmp_path: Path):
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(30))
    run(model, data)
    before = part_bytes(tmp_path / "out")
    other = dense_model(tmp_path, name="other.onnx", scale=2.0)
    for change, options in (("model", {}), ("mapping", {"keep": []}), ("batch", {"batch": 4}), ("contents", {})):
        if change == "contents":
            write_parquet(data, rows(30, 5))
        with pytest.raises(InputError, match=change) as refused:
            run(other if change == "model" else model, data, **options)
        assert refused.value.code == "SM-BATCH-007"
    assert part_bytes(tmp_path / "out") == before
    run(other, data, restart=True)
    np.testing.assert_allclose(results(tmp_path / "out"), 2 * expected(rows(30, 5)), atol=1e-6)


@threads
def test_failed_rows_are_null_or_left_out_and_never_shift_others(run, tmp_path: Path):
    cells = [list(map(float, row)) for row in rows(40)]
    cells[3], cells[17], cells[18] = None, cells[17][:5], [None, *cells[18][1:]]
    table = pa.table({"id": range(40), "x": pa.array(cells, pa.list_(pa.float32()))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=10)
    report = run(dense_model(tmp_path), tmp_path / "in.parquet")
    assert report.failed_rows == 3
    assert [(one["row"], one["reason"]) for one in failures(tmp_path / "out")] == [
        (3, "column 'x' is null or holds a null"),
        (17, "a list of 5, the model takes 8"),
        (18, "column 'x' is null or holds a null"),
    ]
    made = pq.read_table(tmp_path / "out")
    assert [row for row, cell in enumerate(made.column("y").to_pylist()) if cell is None] == [3, 17, 18]
    run(dense_model(tmp_path), tmp_path / "in.parquet", "dropped", drop_failed=True)
    assert pq.read_table(tmp_path / "dropped").column("id").to_pylist() == [
        i for i in range(40) if i not in (3, 17, 18)
    ]
    with pytest.raises(BatchError, match="3 rows failed") as stopped:
        run(dense_model(tmp_path), tmp_path / "in.parquet", max_errors=2)
    assert stopped.value.code == "SM-BATCH-009"


@threads
def test_a_row_that_the_model_refuses_costs_itself_alone(run, tmp_path: Path):
    from onnx import TensorProto, helper

    gather = helper.make_node("Gather", ["table", "place"], ["y"])
    content = helper.make_tensor("table", TensorProto.FLOAT, [5], np.arange(5, dtype=np.float32))
    shapes = [sets.value("place", TensorProto.INT64, ["n"])], [sets.value("y", TensorProto.FLOAT, ["n"])]
    model = sets.save(tmp_path / "gather.onnx", [gather], *shapes, (content,))
    pq.write_table(pa.table({"place": [1, 2, 99, 3, 4, 0, 77, 1]}), tmp_path / "in.parquet")
    run(model, tmp_path / "in.parquet")
    assert pq.read_table(tmp_path / "out").column("y").to_pylist() == [1, 2, None, 3, 4, 0, None, 1]
    assert [one["row"] for one in failures(tmp_path / "out")] == [2, 6]
    assert "the model:" in failures(tmp_path / "out")[0]["reason"]


def halve(batch: Any) -> Any:
    x = np.stack([np.asarray(cell, np.float32) for cell in batch.column("x").to_pylist()])
    if (x > 1e6).any():
        raise ValueError("too large")
    return {"x": x / 2}


def test_functions_before_and_after_the_model(run, tmp_path: Path):
    x = rows(40)
    x[5, 0] = 1e7

    def best(outputs: dict[str, Any]) -> dict[str, Any]:
        return {"best": outputs["y"].argmax(axis=1), "all": list(outputs["y"])}

    write_parquet(tmp_path / "in.parquet", x)
    report = run(
        dense_model(tmp_path), tmp_path / "in.parquet", preprocess=lambda b: halve(pa.table({"x": list(b["x"])})),
        postprocess=best, batch_format="numpy", batch=8,
    )  # fmt: skip
    made = pq.read_table(tmp_path / "out")
    wanted = expected(np.delete(x, 5, axis=0) / 2)
    assert report.failed_rows == 1 and "too large" in failures(tmp_path / "out")[0]["reason"]
    assert [cell for cell in made.column("best").to_pylist() if cell is not None] == wanted.argmax(axis=1).tolist()
    with pytest.raises(BatchError, match="was given 8 rows and returned 1"):
        run(dense_model(tmp_path), tmp_path / "in.parquet", "b", batch=8,
            postprocess=lambda t: t if t.num_rows != 8 else t.slice(0, 1))  # fmt: skip


@threads
def test_a_fixed_batch_dimension_is_filled_up(run, tmp_path: Path):
    x = rows(21)
    model, data = dense_model(tmp_path, batch=4), write_parquet(tmp_path / "in.parquet", x)
    with pytest.raises(InputError, match="fixed to 4") as refused:
        run(model, data, batch=16)
    assert refused.value.code == "SM-BATCH-011"
    assert run(model, data, batch="auto").batch == 4
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)


@threads
def test_casts_are_lossless_or_asked_for(run, tmp_path: Path):
    x = rows(10).astype(np.float64)
    pq.write_table(pa.table({"x": vectors(x)}), tmp_path / "in.parquet")
    with pytest.raises(InputError, match="float64, the model takes float32") as refused:
        run(dense_model(tmp_path), tmp_path / "in.parquet")
    assert refused.value.code == "SM-BATCH-005"
    run(dense_model(tmp_path), tmp_path / "in.parquet", cast=True)
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x.astype(np.float32)), atol=1e-6)
    whole = np.full((4, 8), 3, np.int64)
    whole[2, 1] = (1 << 24) + 1
    pq.write_table(pa.table({"x": vectors(whole)}), tmp_path / "whole.parquet")
    assert run(dense_model(tmp_path), tmp_path / "whole.parquet", "whole").failed_rows == 1
    assert "16777217 does not fit float32" in failures(tmp_path / "whole")[0]["reason"]


@threads
def test_text_is_tokenized_and_bucketed_by_length(run, tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "a": 2, "b": 4}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    texts = ["a", "a b", "b b b b b b b", "a a b", "zzz"] * 7
    pq.write_table(pa.table({"text": texts, "n": range(35)}), tmp_path / "in.parquet")
    run(token_model(tmp_path), tmp_path / "in.parquet", batch=4, max_length=5, tokenizer=tmp_path)
    made = pq.read_table(tmp_path / "out")
    assert made.column("n").to_pylist() == list(range(35))
    means = [2.0, 3.0, 4.0, 8 / 3, 0.0] * 7
    np.testing.assert_allclose(made.column("mean").to_pylist(), means, rtol=1e-6)
    assert [len(cell) for cell in made.column("twice").to_pylist()] == [1, 2, 5, 3, 1] * 7


# In processes of their own: a rerun after every kind of end gives the bytes of an undisturbed run.


def command(model: Path, data: Path, output: Path, *options: Any) -> list[str]:
    fixed = ("--stock", "--batch", "8", "--workers", "1", "--threads", "1", "-q")
    return [sys.executable, "-m", "smelt", "batch", *map(str, (model, "-i", data, "-o", output, *fixed, *options))]


def slow(batch: Any) -> Any:
    time.sleep(0.02)
    return batch


def slower(batch: Any) -> Any:
    time.sleep(0.05)
    return batch


def die(batch: Any) -> Any:
    if 55 in batch.column("id").to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def hang(batch: Any) -> Any:
    if 55 in batch.column("id").to_pylist():
        time.sleep(1000)
    return batch


ME = "tests.frontends.batch.test_runs"


def environment() -> dict[str, str]:
    root = Path(__file__).parents[3]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}


def with_pandas(batch: Any) -> Any:
    import pandas

    return batch if pandas.MARK else None


def test_workers_import_pandas_only_for_functions(tmp_path: Path):
    """Arrow imports it wherever it is installed, which takes longer than everything else before the first batch."""
    (tmp_path / "pandas.py").write_text(
        f"import sys, pathlib\nMARK = 1\nopen({str(tmp_path / 'seen')!r}, 'a').write(sys.argv[0] + '\\n')\n"
    )
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(20))
    found = {**environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"}
    for output, options in (("without", ()), ("with", ("--preprocess", f"{ME}:with_pandas"))):
        run = command(model, data, tmp_path / output, *options)
        subprocess.run(run, env=found, check=True, timeout=250)
        seen = (tmp_path / "seen").read_text() if (tmp_path / "seen").exists() else ""
        assert ("process.py" in seen) == (output == "with")
        np.testing.assert_allclose(results(tmp_path / output), expected(rows(20)), atol=1e-6)


@pytest.mark.full
def test_a_worker_that_dies_costs_its_part_and_the_rest_is_finished(tmp_path: Path):
    x = rows(90)
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", x, group=30)
    dying = command(model, data, tmp_path / "out", "--preprocess", f"{ME}:die")
    ran = subprocess.run(dying, env=environment(), capture_output=True, text=True, timeout=250)
    assert ran.returncode == 1, ran.stderr
    assert "1 of 3 parts failed" in ran.stderr and "rows 30 to 59" in ran.stderr and "SIGKILL" in ran.stderr
    assert sorted(path.name for path in (tmp_path / "out").glob("part-*")) == [
        "part-000000.parquet",
        "part-000002.parquet",
    ]
    assert not list((tmp_path / "out" / "_smelt" / "aside").iterdir())


@pytest.mark.full
def test_a_worker_that_hangs_is_stopped(tmp_path: Path):
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(90), group=30)
    hanging = command(model, data, tmp_path / "out", "--preprocess", f"{ME}:hang", "--timeout", "5")
    ran = subprocess.run(hanging, env=environment(), capture_output=True, text=True, timeout=250)
    assert ran.returncode == 1 and "did nothing for 5 s" in ran.stderr
    assert len(list((tmp_path / "out").glob("part-*"))) == 2


def wait_for_part(process: subprocess.Popen[Any], output: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(output.glob("part-*"))) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def interrupted(process: subprocess.Popen[Any], output: Path, number: int, wait_for: int = 1) -> int:
    """Send a signal once some parts are there; the exit code."""
    wait_for_part(process, output, wait_for)
    process.send_signal(number)
    return process.wait(timeout=120)


@pytest.mark.full
def test_ctrl_c_ends_cleanly_and_a_rerun_gives_the_same_bytes(tmp_path: Path):
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(2000), group=40)
    whole = command(model, data, tmp_path / "out", "--preprocess", f"{ME}:slow")
    with subprocess.Popen(whole, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        code = interrupted(process, tmp_path / "out", signal.SIGINT)
        assert code == 130, process.stderr.read() if process.stderr else ""
    report = json.loads((tmp_path / "out" / "_smelt" / "report.json").read_bytes())
    assert report["interrupted"] and 0 < report["parts_done"] < 50
    assert not list((tmp_path / "out" / "_smelt" / "aside").iterdir())
    subprocess.run(whole, env=environment(), check=True, timeout=250, stdout=subprocess.DEVNULL)
    np.testing.assert_allclose(results(tmp_path / "out"), expected(rows(2000)), atol=1e-6)


@pytest.mark.full
def test_twenty_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path):
    cells = [list(map(float, row)) for row in rows(12_000)]
    cells[77], cells[1234] = None, cells[1234][:3]
    table = pa.table({"id": range(12_000), "x": pa.array(cells, pa.list_(pa.float32()))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=50)
    options = ("--preprocess", f"{ME}:slower", "--workers", "2")
    model = dense_model(tmp_path)
    calm = command(model, tmp_path / "in.parquet", tmp_path / "calm", *options)
    assert subprocess.run(calm, env=environment(), timeout=600, stdout=subprocess.DEVNULL).returncode == 4
    random = np.random.default_rng(7)
    killed = command(model, tmp_path / "in.parquet", tmp_path / "out", *options)
    for turn in range(20):
        with subprocess.Popen(killed, env=environment(), stdout=subprocess.DEVNULL, start_new_session=True) as process:
            if turn % 2:  # while parts are made, however long the start takes here; else at any time
                wait_for_part(process, tmp_path / "out", len(list((tmp_path / "out").glob("part-*"))) + 1)
            time.sleep(float(random.uniform(0.0, 1.5)))
            assert process.poll() is None, "the run ended before it was killed"
            os.killpg(process.pid, signal.SIGKILL)
    assert 0 < len(list((tmp_path / "out").glob("part-*"))) < 240  # the kills met it in the middle
    assert subprocess.run(killed, env=environment(), timeout=600, stdout=subprocess.DEVNULL).returncode == 4
    assert part_bytes(tmp_path / "out") == part_bytes(tmp_path / "calm")


@pytest.mark.full
def test_an_onnx_file_is_compiled_once_and_its_artifact_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import smelt

    monkeypatch.setenv("SMELT_VERIFY", "0")
    monkeypatch.setenv("SMELT_LEVELS", "x86-64-v2" if os.uname().machine == "x86_64" else "")
    x = rows(60)
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", x)
    given = {"batch": 16, "workers": 1, "threads": 1}
    smelt.batch(model, data, tmp_path / "out", **given)
    made = (tmp_path / "out" / "_smelt" / "model" / "manifest.json").stat()
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-5)
    (tmp_path / "out" / "part-000000.parquet").unlink()
    report = smelt.batch(model, data, tmp_path / "out", **given)
    assert report.parts_done == 1
    assert (tmp_path / "out" / "_smelt" / "model" / "manifest.json").stat().st_mtime_ns == made.st_mtime_ns
    again = smelt.batch(tmp_path / "out" / "_smelt" / "model", data, tmp_path / "two", **given)
    assert again.complete
    assert part_bytes(tmp_path / "two") == part_bytes(tmp_path / "out")
