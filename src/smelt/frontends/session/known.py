"""Sessions whose model was compiled and checked before: what to open, by one small file per model.

Input: a model's path. Output: an `Opening`, or None where everything is to be looked up and checked anew
(`opening.py`). Invariant: a note counts only in this user's cache, where others cannot write, and while the model, its
external data, the installed package, ONNX Runtime, the artifact's library and manifest are what they were when the
library's digest was last checked, since this start of the machine. It imports nothing that a program with onnxruntime
lacks, and reads no file but the note.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from smelt.base.environment import cache_folder
from smelt.base.installed import PACKAGE, record_file
from smelt.base.stamps import boot, fault_of_folder, is_old_enough, stamp

_HEAD: Final = "smelt session 1"
_OTHERS_WRITE: Final = 0o022
_PRIME: Final = (1 << 127) - 1


class Opening(NamedTuple):
    """What a session is constructed over: the artifact's model, its library if any, and initializers that it froze."""

    model: str
    library: str
    frozen: tuple[str, ...] = ()


def recall(model: str, ort_version: str) -> Opening | None:
    """What the last session of this model opened, if nothing has changed since."""
    root, path = cache_folder(), os.path.join(os.getcwd(), model)
    note = _note_of(root, path)
    with suppress(OSError, ValueError):
        with open(note, "rb") as stream:
            found = os.fsdecode(stream.read()).split("\0")
        facts = _facts(path, ort_version)
        key, library, count, *rest = found[len(facts) :]
        frozen, stamps = rest[: int(count)], rest[int(count) :]
        artifact = f"{root}/session/{key}/artifact"
        if found[: len(facts)] != facts or not key.isalnum() or "/" in library:
            return None
        if not _are_private(root, note, key) or fault_of_folder(artifact) is not None:
            return None
        if all(stamp(file) == seen for file, seen in zip(stamps[::2], stamps[1::2], strict=True)):
            os.utime(artifact)  # this counts as a use of it
            return Opening(f"{artifact}/model.onnx", f"{artifact}/{library}" if library else "", tuple(frozen))
    return None


def remember(model: str, ort_version: str, key: str, opening: Opening, files: Iterable[str]) -> None:
    """Write the note of a model whose artifact was just checked. `files`: the model and its external data."""
    root, path = cache_folder(), os.path.join(os.getcwd(), model)
    used = [*files, os.path.join(os.path.dirname(opening.model), "manifest.json"), opening.library]
    stamps = {file: stamp(file) for file in used if file}
    facts = _facts(path, ort_version)
    if not root or not all(facts) or not all(map(is_old_enough, stamps.values())):
        return
    fields = [*facts, key, os.path.basename(opening.library), str(len(opening.frozen)), *opening.frozen]
    fields += [field for pair in stamps.items() for field in pair]
    note = _note_of(root, path)
    aside = f"{note}.{os.getpid()}"
    with suppress(OSError, UnicodeError):
        content = os.fsencode("\0".join(fields))
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(aside, note)


def package_stamp() -> str:
    """Changes with the sources that decide what a compilation gives."""
    record = record_file(PACKAGE)
    if record:
        return stamp(record)
    from smelt.base.sources import stamp_of_compiling_sources

    return stamp_of_compiling_sources()


def _facts(path: str, ort_version: str) -> list[str]:
    return [_HEAD, boot(), ort_version, package_stamp(), path]


def _note_of(root: str, path: str) -> str:
    return f"{root}/session/known/start-{int.from_bytes(os.fsencode(path), 'big') % _PRIME:x}"


def _are_private(root: str, note: str, key: str) -> bool:
    """Whether nobody else could have written the note or the artifact."""
    entry = f"{root}/session/{key}"
    for place in (root, f"{root}/session", os.path.dirname(note), note, entry, f"{entry}/artifact"):
        seen = os.stat(place)
        if seen.st_uid != os.geteuid() or seen.st_mode & _OTHERS_WRITE:
            return False
    return True
