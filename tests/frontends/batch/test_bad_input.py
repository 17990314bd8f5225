"""Whatever is wrong is said before work is done, or costs what it belongs to; finished parts stay valid."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

from tests.frontends.batch.data import (  # noqa: E402
    dense_model,
    expected,
    part_bytes,
    results,
    rows,
    vectors,
    write_parquet,
)
from tests.frontends.batch.test_runs import command, environment  # noqa: E402

from smelt.base.errors import BatchError, ConfigError, SmeltError  # noqa: E402
from smelt.frontends.batch import models  # noqa: E402
from smelt.frontends.batch.part_writer import PartWriter  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_threads")


def refused(call, code: str) -> str:
    with pytest.raises(SmeltError) as error:
        call()
    assert error.value.code == code, error.value
    return str(error.value)


def test_no_files_match(run, tmp_path: Path):
    assert "no*.parquet" in refused(lambda: run(dense_model(tmp_path), tmp_path / "no*.parquet"), "SM-BATCH-002")
    (tmp_path / "empty").mkdir()
    refused(lambda: run(dense_model(tmp_path), tmp_path / "empty"), "SM-BATCH-002")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.npy", "a.npz", "a.csv", "a.jsonl"])
def test_a_file_of_no_bytes(run, tmp_path: Path, name: str):
    (tmp_path / name).touch()
    assert name in refused(lambda: run(dense_model(tmp_path), tmp_path / name), "SM-BATCH-003")


@pytest.mark.parametrize("content", [b"PAR1", b"no parquet at all"])
def test_an_unreadable_file_is_named(run, tmp_path: Path, content: bytes):
    (tmp_path / "bad.parquet").write_bytes(content)
    assert "bad.parquet" in refused(lambda: run(dense_model(tmp_path), tmp_path / "bad.parquet"), "SM-BATCH-003")


def test_a_truncated_parquet_file_is_named_before_any_work(run, tmp_path: Path):
    good = write_parquet(tmp_path / "in" / "a.parquet", rows(50))
    (tmp_path / "in" / "b.parquet").write_bytes(good.read_bytes()[:-200])
    assert "b.parquet" in refused(lambda: run(dense_model(tmp_path), tmp_path / "in"), "SM-BATCH-003")
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_page_that_cannot_be_decoded_costs_its_part(run, tmp_path: Path):
    x = rows(300)
    data = write_parquet(tmp_path / "in.parquet", x)
    place = pq.ParquetFile(data).metadata.row_group(1).column(1).data_page_offset
    content = bytearray(data.read_bytes())
    content[place : place + 40] = b"\xff" * 40
    data.write_bytes(content)
    with pytest.raises(BatchError, match=r"1 of 3 parts failed; part 1 .*rows 100 to 199") as failed:
        run(dense_model(tmp_path), data)
    assert failed.value.code == "SM-BATCH-010"
    np.testing.assert_allclose(results(tmp_path / "out"), expected(np.delete(x, range(100, 200), 0)), atol=1e-6)


def test_a_missing_column_shows_both_lists(run, tmp_path: Path):
    pq.write_table(pa.table({"a": [1.0], "b": ["t"], "c": [2.0]}), tmp_path / "in.parquet")
    said = refused(lambda: run(dense_model(tmp_path), tmp_path / "in.parquet"), "SM-BATCH-004")
    assert "x: tensor(float)[n,8]" in said and "a: double; b: string; c: double" in said
    said = refused(lambda: run(dense_model(tmp_path), tmp_path / "in.parquet", map={"x": "z"}), "SM-BATCH-004")
    assert "'z'" in said
    assert "'q'" in refused(lambda: run(dense_model(tmp_path), tmp_path / "in.parquet", map={"q": "a"}), "SM-BATCH-004")
    refused(
        lambda: run(dense_model(tmp_path), write_parquet(tmp_path / "ok.parquet", rows(3)), keep=["no"]), "SM-BATCH-004"
    )
    refused(lambda: run(dense_model(tmp_path), tmp_path / "ok.parquet", outputs=["no"]), "SM-BATCH-004")


def test_columns_are_checked_before_the_model_is_compiled(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def compiled(*_: object) -> None:
        raise AssertionError("it was compiled")

    monkeypatch.setattr(models, "_compile", compiled)
    monkeypatch.setattr(models, "_sentences", compiled)
    pq.write_table(pa.table({"a": [1.0], "text": ["t"]}), tmp_path / "in.parquet")
    model, data = dense_model(tmp_path), tmp_path / "in.parquet"
    said = refused(lambda: run(model, data, map={"x": "z"}, stock=False), "SM-BATCH-004")
    assert "'z'" in said and "x: tensor(float)[n,8]" in said and "a: double; text: string" in said
    folder = tmp_path / "sentences"
    folder.mkdir()
    for name in ("modules.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    for stock in (False, True):
        said = refused(partial(run, folder, data, text="txt", stock=stock), "SM-BATCH-004")
        assert "there is no column 'txt'" in said and "input_ids: tensor(int64)[rows,tokens]" in said
    with pytest.raises(AssertionError, match="it was compiled"):
        run(folder, data, stock=False)


def test_a_column_of_the_wrong_type_or_shape_shows_both_lists(run, tmp_path: Path):
    pq.write_table(pa.table({"x": ["text"] * 4}), tmp_path / "in.parquet")
    said = refused(lambda: run(dense_model(tmp_path), tmp_path / "in.parquet"), "SM-BATCH-005")
    assert "x: string" in said and "x: tensor(float)[n,8]" in said
    pq.write_table(pa.table({"x": vectors(np.zeros((4, 7), np.float32))}), tmp_path / "short.parquet")
    refused(lambda: run(dense_model(tmp_path), tmp_path / "short.parquet"), "SM-BATCH-005")
    pq.write_table(pa.table({"a": [1.0], "t": ["t"]}), tmp_path / "double.parquet")
    said = refused(lambda: run(dense_model(tmp_path), tmp_path / "double.parquet"), "SM-BATCH-005")
    assert "'a' is float64" in said and "x: tensor(float)[n,8]" in said and "t: string" in said and "--cast" in said


def test_files_that_differ_are_named(run, tmp_path: Path):
    write_parquet(tmp_path / "in" / "a.parquet", rows(5))
    pq.write_table(pa.table({"id": ["s"] * 5, "x": vectors(rows(5))}), tmp_path / "in" / "b.parquet")
    assert "another type in 'id'" in refused(lambda: run(dense_model(tmp_path), tmp_path / "in"), "SM-BATCH-004")


def test_files_without_rows_are_no_rows(run, tmp_path: Path):
    write_parquet(tmp_path / "in" / "a.parquet", rows(0))
    assert run(dense_model(tmp_path), tmp_path / "in").rows == 0
    write_parquet(tmp_path / "in" / "b.parquet", rows(5))
    assert run(dense_model(tmp_path), tmp_path / "in", "two").rows_done == 5
    (tmp_path / "in.csv").write_text("a,b\n")
    assert run(dense_model(tmp_path), tmp_path / "in.csv", "csv", map={"x": "a,b,a,b,a,b,a,b"}).rows == 0


def test_an_output_folder_with_other_content_is_left_alone(run, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("dear")
    data = write_parquet(tmp_path / "in.parquet", rows(5))
    assert "letter.txt" in refused(lambda: run(dense_model(tmp_path), data), "SM-BATCH-006")
    refused(lambda: run(dense_model(tmp_path), data, restart=True), "SM-BATCH-006")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["letter.txt"]
    (tmp_path / "file").touch()
    refused(lambda: run(dense_model(tmp_path), data, "file"), "SM-BATCH-006")


@pytest.fixture
def unprivileged(run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that others may read and not write, for a user who is not root."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    dense_model(place), write_parquet(place / "in.parquet", rows(5))
    run(place / "dense.onnx", place / "in.parquet", tmp_path_factory.mktemp("imported") / "out")
    mine = os.geteuid()
    try:
        if mine == 0:
            os.seteuid(65534)
        else:
            place.chmod(0o555)
        yield place
    finally:
        os.seteuid(mine)
        place.chmod(0o755)
        shutil.rmtree(place)


def test_no_permission_to_write(run, unprivileged: Path):
    said = refused(
        lambda: run(unprivileged / "dense.onnx", unprivileged / "in.parquet", unprivileged / "out"), "SM-BATCH-008"
    )
    assert "Permission denied" in said and not (unprivileged / "out").exists()


def test_no_permission_to_read(run, unprivileged: Path, tmp_path_factory: pytest.TempPathFactory):
    shut = Path(tempfile.mkdtemp()) / "shut.parquet"
    shut.touch(mode=0o000)
    said = refused(lambda: run(unprivileged / "dense.onnx", shut, shut.parent / "out"), "SM-BATCH-003")
    assert "shut.parquet cannot be read: Permission denied" in said
    shutil.rmtree(shut.parent)


def test_a_place_where_no_folder_can_be(run, tmp_path: Path):
    (tmp_path / "file").touch()
    data = write_parquet(tmp_path / "in.parquet", rows(5))
    refused(lambda: run(dense_model(tmp_path), data, "file/out"), "SM-BATCH-008")


def test_two_runs_do_not_share_a_folder(run, tmp_path: Path):
    from smelt.frontends.batch.output_folder import OutputFolder

    data = write_parquet(tmp_path / "in.parquet", rows(5))
    with OutputFolder(tmp_path / "out").locked():
        refused(lambda: run(dense_model(tmp_path), data), "SM-BATCH-013")


def test_a_disk_that_fills_up_leaves_the_finished_parts(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    x = rows(300)
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", x)
    calm = run(model, data, "calm")
    parts, write = iter(range(calm.parts)), PartWriter.__init__

    def no_room(data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def opened(self: PartWriter, *given: object) -> None:
        write(self, *given)  # type: ignore[arg-type]
        if next(parts) == 1:
            self.file.write = no_room  # type: ignore[method-assign]

    with monkeypatch.context() as patched:
        patched.setattr(PartWriter, "__init__", opened)
        assert "No space left on device" in refused(lambda: run(model, data), "SM-BATCH-008")
    assert [path.name for path in (tmp_path / "out").glob("part-*")] == ["part-000000.parquet"]
    assert not list((tmp_path / "out" / "_smelt" / "aside").iterdir())
    again = run(model, data)
    assert (again.parts_done, again.parts_skipped) == (2, 1)
    assert part_bytes(tmp_path / "out") == part_bytes(tmp_path / "calm")


@pytest.mark.full
def test_a_full_disk_ends_the_run_and_a_rerun_goes_on(tmp_path: Path):
    x = rows(20_000)
    model = dense_model(tmp_path)
    data = write_parquet(tmp_path / "in.parquet", x, group=10_000)

    def few_bytes() -> None:  # a file beyond 64 kB is refused, as one on a full disk is
        resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, 64_000))

    short = command(model, data, tmp_path / "out")
    ran = subprocess.run(short, env=environment(), capture_output=True, text=True, timeout=250, preexec_fn=few_bytes)
    assert ran.returncode == 1, ran.stderr
    assert "SM-BATCH-008" in ran.stderr and "cannot be written" in ran.stderr
    assert not list((tmp_path / "out").glob("part-*")) and not list((tmp_path / "out" / "_smelt" / "aside").iterdir())
    again = subprocess.run(short, env=environment(), capture_output=True, text=True, timeout=250)
    assert again.returncode == 0, again.stderr
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)


def test_options_that_cannot_be_read(run, tmp_path: Path):
    data = write_parquet(tmp_path / "in.parquet", rows(5))
    for wrong in (
        {"batch": "many"}, {"workers": -1}, {"batch_format": "pandas"}, {"format": "xml"}, {"image": "resize"},
        {"image": "crop=0"}, {"image": "blur=3"},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            run(dense_model(tmp_path), data, **wrong)
    refused(lambda: run(dense_model(tmp_path), data, preprocess="no.such:thing"), "SM-BATCH-012")
    refused(lambda: run(tmp_path / "gone.onnx", data), "SM-LOAD-001")
    assert "in.parquet" in refused(lambda: run(data, data), "SM-LOAD-002")
    refused(lambda: run(object(), data), "SM-LOAD-008")
    assert "no input" in refused(lambda: run(dense_model(tmp_path), data, image="resize=8x8"), "SM-BATCH-005")
    refused(lambda: run(dense_model(tmp_path), data, tokenizer=tmp_path / "none"), "SM-BATCH-003")


def test_limits_that_mean_nothing_are_refused(run, tmp_path: Path):
    data = write_parquet(tmp_path / "in.parquet", rows(5))
    for wrong in ({"max_errors": -1}, {"timeout_s": 0}, {"timeout_s": float("nan")}):
        with pytest.raises(ConfigError):
            run(dense_model(tmp_path), data, **wrong)
    assert not (tmp_path / "out").exists()


def test_a_text_column_that_feeds_nothing_is_refused(run, tmp_path: Path):
    data = write_parquet(tmp_path / "in.parquet", rows(5), text=["t"] * 5)
    said = refused(lambda: run(dense_model(tmp_path), data, text="text"), "SM-BATCH-004")
    assert "--text 'text' feeds nothing, there is no tokenizer" in said


def test_a_column_that_is_there_twice_is_named(run, tmp_path: Path):
    x = vectors(rows(5))
    for ending, write in (("parquet", pq.write_table), ("arrow", feather.write_feather)):
        write(pa.Table.from_arrays([x, x], names=["x", "x"]), tmp_path / f"in.{ending}")
        said = refused(lambda: run(dense_model(tmp_path), tmp_path / f"in.{ending}"), "SM-BATCH-003")  # noqa: B023
        assert "names a column twice: x" in said


def test_a_json_array_is_no_json_lines(run, tmp_path: Path):
    (tmp_path / "in.jsonl").write_text(json.dumps([{"x": [0.0] * 8}]))
    said = refused(lambda: run(dense_model(tmp_path), tmp_path / "in.jsonl"), "SM-BATCH-003")
    assert "no line is a JSON object, the first is a JSON list" in said
    (tmp_path / "in.jsonl").write_text(json.dumps([{"x": [0.0] * 8}], indent=1))
    assert "the first is no JSON" in refused(lambda: run(dense_model(tmp_path), tmp_path / "in.jsonl"), "SM-BATCH-003")


def test_a_folder_of_folders_tells_the_pattern_that_reads_it(run, tmp_path: Path):
    write_parquet(tmp_path / "in" / "year=2026" / "a.parquet", rows(5))
    with pytest.raises(SmeltError) as error:
        run(dense_model(tmp_path), tmp_path / "in")
    assert "year=2026/a.parquet" in str(error.value)
    pattern = error.value.hint.split("'")[1]
    assert run(dense_model(tmp_path), pattern).rows == 5


def test_reasons_hold_no_addresses_and_are_the_same_in_every_run(run, tmp_path: Path):
    def some(table):
        if 6 in table["id"].to_pylist():
            raise ValueError(f"cannot use {object()}")
        return table

    data = write_parquet(tmp_path / "in.parquet", rows(8))
    run(dense_model(tmp_path), data, preprocess=some, keep=["id"])
    told = [json.loads(line) for line in (tmp_path / "out" / "_smelt" / "errors.jsonl").read_text().splitlines()]
    assert [one["reason"] for one in told] == ["preprocessing: ValueError: cannot use <object object>"]


def test_an_output_that_does_not_count_rows_is_refused(run, tmp_path: Path):
    from onnx import TensorProto, helper
    from tests.frontends.batch.data import save, value

    node = helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0)
    model = save(
        tmp_path / "t.onnx", [node], [value("x", TensorProto.FLOAT, ["n", 8])], [value("total", TensorProto.FLOAT, [])]
    )
    assert "'total'" in refused(lambda: run(model, write_parquet(tmp_path / "in.parquet", rows(5))), "SM-BATCH-014")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    from smelt.frontends.batch.packages import package

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "smelt[batch]" in refused(lambda: package("pyarrow"), "SM-BATCH-001")


def test_exit_codes_and_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    from smelt.cli import main

    cells = [list(map(float, row)) for row in rows(4)]
    cells[1] = None
    pq.write_table(pa.table({"x": pa.array(cells, pa.list_(pa.float32()))}), tmp_path / "in.parquet")
    common = ["batch", str(dense_model(tmp_path)), "-i", str(tmp_path / "in.parquet"), "--stock", "--json"]
    codes: list[int] = []
    for more in (["-o", "a"], ["-o", "b", "--map", "x"], ["-o", "c", "--max-errors", "0"]):
        with pytest.raises(SystemExit) as ended:
            main([*common, *(str(tmp_path / one) if len(one) == 1 and one in "abc" else one for one in more)])
        codes.append(int(ended.value.code or 0))
        told = json.loads(capfd.readouterr().out)
        assert "error" in told or told["failed_rows"] == 1
    assert codes == [4, 2, 1]


def test_the_cgroup_bounds_cpus_and_memory(tmp_path: Path):
    from smelt.frontends.batch.machine import usable_cpus, usable_memory_bytes

    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root" / "a" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "root" / "a" / "b" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "root" / "a" / "memory.max").write_text("1000000\n")
    (tmp_path / "root" / "a" / "memory.current").write_text("400000\n")
    assert usable_cpus(tmp_path / "root", own) == 1
    assert usable_memory_bytes(tmp_path / "root", own) == 600_000
    own.write_text("4:memory:/c\n1:cpu,cpuacct:/c\n")
    (tmp_path / "root" / "cpu" / "c").mkdir(parents=True)
    (tmp_path / "root" / "cpu" / "c" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "root" / "cpu" / "c" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path / "root", own) == 1


def test_the_report_page_draws_the_rates_and_escapes_names(run, tmp_path: Path):
    run(dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(50)), "<b>out")
    page = (tmp_path / "<b>out" / "_smelt" / "report.html").read_text()
    assert "<polyline" in page and "&lt;b&gt;out" in page and "<b>out" not in page
    report = json.loads((tmp_path / "<b>out" / "_smelt" / "report.json").read_bytes())
    assert report["complete"] and report["stages"]["infer"] > 0 and report["rates"]
