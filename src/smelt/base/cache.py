"""The content-addressed cache of libraries and objects.

Input: keys, and files built in a work folder of the cache. Output: entries whose digest was checked. Invariant: an
entry appears whole or not at all (rename), is never changed afterwards, holds no absolute path, and is used only
while it belongs to this user and nobody else can write it.

    <root>/lib/<key>/{meta.json, smelt_<digest>.so}   one library each
    <root>/obj/<k>/<key>.<digest>.o                   objects, shared between libraries
    <root>/lock/<key>                                 one lock file per key
    <root>/tmp/<random>/                              builds under way, each held by its process (flock)
    <root>/session/<key>/                             artifacts of sessions (frontends/session/store.py)
    <root>/zig/                                       zig's own caches
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smelt.base.errors import CacheError

FORMAT: Final = 1
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_FILE: Final = re.compile(r"smelt_[0-9a-f]{16}(\.so)?")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_NEW_WORK_S: Final = 1.0  # between making a work folder and holding it
_FOREIGN_WORK_S: Final = 3600.0  # jobs of the execution provider, which holds none
_READ_ONLY: Final = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
_SPARE: Final[dict[Path, Path]] = {}  # by the folder that cannot be written
_TAG: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Compiled libraries of smelt; may be deleted at any time.\n"
)


@dataclass(frozen=True)
class CacheEntry:
    """A library in the cache. `used` is the time of the last hit, in seconds since the epoch."""

    key: str
    path: Path
    sha256: str
    bytes: int
    used: float
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class CacheUsage:
    """What the cache holds, in bytes."""

    entries: int
    library_bytes: int
    object_bytes: int
    other_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.library_bytes + self.object_bytes + self.other_bytes


class Cache:
    """One cache folder. Opening it creates it, or checks that it is safe to use."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._open()

    def _open(self) -> None:
        try:
            if not self.root.exists():
                self.root.parent.mkdir(parents=True, exist_ok=True)
                self.root.mkdir(mode=0o700, exist_ok=True)
            _check_folder(self.root)
            for name in ("lib", "obj", "lock", "tmp", "zig"):
                (self.root / name).mkdir(mode=0o700, exist_ok=True)
                _check_folder(self.root / name)
            tag = self.root / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(_TAG, encoding="ascii")
        except OSError as error:
            raise unusable(self.root, error) from error

    # Libraries

    def find(self, key: str) -> CacheEntry | None:
        """The entry of `key` where it is whole, ours and unaltered. A hit counts as a use."""
        entry = self._read(key)
        if entry is None or file_digest(entry.path) != entry.sha256:
            return None
        with suppress(OSError):
            os.utime(entry.path.parent / "meta.json")
        return entry

    def put(self, key: str, built: Path, meta: Mapping[str, Any], suffix: str = ".so") -> CacheEntry:
        """Take a file that was built in a work folder. Where another process was first, its entry is given."""
        digest = file_digest(built)
        name = f"smelt_{digest[:16]}{suffix}"
        facts = {**meta, "format": FORMAT, "key": key, "file": name, "sha256": digest, "bytes": built.stat().st_size}
        try:
            with self.work() as folder:
                staged = folder / "entry"
                staged.mkdir(mode=0o700)
                built.rename(staged / name)
                (staged / name).chmod(0o700)
                _write(staged / "meta.json", json.dumps(facts, indent=1, sort_keys=True).encode())
                return self._publish(key, staged)
        except OSError as error:
            raise unusable(self.root, error) from error

    def _publish(self, key: str, staged: Path) -> CacheEntry:
        place = self.root / "lib" / key
        for _ in range(3):
            with suppress(OSError):
                staged.rename(place)
            entry = self.find(key)
            if entry is not None:
                return entry
            self._discard(place)
        raise CacheError("SM-CACHE-003", f"the entry {place} is not usable and cannot be replaced")

    def _read(self, key: str) -> CacheEntry | None:
        folder = self.root / "lib" / key
        try:
            text = (folder / "meta.json").read_text(encoding="utf-8")
            used = (folder / "meta.json").stat().st_mtime
            meta = json.loads(text)
            path = folder / str(meta["file"])
            fits = meta["format"] == FORMAT and meta["key"] == key and _FILE.fullmatch(str(meta["file"]))
            if not fits or not _is_ours(folder, stat.S_ISDIR) or not _is_ours(path, stat.S_ISREG):
                return None
            return CacheEntry(key, path, str(meta["sha256"]), path.stat().st_size, used, meta)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _discard(self, place: Path) -> None:
        """Take an entry out of sight at once, then delete it: no reader sees half of one."""
        with suppress(OSError), self.work() as folder:
            place.rename(folder / "discarded")

    # Objects

    def find_object(self, key: str) -> Path | None:
        """The object of `key`, its digest checked against its name."""
        folder = self.root / "obj" / key[:2]
        for path in folder.glob(f"{key}.*.o"):
            with suppress(OSError):
                if _is_ours(path, stat.S_ISREG) and file_digest(path) == path.name.split(".")[1]:
                    os.utime(path)
                    return path
                path.unlink()
        return None

    def put_object(self, key: str, built: Path) -> Path:
        folder = self.root / "obj" / key[:2]
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            built.chmod(0o600)
            place = folder / f"{key}.{file_digest(built)}.o"
            built.rename(place)
        except OSError as error:
            raise unusable(self.root, error) from error
        return place

    # Building

    @contextmanager
    def work(self) -> Generator[Path]:
        """A folder to build in, on the file system of the cache; deleted at the end."""
        folder, held = self.claim()
        try:
            yield folder
        finally:
            _remove_tree(folder)
            os.close(held)

    def claim(self) -> tuple[Path, int]:
        """A work folder, and an open file that keeps it from being swept: until the last process that has it ends."""
        try:
            folder = _new_folder(self.root / "tmp")
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # some network file systems cannot; there nothing is swept
                fcntl.flock(held, fcntl.LOCK_SH)
        except OSError as error:
            raise unusable(self.root, error) from error
        return folder, held

    @contextmanager
    def lock(self, key: str, timeout_s: float) -> Generator[None]:
        """Held by one process at a time; released by the system when that process ends."""
        import filelock  # a hit needs none

        lock = filelock.FileLock(self.root / "lock" / key, timeout=timeout_s, mode=0o600)
        try:
            lock.acquire()
        except filelock.Timeout as error:
            message = f"another process holds the lock of {key[:12]} for more than {timeout_s:.0f} s"
            raise CacheError("SM-CACHE-004", message) from error
        except OSError as error:
            raise unusable(self.root, error) from error
        try:
            yield
        finally:
            lock.release()

    def zig_environment(self) -> dict[str, str]:
        return {
            "ZIG_GLOBAL_CACHE_DIR": str(self.root / "zig" / "global"),
            "ZIG_LOCAL_CACHE_DIR": str(self.root / "zig" / "local"),
        }

    # Care

    def entries(self) -> tuple[CacheEntry, ...]:
        """All entries that can be read, the last used first; digests are not checked."""
        keys = [path.name for path in (self.root / "lib").iterdir() if _KEY.fullmatch(path.name)]
        found = [entry for key in keys if (entry := self._read(key)) is not None]
        return tuple(sorted(found, key=lambda entry: (-entry.used, entry.key)))

    def entry(self, prefix: str) -> CacheEntry:
        """The one entry whose key starts with `prefix`."""
        found = [entry for entry in self.entries() if entry.key.startswith(prefix.lower())]
        if len(found) != 1:
            raise CacheError("SM-CACHE-005", f"{len(found)} entries have a key that starts with {prefix!r}")
        return found[0]

    def usage(self) -> CacheUsage:
        library_bytes = _tree_bytes(self.root / "lib")
        object_bytes = _tree_bytes(self.root / "obj")
        other_bytes = _tree_bytes(self.root) - library_bytes - object_bytes
        return CacheUsage(len(self.entries()), library_bytes, object_bytes, other_bytes)

    def clear(self, older_than_s: float | None = None, max_bytes: int | None = None) -> int:
        """Delete what was not used for `older_than_s`, then the longest unused until libraries and objects fit
        into `max_bytes`; without either, everything. Gives the bytes set free. What is being built is kept."""
        before = _tree_bytes(self.root)
        everything = older_than_s is None and max_bytes is None
        if everything:
            _remove_tree(self.root / "zig")
            (self.root / "zig").mkdir(mode=0o700, exist_ok=True)
            _remove_tree(self.root / "session" / "known")
        self._sweep_unreadable()
        held = sorted(self._held(), key=lambda item: item.used)
        total = sum(item.bytes for item in held)
        oldest_kept = time.time() - older_than_s if older_than_s is not None else 0.0
        for item in held:
            too_much = max_bytes is not None and total > max_bytes
            if (everything or item.used < oldest_kept or too_much) and self._remove(item.path):
                total -= item.bytes
        self.sweep()
        return max(0, before - _tree_bytes(self.root))

    def _held(self) -> list[_Held]:
        libraries = [_Held(entry.path.parent, entry.bytes, entry.used) for entry in self.entries()]
        for path in (self.root / "session").glob("*"):
            with suppress(OSError):
                if _KEY.fullmatch(path.name):
                    used = max(path.stat().st_mtime, *(inner.stat().st_mtime for inner in path.iterdir()), 0.0)
                    libraries.append(_Held(path, _tree_bytes(path), used))
        objects: list[_Held] = []
        for path in (self.root / "obj").glob("*/*.o"):
            with suppress(OSError):
                facts = path.stat()
                objects.append(_Held(path, facts.st_size, facts.st_mtime))
        return libraries + objects

    def _remove(self, path: Path) -> bool:
        if path.suffix == ".o":
            path.unlink(missing_ok=True)
            return True
        import filelock

        lock = filelock.FileLock(self.root / "lock" / path.name, timeout=0, mode=0o600)
        try:
            with lock:
                self._discard(path)
                # Who waits on the deleted lock file builds beside a new holder: double work, but both rename whole.
                (self.root / "lock" / path.name).unlink(missing_ok=True)
        except filelock.Timeout:
            return False
        return not path.exists()

    def _sweep_unreadable(self) -> None:
        for path in (self.root / "lib").iterdir():
            if self._read(path.name) is None:
                self._remove(path)

    def sweep(self) -> None:
        """Delete what killed processes left in tmp/: folders that nobody holds."""
        for path in (self.root / "tmp").iterdir():
            with suppress(OSError):
                new_s = _FOREIGN_WORK_S if path.name.startswith("ep-") else _NEW_WORK_S
                if path.stat().st_mtime < time.time() - new_s and _is_abandoned(path):
                    _remove_tree(path)


