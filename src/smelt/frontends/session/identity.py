"""What a model is, whatever its name: the digest of its bytes and of its external data.

Input: a path or bytes. Output: a digest. Invariant: files whose size, time and inode are as they were when they were
last hashed are not read again; a model that changed on disk has another digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx


def digest_of(model: Path | bytes, memo: Path) -> str:
    """The digest of a model; `memo` is a folder that remembers those of files."""
    if isinstance(model, bytes):
        return hashlib.sha256(model).hexdigest()
    path = model.absolute()  # links stay: external data lie beside the name that is given
    note = _note_of(path, memo)
    known = _recall(note)
    if known is not None:
        return str(known["digest"])
    named = sorted(external_files(path))
    files = [path, *(file for file in named if file.is_file())]
    before = [_stamp(file) for file in files]
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    if len(files) <= len(named):  # the loader's to complain about, and not to be remembered: it may come
        digest.update(b"without some of its data")
    elif before == [_stamp(file) for file in files]:
        _remember(note, files, before, digest.hexdigest())
    return digest.hexdigest()


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev]


def hashed_files(model: Path, memo: Path) -> list[str]:
    """The model and its external data, if they are as they were when they were hashed; else nothing."""
    known = _recall(_note_of(model.absolute(), memo))
    return [] if known is None else [str(name) for name, _ in known["files"]]


def _note_of(path: Path, memo: Path) -> Path:
    return memo / hashlib.sha256(os.fsencode(path)).hexdigest()


def _recall(note: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        content: dict[str, Any] = json.loads(note.read_bytes())
        if all(_stamp(Path(name)) == stamp for name, stamp in content["files"]) and content["digest"]:
            return content
    return None


def _remember(note: Path, files: list[Path], stamps: list[list[int]], digest: str) -> None:
    content = {"files": [[str(file), stamp] for file, stamp in zip(files, stamps, strict=True)], "digest": digest}
    aside = note.with_name(f"{note.name}.{os.getpid()}")
    with suppress(OSError, UnicodeEncodeError):
        aside.write_text(json.dumps(content), encoding="utf-8")
        aside.replace(note)


def external_files(path: Path) -> set[Path]:
    """Files that hold tensors of the model, whether they are there or not."""
    import onnx  # a model that is known is not read

    proto = onnx.load_model(str(path), load_external_data=False)
    names = {
        entry.value for tensor in tensors_of(proto.graph) for entry in tensor.external_data if entry.key == "location"
    }
    return {path.parent / name for name in names}


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a graph and of those nested in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for nested in (attribute.g, *attribute.graphs):
                yield from tensors_of(nested)
