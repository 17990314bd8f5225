"""External tensor data, read safely.

Input: a model's folder and the external-data entries of a tensor. Output: tensors over one shared, read-only mapping
per file. Invariant: every file opened is a plain file whose real place is below the model's real folder, or among the
blobs of the Hugging Face cache that the model lies in; every tensor's bytes lie inside its file. Files stay open as
mappings, so later changes of the directory cannot redirect a tensor.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir

from smelt.base.errors import LoadError

_MAX_OFFSET = 1 << 62
_CHUNK_BYTES = 16 << 20


class MappedTensor(ir.ExternalTensor):
    """An external tensor whose bytes come from a mapping that was opened when the model was loaded."""

    def __init__(self, source: ir.ExternalTensor, mapping: mmap.mmap | None, base_dir: Path) -> None:
        super().__init__(
            source.location,
            source.offset or 0,
            source.nbytes,
            source.dtype,
            shape=source.shape,
            name=source.name,
            doc_string=source.doc_string,
            metadata_props=dict(source.metadata_props),
            base_dir=str(base_dir),
        )
        self.mapping = mapping

    def view(self) -> memoryview:
        """The tensor's bytes, without a copy."""
        if self.mapping is None or self.nbytes == 0:
            return memoryview(b"")
        start = self.offset or 0
        return memoryview(self.mapping)[start : start + self.nbytes]

    def _load(self) -> None:
        data = np.frombuffer(self.view(), dtype=np.uint8)
        self._array = _typed(data, self.dtype, tuple(self.shape.numpy()))

    def tobytes(self) -> bytes:
        return bytes(self.view())

    def tofile(self, file: Any) -> None:
        view = self.view()
        for start in range(0, len(view), _CHUNK_BYTES):
            file.write(view[start : start + _CHUNK_BYTES])