def _new_folder(parent: Path | None, prefix: str = "tmp") -> Path:
    import tempfile  # which takes as long to import as the rest of a start from the cache

    return Path(tempfile.mkdtemp(dir=parent, prefix=prefix))


def _remove_tree(folder: Path) -> None:
    import shutil  # as above: it brings three ways to compress

    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Whether no living process holds a work folder."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return True


@dataclass(frozen=True)
class _Held:
    path: Path
    bytes: int
    used: float


def usable_root(root: Path) -> Path:
    """The folder itself, or a private one of this process where the system does not let it be written."""
    if root in _SPARE:
        return _SPARE[root]
    try:
        with Cache(root).work():
            return root
    except CacheError as error:
        reason = error.__cause__
        if not (isinstance(reason, OSError) and reason.errno in _READ_ONLY):
            raise
    _SPARE[root] = _new_folder(None, "smelt-cache-")
    atexit.register(_remove_tree, _SPARE[root])
    return _SPARE[root]


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_folder(folder: Path) -> None:
    facts = folder.stat()
    if not stat.S_ISDIR(facts.st_mode):
        raise CacheError("SM-CACHE-003", f"{folder} is not a folder")
    if facts.st_uid != os.geteuid():
        raise CacheError("SM-CACHE-001", f"{folder} belongs to user {facts.st_uid}, not to you ({os.geteuid()})")
    if facts.st_mode & _OTHERS_WRITE:
        message = f"{folder} can be written by other users"
        raise CacheError("SM-CACHE-002", message, hint=f"chmod go-w '{folder}'")


def _is_ours(path: Path, is_kind: Any) -> bool:
    facts = path.lstat()
    return bool(is_kind(facts.st_mode)) and facts.st_uid == os.geteuid() and not facts.st_mode & _OTHERS_WRITE


def _tree_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(parent) / name).lstat().st_size
    return total


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(0o600)


def unusable(root: Path, error: OSError) -> CacheError:
    """The error for a failed file operation below `root`."""
    return CacheError("SM-CACHE-003", f"the cache folder {root} cannot be used: {error.strerror or error}")
