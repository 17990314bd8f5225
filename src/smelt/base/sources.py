"""A digest of the package's own sources: what was computed by other sources is not taken from a cache.

Input: names of folders. Output: a digest of their files. Invariant: a change of one byte of a source, and
a source that was added, removed or moved, change it; compiled files and the package's place do not. What a package
manager installed is told by its RECORD, which has the digests of all files; a process that starts often remembers the
digest of other sources by the sizes and times of the files, which is read ten times as fast.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from smelt.base.installed import PACKAGE, record_file

_PACKAGE: Final = Path(PACKAGE)
_SUFFIXES: Final = (".py", ".c", ".h")
# These print and time what the others made.
_SHOWING: Final = frozenset({"bench", "cli", "report"})
# Verification imports no others: how a model came to be is in the model, and its kernels in the library.
_EXAMINING: Final = frozenset({"base", "ir", "ops", "passes", "partition", "codegen", "toolchain", "runtime", "check"})


def compiling_sources(known: Path | None = None) -> str:
    """Of everything that decides what a compilation gives. `known`: a folder of this user that remembers it."""
    installed = record_of(_PACKAGE)
    if installed:
        return installed
    if known is None:
        return digest_of_sources(_PACKAGE, leave_out=_SHOWING)
    note = known / f"sources-{stamp_of_compiling_sources()}"
    with suppress(OSError):
        return note.read_text(encoding="ascii")
    found = digest_of_sources(_PACKAGE, leave_out=_SHOWING)
    with suppress(OSError):
        aside = note.with_name(f"{note.name}.{os.getpid()}")
        aside.write_text(found, encoding="ascii")
        aside.replace(note)
    return found


def record_of(package: Path) -> str:
    """A digest of the list that the package was installed by; empty where there is none."""
    record = record_file(str(package))
    return hashlib.sha256(Path(record).read_bytes()).hexdigest() if record else ""


def examining_sources() -> str:
    """Of everything that decides what verification finds in a given library."""
    return digest_of_sources(_PACKAGE, only=_EXAMINING)


@lru_cache(maxsize=8)
def digest_of_sources(
    package: Path, *, only: frozenset[str] = frozenset(), leave_out: frozenset[str] = frozenset()
) -> str:
    """Of what lies in the package, but for names at its top. Read once: a process runs the code of its start."""
    tops = [top for top in sorted(package.iterdir()) if top.name not in leave_out and (not only or top.name in only)]
    digest = hashlib.sha256()
    for path in (file for top in tops for file in _files(top)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def stamp_of_compiling_sources() -> str:
    return stamp_of_sources(_PACKAGE, leave_out=_SHOWING)


def stamp_of_sources(package: Path, *, leave_out: frozenset[str] = frozenset()) -> str:
    """Of the sources' names, sizes and times."""
    found = [stamp for entry in os.scandir(package) if entry.name not in leave_out for stamp in _stamps(entry)]
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:32]


def _stamps(entry: os.DirEntry[str]) -> Iterator[str]:
    if entry.name.endswith(_SUFFIXES):
        seen = entry.stat()
        yield f"{entry.path}\0{seen.st_size}\0{seen.st_mtime_ns}\0{seen.st_ino}"
    elif entry.is_dir() and entry.name != "__pycache__":
        for inner in os.scandir(entry.path):
            yield from _stamps(inner)


def _files(top: Path) -> Iterator[Path]:
    """The sources at or below `top`, in one order everywhere."""
    if top.is_file() and top.suffix in _SUFFIXES:
        yield top
    for folder, inner, files in os.walk(top):
        inner.sort()
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(_SUFFIXES))
