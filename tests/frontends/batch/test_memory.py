"""Ten gigabytes of Parquet in one gigabyte of memory."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from onnx import TensorProto, helper  # noqa: E402
from tests.frontends.batch.data import save, value, vectors  # noqa: E402
from tests.frontends.batch.test_runs import command, environment  # noqa: E402

GIGABYTE = 1 << 30
WIDTH = 256
GROUP = 200_000  # 200 MB: a fifth of the memory in one row group


def sum_model(folder: Path) -> Path:
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)
    shapes = [value("x", TensorProto.FLOAT, ["n", WIDTH])], [value("y", TensorProto.FLOAT, ["n"])]
    return save(folder / "sum.onnx", [node], *shapes)


def generate(path: Path, size_bytes: int) -> int:
    """Groups of the same rows: what counts is their size. The number of groups."""
    x = np.random.default_rng(0).standard_normal((GROUP, WIDTH), dtype=np.float32)
    table = pa.table({"x": vectors(x)})
    count = max(2, size_bytes // x.nbytes)
    with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(count):
            writer.write_table(table, row_group_size=GROUP)
    return count


def tree_memory(pid: int) -> int:
    """Proportional set size of a process and its children."""
    total = 0
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                total += tree_memory(int(child))
    return total


def highest_memory(process: subprocess.Popen[bytes]) -> int:
    highest = 0
    while process.poll() is None:
        highest = max(highest, tree_memory(process.pid))
        time.sleep(0.05)
    return highest


@pytest.mark.full
@pytest.mark.parametrize("gigabytes", [1, 10])
def test_memory_is_bounded_whatever_the_file_size(tmp_path: Path, gigabytes: int):
    if shutil.disk_usage(tmp_path).free < (gigabytes + 2) * GIGABYTE:
        pytest.skip("no room for the input")

    def one_gigabyte() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTE, GIGABYTE))

    data = tmp_path / "in.parquet"
    try:
        groups = generate(data, gigabytes * GIGABYTE)
        run = command(sum_model(tmp_path), data, tmp_path / "out", "--batch", "1024", "--workers", "2")
        with subprocess.Popen(run, env=environment(), preexec_fn=one_gigabyte) as process:
            highest = highest_memory(process)
        assert process.returncode == 0
        print(f"{gigabytes} GB: at most {highest / 1e6:.0f} MB in all processes")
        assert highest < GIGABYTE
        assert pq.read_table(tmp_path / "out").num_rows == groups * GROUP
    finally:
        data.unlink(missing_ok=True)
        os.sync()
