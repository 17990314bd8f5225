"""What parts, records, the manifest and the model cost, for the page on many nodes.

    python bench/batch_scale.py DIR [--parts 100000] [--commits 500] [--artifact DIR] [--ray 400]

Prints the manifest's bytes and seconds per part (written once by the driver, read once by each worker), the seconds of
a commit (file, fsync, rename, record) and of finding finished parts again, and those of packing and unpacking a model
for the nodes of a cluster. `--ray`: parts of one row and a model that costs nothing through Ray on this machine:
what is left is Ray's own time for a part.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import TensorProto, helper

import smelt
from smelt.frontends.batch.output_folder import OutputFolder
from smelt.frontends.batch.ray_run import packed, unpacked
from smelt.frontends.batch.records import InputFile, Job, ModelRef, Part, PartRecord, job_from_json

PARTS_OF_A_FILE = 100


def job_of(folder: Path, parts: int) -> Job:
    files = [
        InputFile(f"/data/in/shard-{n:06d}.parquet", "parquet", 10**9, "0" * 64, 10**6, 100.0)
        for n in range(parts // PARTS_OF_A_FILE)
    ]
    every = [
        Part(n, n // PARTS_OF_A_FILE, n % PARTS_OF_A_FILE, n % PARTS_OF_A_FILE + 1, 0, 10**4) for n in range(parts)
    ]
    return Job(str(folder), ModelRef("m", "0" * 64, "m"), tuple(files), tuple(every), "", (), (), ())


def timed(call: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    made = call()
    return time.perf_counter() - started, made


def manifest(folder: OutputFolder, parts: int) -> None:
    job = job_of(folder.root, parts)
    wrote, _ = timed(lambda: folder.write_job(job))
    size = folder.manifest.stat().st_size
    read, _ = timed(lambda: job_from_json(json.loads(folder.manifest.read_bytes())["job"]))
    shipped, _ = timed(lambda: job_from_json(asdict(job)))
    print(f"manifest of {parts:,} parts: {size / parts:.0f} bytes, {1e6 * wrote / parts:.1f} us to write and", end=" ")
    print(f"{1e6 * read / parts:.1f} us to read a part; {1e6 * shipped / parts:.1f} us a part in an actor")


def commits(folder: OutputFolder, count: int) -> None:
    job = job_of(folder.root, max(count, PARTS_OF_A_FILE))
    content = bytes(1 << 20)

    def commit(part: Part) -> None:
        aside = folder.aside / f"{part.stem}.bench"
        aside.write_bytes(content)
        place = folder.part_path(part, "parquet")
        folder.commit(aside, place, PartRecord(part.index, place.name, part.rows, len(content), "0" * 64))

    took, _ = timed(lambda: [commit(part) for part in job.parts[:count]])
    again, found = timed(lambda: folder.finished(job))
    print(f"commit of a part of 1 MB: {1e3 * took / count:.2f} ms; finding it again: {1e6 * again / len(found):.0f} us")


def ship(folder: OutputFolder, artifact: Path) -> None:
    took, content = timed(lambda: packed(artifact))
    unpacking, _ = timed(lambda: unpacked(content, False, "model", folder.root / "node"))
    print(f"model of {len(content) / 1e6:.0f} MB: {took:.2f} s to pack, {unpacking:.2f} s to unpack on a node")


def through_ray(folder: Path, parts: int) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", shapes[:1], shapes[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    pq.write_table(pa.table({"x": pa.array(range(parts), pa.float32())}), folder / "in.parquet", row_group_size=1)
    given: dict[str, Any] = {"stock": True, "batch": 1, "workers": 1, "threads": 1, "keep": []}
    for name, ray in (("locally", None), ("on Ray", "local")):
        report = smelt.batch(folder / "m.onnx", folder / "in.parquet", folder / f"out {name}", ray=ray, **given)
        steps = [one for one in report.rates if one[1]]
        span = report.seconds - steps[0][0]
        print(f"{parts} parts of a row {name}: {report.seconds:.1f} s, {parts / span:.0f} parts/s once it runs")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--ray", type=int, default=0)
    given = parser.parse_args()
    folder = OutputFolder(given.folder)
    folder.aside.mkdir(parents=True, exist_ok=True)
    manifest(folder, given.parts)
    commits(folder, given.commits)
    if given.artifact:
        ship(folder, given.artifact)
    if given.ray:
        through_ray(given.folder, given.ray)
    shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
