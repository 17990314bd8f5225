"""An artifact folder -> one file: a shared library that ends with the compiled model and its weights.

Input: an artifact with a library. Output: a file that the plugin execution provider loads, and its SHA-256 beside it.
Invariant: the library's own bytes come first, so the file is a library; weights keep their alignment, and the model
refers to them in this file, by its name, which carries a digest of code and weights.

    library | zeros | model.data | model.onnx | footer

The footer is 32 bytes, little endian: "SMELTEP1", the model's offset, its size, flags.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from pathlib import Path
from typing import IO, Final

import onnx

from smelt.base.errors import ArtifactError
from smelt.frontends.session.identity import tensors_of
from smelt.ir.kernel.index import Fn
from smelt.ir.load import load_model
from smelt.ops import analyze
from smelt.runtime import open_artifact

MAGIC: Final = b"SMELTEP1"
SHAPES_FOLLOW: Final = 1  # a flag: the shapes of outputs depend on nothing but those of inputs
DIGEST: Final = "sha256"
_ALIGN: Final = 4096


def write_bundle(artifact: Path, folder: Path, *, shapes_follow: bool = False) -> Path:
    """Write the bundle of an artifact, and its digest as `sha256sum` does, into a folder of its own."""
    opened = open_artifact(artifact)
    if opened.library is None:
        raise ArtifactError("SM-ARTIFACT-001", f"{artifact} has no library: nothing in it runs faster than stock")
    data = artifact / "model.data"
    content = _digest(opened.library) + (_digest(data) if data.is_file() else "")
    file = folder / f"smelt_{hashlib.sha256(content.encode()).hexdigest()[:32]}.so"
    with file.open("wb") as stream:
        _append(stream, opened.library)
        stream.write(bytes(-stream.tell() % _ALIGN))
        start = stream.tell()
        _append(stream, data)
        model = _referring(opened.model, file.name, start)
        footer = struct.pack("<8sQQQ", MAGIC, stream.tell(), len(model), SHAPES_FOLLOW if shapes_follow else 0)
        stream.write(model + footer)
    file.chmod(0o600)
    (folder / DIGEST).write_text(f"{_digest(file)}  {file.name}\n", encoding="ascii")
    return file


def shapes_follow(model: Path) -> bool:
    """Whether every output's shape is a function of the inputs' shapes, for all runs that stock takes."""
    graph = load_model(model)
    facts = analyze(graph)
    facts = facts.general or facts
    known = [facts.by_value.get(value) for value in graph.graph.inputs]
    symbols = {atom for fact in known if fact is not None for size in fact.shape for atom in size.atoms}
    made = [facts.by_value.get(value) for value in graph.graph.outputs]
    return all(
        fact is not None
        and all(atom in symbols for size in fact.shape for atom in size.atoms if not isinstance(atom, Fn))
        for fact in made
    )


def _append(stream: IO[bytes], file: Path) -> None:
    if file.is_file():
        with file.open("rb") as source:
            shutil.copyfileobj(source, stream, 1 << 20)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _referring(model: Path, name: str, start: int) -> bytes:
    """The model with its external tensors in the file `name`, from `start` on."""
    proto = onnx.load_model(str(model), load_external_data=False)
    for tensor in tensors_of(proto.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        entries["location"], entries["offset"] = name, str(int(entries.get("offset", "0")) + start)
        del tensor.external_data[:]
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    return proto.SerializeToString()
