"""Parts -> actors of a Ray cluster.

Input: a job and the parts that are left. Output: the same part files and records as a local run makes. Invariant: an
actor writes a part and its record itself, so that a driver that dies loses nothing; a part that Ray runs twice (a node
died after the rename) has the same bytes, and replaces itself. Input and output folders are at the same path on every
node; the artifact need not be: it is in the object store once per node, and unpacked there once.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from smelt.base.errors import BatchError, InputError, SmeltError
from smelt.frontends.batch.crew import Crew
from smelt.frontends.batch.functions import Function
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.pool import Watch
from smelt.frontends.batch.records import Job, Part, Told, job_from_json
from smelt.frontends.session.identity import external_files

_IN_FLIGHT: Final = 2
_REACH_S: Final = 10.0
_STAGES: Final = ("read", "prepare", "infer", "write")


def run_on_ray(job: Job, left: Sequence[Part], watch: Watch, address: str, crew: Crew, max_errors: int | None) -> bool:
    """Make the parts that are left with `map_batches` over a pool of actors; True when all came to an end."""
    _check_reachable(address)
    ray = package("ray", "ray")
    data = package("ray.data", "ray")
    began = _connect(ray, address)
    try:
        shipped = ray.put(packed(Path(job.model.artifact)))
        cpus = float(ray.cluster_resources().get("CPU", 1))
        threads = min(job.threads, int(_smallest_node(ray)))
        actors = max(1, min(len(left), job.workers if job.workers > 1 else int(cpus // threads)))
        items = data.from_items([{"part": part.index} for part in left], override_num_blocks=len(left))
        given = ray.put(asdict(replace(job, threads=threads)))  # once per node as well: it lists every part
        made = items.map_batches(
            PartActor,
            fn_constructor_args=(given, shipped, max_errors, crew.preprocess, crew.postprocess),
            batch_size=1,
            num_cpus=threads,
            compute=data.ActorPoolStrategy(min_size=1, max_size=actors, max_tasks_in_flight_per_actor=_IN_FLIGHT),
        )
        return _follow(made, watch) == len(left)
    finally:
        if began:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes where nobody listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        raise InputError("SM-BATCH-015", f"nobody answers at {address}: {error}") from error


def _connect(ray: Any, address: str) -> bool:
    """True where this call began what it must end."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address=None if address == "local" else address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())[:300]
        raise InputError("SM-BATCH-015", f"Ray at {address!r} cannot be reached: {text}") from error
    return True


def _smallest_node(ray: Any) -> float:
    """An actor must fit a node."""
    sizes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    return max(1.0, min((size for size in sizes if size >= 1), default=1.0))


def _follow(made: Any, watch: Watch) -> int:
    """How many parts came to an end."""
    ended = 0
    try:
        for row in made.iter_rows():
            ended += 1
            seen = {"rows": int(row["read"]), "failed": int(row["failed"])}
            watch.stages({**seen, **{name: float(row[f"{name}_s"]) for name in _STAGES}})
            if row["reason"]:
                watch.failed(int(row["part"]), str(row["reason"]))
            else:
                watch.done(int(row["part"]), int(row["rows"]), int(row["failed"]))
    except KeyboardInterrupt:
        return ended
    except Exception as error:
        if isinstance(error, SmeltError):
            raise
        # Ray wraps what an actor raised, in one of several classes.
        cause = _cause(error)
        if isinstance(cause, SmeltError):
            raise cause from error
        raise BatchError("SM-BATCH-015", f"the run on Ray ended: {' '.join(str(error).split())[-500:]}") from error
    return ended


def _cause(error: BaseException) -> BaseException:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, SmeltError):
            return seen
        seen = getattr(seen, "cause", None) or seen.__cause__
    return error


class PartActor:
    """One worker in an actor. `job` is one as JSON, `shipped` an artifact as `packed` made it; or their references."""

    def __init__(
        self, job: Any, shipped: Any, max_errors: int | None, preprocess: Function | None,
        postprocess: Function | None,
    ) -> None:  # fmt: skip
        from smelt.frontends.batch.worker import Worker

        package("pyarrow").set_cpu_count(1)
        own = job_from_json(job if isinstance(job, dict) else package("ray", "ray").get(job))  # pyright: ignore[reportUnknownArgumentType]
        content = shipped if isinstance(shipped, bytes) else package("ray", "ray").get(shipped)
        artifact = unpacked(content, own.model.stock, Path(own.model.artifact).name)
        self.job = replace(own, model=replace(own.model, artifact=str(artifact)))
        self._told: list[Told] = []
        self._worker = Worker(
            self.job, preprocess=preprocess, postprocess=postprocess, tell=self._told.append, max_errors=max_errors
        )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        columns: dict[str, list[Any]] = {
            name: [] for name in ("part", "rows", "failed", "reason", "read", *(f"{name}_s" for name in _STAGES))
        }
        for index in batch["part"]:
            for name, value in self._made(int(index)).items():
                columns[name].append(value)
        return columns

    def _made(self, index: int) -> dict[str, Any]:
        self._told.clear()
        self._worker.run([self.job.parts[index]])
        last = next(told for told in reversed(self._told) if told.kind in {"done", "failed"})
        sums = {f"{name}_s": sum(told.stages.get(name, 0.0) for told in self._told) for name in _STAGES}
        return {
            "part": index, "rows": last.rows, "failed": last.failed, "reason": last.text,
            "read": self.job.parts[index].rows, **sums,
        }  # fmt: skip


def packed(artifact: Path) -> bytes:
    """An artifact folder, or a plain ONNX file with its external data, as one block of bytes."""
    block = io.BytesIO()
    with tarfile.open(fileobj=block, mode="w") as archive:
        if artifact.is_dir():
            archive.add(artifact, arcname="model")
        else:
            for file in (artifact, *filter(Path.is_file, external_files(artifact))):
                archive.add(file, arcname=file.relative_to(artifact.parent))
    return block.getvalue()


def unpacked(content: bytes, stock: bool, name: str, root: Path | None = None) -> Path:
    """The same on this node, unpacked by whoever comes first."""
    digest = hashlib.sha256(content).hexdigest()[:32]
    base = (root or Path(tempfile.gettempdir())) / f"smelt-batch-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise BatchError("SM-BATCH-015", f"{base} belongs to another user")
    place = base / digest
    with FileLock(base / f"{digest}.lock"):
        if not place.is_dir():
            aside = Path(tempfile.mkdtemp(dir=base))
            try:
                with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                    archive.extractall(aside, filter="data")
                aside.rename(place)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return place / name if stock else place / "model"
