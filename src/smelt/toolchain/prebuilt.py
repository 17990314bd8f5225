"""Objects that come with the installation: kernels that no model changes, compiled before the first model is.

Input: a unit, a CPU level and the digest of the headers. Output: an object of the installation, or None. Invariant: an
object is used only for the text, headers and flags that it was compiled from, and while its bytes have the digest in
its name. Which compiler made it does not matter: an object is linked with those of any other.

    <folder>/<key>.<sha256>.o
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from smelt.base import CacheError, Target
from smelt.base.cache import FORMAT, file_digest
from smelt.ir.records import Unit
from smelt.toolchain.compiler import Compiler
from smelt.toolchain.flags import level_flags

if TYPE_CHECKING:
    from smelt.toolchain.jobs import Commands, Job

FOLDER: Final = Path(__file__).parent / "prebuilt"
_ANY_COMPILER: Final = Compiler("gcc", (), "", "")


@dataclass(frozen=True)
class Prebuilt:
    path: Path
    sha256: str


def prebuilt_facts(unit: Unit, target: Target, headers: str, more: tuple[str, ...]) -> list[object]:
    """All that decides what the object computes."""
    return [FORMAT, unit.name, unit.text, headers, level_flags(_ANY_COMPILER, target, more)]


def find_prebuilt(key: str, folder: Path | None = None) -> Prebuilt | None:
    """The installation's object of `key`, where it is whole."""
    path = _listed(folder or FOLDER).get(key)
    if path is None:
        return None
    digest = path.name.split(".")[1]
    with suppress(OSError):
        if file_digest(path) == digest:
            return Prebuilt(path, digest)
    return None


@lru_cache(maxsize=4)
def _listed(folder: Path) -> dict[str, Path]:
    try:
        return {path.name.split(".")[0]: path for path in folder.glob("*.*.o")}
    except OSError:
        return {}


def prebuild(
    jobs: Sequence[tuple[str, Job]], include_dirs: Sequence[Path], commands: Commands, workers: int, folder: Path
) -> int:
    """Compile jobs, each with its key in the folder, which then holds nothing else. How many were compiled."""
    _listed.cache_clear()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [(key, job) for key, job in jobs if find_prebuilt(key, folder) is None]
        with tempfile.TemporaryDirectory(dir=folder) as work, ThreadPoolExecutor(max(1, workers)) as pool:
            made = [pool.submit(_compile, job, include_dirs, commands, Path(work), key) for key, job in missing]
            for one in made:
                one.result()
            keep = {key for key, _ in jobs}
            for path in folder.glob("*.o"):
                if path.name.split(".")[0] not in keep:
                    path.unlink(missing_ok=True)
            for place in Path(work).glob("*.o"):
                place.rename(folder / f"{place.stem}.{file_digest(place)}.o")
    except OSError as error:
        raise CacheError("SM-CACHE-003", f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        _listed.cache_clear()
    return len(missing)


def _compile(job: Job, include_dirs: Sequence[Path], commands: Commands, work: Path, key: str) -> None:
    made = commands.compile_apart(job, include_dirs, work / job.stem)
    shutil.copyfile(made, work / f"{key}.o")
    (work / f"{key}.o").chmod(0o644)
