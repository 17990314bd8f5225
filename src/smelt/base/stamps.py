"""What files are, by what the system says of them: whether one changed, and whether others can change it.

Input: paths. Output: stamps, which are equal while nobody wrote the file, and faults. Invariant: no file is read;
importing this takes nothing that Python has not loaded at its start. A stamp has the time of the last change of the
inode, which no program can set; a file that changed within the last second has none, since times are that coarse.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Final

_COARSE_S: Final = 1.0
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def stamp(path: str) -> str:
    """Of a plain file; empty where there is none."""
    try:
        seen = os.stat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(seen.st_mode):
        return ""
    facts = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev, seen.st_uid, seen.st_mode)
    return " ".join(map(str, facts))


def is_old_enough(found: str) -> bool:
    """Whether a later change would show in the stamp."""
    return bool(found) and abs(time.time() - int(found.split()[2]) / 1e9) > _COARSE_S


def boot() -> str:
    """Names this start of the machine; empty where the system does not say."""
    try:
        with open(_BOOT, encoding="ascii") as stream:
            return stream.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def fault_of(path: str, seen: os.stat_result) -> tuple[str, str] | None:
    """Why others could have written it, and what mends that."""
    if seen.st_uid not in {0, os.geteuid()}:
        return f"{path} belongs to another user (uid {seen.st_uid})", "Copy the folder first."
    if seen.st_mode & _OTHERS_WRITE:
        return f"others can write {path}", f"chmod go-w {path}"
    return None


def fault_of_folder(path: str) -> tuple[str, str] | None:
    """The folder belongs to us alone; a folder above it lets nobody swap it for another."""
    path = os.path.realpath(path)
    fault = fault_of(path, os.stat(path))
    while fault is None and (above := os.path.dirname(path)) != path:
        path, mode = above, os.stat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            fault = f"anyone can replace what lies in {path}", f"chmod o-w {path}"
    return fault
