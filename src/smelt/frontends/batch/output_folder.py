"""The output folder: what is finished, and what it was made of.

Input: a job, finished parts. Output: files that appear whole or not at all. Invariant: a part counts as finished when
its record is there, and its record is written after its file is in place; two runs never write to one folder at once.

    out/part-000000.parquet ...     the data; nothing else at this level, so that any reader takes the folder
    out/_smelt/manifest.json        the job: digests of model, mapping and inputs; every part
    out/_smelt/parts/000/000000.json  one record for each finished part
    out/_smelt/errors.jsonl         rows without a result, made from the records
    out/_smelt/report.json, report.html
    out/_smelt/model/               the artifact, where an ONNX file was given
    out/_smelt/aside/               files being written
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from filelock import FileLock, Timeout

from smelt.base.errors import BatchError, InputError
from smelt.frontends.batch.records import Job, Part, PartRecord, digest_of_json, job_from_json, record_from_json

OWN: Final = "_smelt"
FORMAT: Final = 1
ENDINGS: Final = {"parquet": ".parquet", "arrow": ".arrow"}


class OutputFolder:
    """One output folder. Nothing is made before `prepare`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.own = self.root / OWN
        self.aside = self.own / "aside"
        self.model = self.own / "model"
        self.manifest = self.own / "manifest.json"
        self.errors = self.own / "errors.jsonl"

    # The folder as a whole

    def check(self) -> None:
        """Refuse a place that holds anything but an earlier run."""
        if self.root.is_dir() and not self.manifest.exists():
            others = [path.name for path in self.root.iterdir() if path.name != OWN]
            if others:
                raise InputError("SM-BATCH-006", f"{self.root} holds other files, e.g. {sorted(others)[0]!r}")
        elif self.root.exists() and not self.root.is_dir():
            raise InputError("SM-BATCH-006", f"{self.root} is no folder")

    @contextmanager
    def locked(self) -> Generator[None]:
        """Alone with the folder, which is made where it is not there."""
        try:
            self.aside.mkdir(parents=True, exist_ok=True)
            probe = self.aside / f"probe.{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise cannot_write(self.root, error) from error
        lock = FileLock(self.own / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise InputError("SM-BATCH-013", f"another run writes to {self.root}") from error
        try:
            yield
        finally:
            lock.release()

    def clean(self) -> None:
        """Remove what an interrupted run left."""
        for path in self.aside.iterdir():
            with suppress(OSError):
                path.unlink()

    def restart(self) -> None:
        """Remove the parts and records of an earlier run, and nothing that is not its own."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            job = job_from_json(json.loads(self.manifest.read_bytes())["job"])
            for part in job.parts:
                (self.root / f"{part.stem}{ENDINGS[job.part_format]}").unlink(missing_ok=True)
        shutil.rmtree(self.own / "parts", ignore_errors=True)
        shutil.rmtree(self.model, ignore_errors=True)
        shutil.rmtree(self.own / "stock", ignore_errors=True)
        for name in ("manifest.json", "errors.jsonl", "report.json", "report.html"):
            (self.own / name).unlink(missing_ok=True)

    # The job

    def earlier(self) -> Job | None:
        """The job of an earlier run."""
        try:
            content = json.loads(self.manifest.read_bytes())
            return job_from_json(content["job"]) if content["format"] == FORMAT else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError("SM-BATCH-007", f"{self.manifest} cannot be read: {error}") from error

    def write_job(self, job: Job) -> None:
        digests = {
            "model": job.model.digest,
            "mapping": digest_of_json(job.mapping()),
            "inputs": digest_of_json([[file.path, file.digest] for file in job.files]),
        }
        self.put(self.manifest, json_bytes({"format": FORMAT, "digests": digests, "job": asdict(job)}))

    # Parts

    def part_path(self, part: Part, part_format: str) -> Path:
        return self.root / f"{part.stem}{ENDINGS[part_format]}"

    def record_path(self, index: int) -> Path:
        return self.own / "parts" / f"{index // 1000:03d}" / f"{index:06d}.json"

    def commit(self, aside: Path, place: Path, record: PartRecord) -> None:
        """The part, then its record: whoever sees the record finds the part."""
        sync(aside)
        aside.replace(place)
        self.put(self.record_path(record.part), json_bytes(asdict(record)))

    def finished(self, job: Job) -> dict[int, PartRecord]:
        """Records of parts whose files are there with the size that was recorded."""
        found: dict[int, PartRecord] = {}
        for part in job.parts:
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = record_from_json(json.loads(self.record_path(part.index).read_bytes()))
                if (self.root / record.file).stat().st_size == record.size_bytes:
                    found[part.index] = record
        return found

    def write_errors(self, records: Iterator[PartRecord]) -> int:
        """All failed rows in the order of the input; how many there are."""
        count = 0
        aside = self.aside / f"errors.{os.getpid()}"
        with aside.open("w", encoding="utf-8") as file:
            for record in records:
                for error in record.errors:
                    file.write(json.dumps(asdict(error)) + "\n")
                    count += 1
        aside.replace(self.errors)
        return count

    def put(self, place: Path, content: bytes) -> None:
        """A small file, whole."""
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = self.aside / f"{place.name}.{os.getpid()}.{os.urandom(4).hex()}"
        aside.write_bytes(content)
        sync(aside)
        aside.replace(place)


class HashingFile:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def sync(path: Path) -> None:
    """On disk, so that a record never outlives its part in a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(place: Path, error: OSError) -> BatchError | InputError:
    """No permission is the user's to mend before; a disk that fills up is a failure of the run."""
    text = f"{place} cannot be written: {error.strerror or error}"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}:
        return InputError("SM-BATCH-008", text)
    return BatchError("SM-BATCH-008", text)