def _typed(
    data: np.ndarray[Any, np.dtype[np.uint8]], dtype: ir.DataType, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    if dtype.bitwidth >= 8:
        return data.view(np.dtype(dtype.numpy()).newbyteorder("<")).reshape(shape)
    return ir.PackedTensor(data, dtype, shape=ir.Shape(shape)).numpy()


class ExternalFolder:
    """The files below one model's folder; each is opened and mapped once."""

    def __init__(self, base_dir: Path) -> None:
        self.base_dir = base_dir
        self._mappings: dict[str, tuple[mmap.mmap | None, int]] = {}

    def check(self, proto: onnx.TensorProto, expected_bytes: int) -> None:
        """Refuse a tensor whose location, offset or length is not sound."""
        fields = external_fields(proto)
        location = fields.get("location", "")
        check_location(location, proto.name)
        offset = _number(fields, "offset", proto.name)
        length = _number(fields, "length", proto.name) if "length" in fields else expected_bytes
        if length != expected_bytes:
            message = f"tensor {_shown(proto.name)} declares {length} bytes of data, its shape needs {expected_bytes}"
            raise LoadError("SM-LOAD-004", message, node=None)
        _, size = self.mapping(location, proto.name)
        if offset + expected_bytes > size:
            message = f"tensor {_shown(proto.name)} ends at byte {offset + expected_bytes} of a file of {size} bytes"
            raise LoadError("SM-LOAD-004", message)

    def tensor(self, source: ir.ExternalTensor) -> MappedTensor:
        """The checked tensor over this folder's mapping."""
        mapping, _ = self.mapping(location_of(source), source.name)
        return MappedTensor(source, mapping, self.base_dir)

    def mapping(self, location: str, tensor: str) -> tuple[mmap.mmap | None, int]:
        key = os.path.normpath(location)
        if key not in self._mappings:
            self._mappings[key] = _map(self.base_dir, location, tensor)
        return self._mappings[key]


def location_of(tensor: ir.ExternalTensor) -> str:
    """The tensor's location as text."""
    return os.fspath(cast("str | os.PathLike[str]", tensor.location))


def external_fields(proto: onnx.TensorProto) -> Mapping[str, str]:
    """The tensor's external-data entries; a key given twice is an error."""
    fields: dict[str, str] = {}
    for entry in proto.external_data:
        if entry.key in fields:
            raise LoadError("SM-LOAD-003", f"tensor {_shown(proto.name)} gives external {entry.key[:40]!r} twice")
        fields[entry.key] = entry.value
    return fields


def check_location(location: str, tensor: str) -> None:
    """Only a plain relative path may name a data file."""
    parts = location.split("/")
    reason = ""
    if not location or "\0" in location:
        reason = "is empty or holds a NUL"
    elif location.startswith("/") or (len(location) > 1 and location[1] == ":"):
        reason = "is absolute"
    elif "\\" in location:
        reason = "holds a backslash"
    elif ".." in parts:
        reason = "leaves the model's folder"
    elif any(len(os.fsencode(part)) > 255 for part in parts) or len(location) > 4000:
        reason = "is too long"
    if reason:
        raise LoadError(
            "SM-LOAD-003", f"external data of tensor {_shown(tensor)}: location {_shown(location)} {reason}"
        )


def _number(fields: Mapping[str, str], key: str, tensor: str) -> int:
    text = fields.get(key, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _MAX_OFFSET:
        raise LoadError(
            "SM-LOAD-004", f"external {key} of tensor {_shown(tensor)} is not a sound number: {_shown(text)}"
        )
    return int(text)


def _map(base_dir: Path, location: str, tensor: str) -> tuple[mmap.mmap | None, int]:
    descriptor = _open_below(base_dir, location, tensor)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(location, tensor, "is not a plain file")
        if status.st_nlink != 1:
            raise _refused(location, tensor, "has several hard links")
        if status.st_size == 0:
            return None, 0
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), status.st_size
    finally:
        os.close(descriptor)


def _open_below(base_dir: Path, location: str, tensor: str) -> int:
    """Open the file where it really lies, if that is a place for a model's data."""
    if not [part for part in location.split("/") if part not in ("", ".")]:
        raise _refused(location, tensor, "names no file")
    try:
        home = base_dir.resolve(strict=True)
        real = (home / location).resolve(strict=True)
    except FileNotFoundError:
        raise LoadError("SM-LOAD-004", f"tensor {_shown(tensor)}: data file {_shown(location)} is missing") from None
    except (OSError, RuntimeError) as error:
        raise _refused(location, tensor, f"cannot be opened ({error})") from None
    for root in (home, *_blobs(home)):
        if real.is_relative_to(root) and real != root:
            return _open_real(root, real.relative_to(root), location, tensor)
    raise _refused(location, tensor, "is a link that leaves the model's folder")


def _blobs(home: Path) -> list[Path]:
    """Where the Hugging Face cache keeps the files that `models--x/snapshots/<revision>/...` links to."""
    for snapshots in home.parents:
        repository = snapshots.parent
        if snapshots.name == "snapshots" and "--" in repository.name:
            blobs = repository / "blobs"
            return [blobs] if blobs.is_dir() and not blobs.is_symlink() else []
    return []


def _open_real(root: Path, path: Path, location: str, tensor: str) -> int:
    """Open one folder at a time and follow no link: what was resolved may have been replaced since."""
    parts = path.parts
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(parts[-1], flags, dir_fd=folder)
    except FileNotFoundError:
        raise LoadError("SM-LOAD-004", f"tensor {_shown(tensor)}: data file {_shown(location)} is missing") from None
    except OSError as error:
        raise _refused(location, tensor, f"is a link or cannot be opened ({error.strerror})") from None
    finally:
        os.close(folder)


def _refused(location: str, tensor: str, reason: str) -> LoadError:
    return LoadError("SM-LOAD-003", f"external data of tensor {_shown(tensor)}: {_shown(location)} {reason}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
