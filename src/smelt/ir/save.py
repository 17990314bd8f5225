"""Saving: Model -> model.onnx and one file of packed initializers.

Input: a model and a path. Output: the two files, each put in place atomically. Invariant: large tensors are streamed
one at a time and never held twice; each starts on a page of its own, so a runtime can map it; the opset stays and the
IR version is the lowest that the model's contents allow; a failure to write leaves the folder as it was.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from smelt.base.errors import ModelError
from smelt.ir._digesting_file import DigestingFile
from smelt.ir.proto import to_proto
from smelt.ir.spilled import drop_pages
from smelt.ir.walk import model_graphs

PAGE_BYTES = 4096
MIN_EXTERNAL_BYTES = 1024
MAX_PROTO_BYTES = (1 << 31) - 1
_CHUNK_BYTES = 16 << 20
# The system keeps a file in pieces as large as the writes that made it, and maps a whole one for the first byte of it
# that is touched: welcome for weights, but a few rows of an embedding would make all of it resident.
_ROW_CHUNK_BYTES = 64 << 10
_IR_OF_TYPE = {
    "FLOAT8E4M3FN": 9,
    "FLOAT8E4M3FNUZ": 9,
    "FLOAT8E5M2": 9,
    "FLOAT8E5M2FNUZ": 9,
    "INT4": 10,
    "UINT4": 10,
    "FLOAT4E2M1": 11,
    "FLOAT8E8M0": 12,
    "INT2": 13,
    "UINT2": 13,
    "FLOAT6E2M3": 14,
    "FLOAT6E3M2": 14,
}


@dataclass(frozen=True)
class Saved:
    """What was written, with the digest of each file; `data_path` is None when no tensor was large enough."""

    model_path: Path
    data_path: Path | None
    data_bytes: int
    ir_version: int
    model_sha256: str
    data_sha256: str | None


@dataclass(frozen=True)
class _Slot:
    value: ir.Value
    tensor: ir.TensorProtocol
    offset: int


def save_model(
    model: ir.Model, path: str | os.PathLike[str], *, data_name: str | None = None,
    min_bytes: int = MIN_EXTERNAL_BYTES, read_whole: Collection[str] = (),
) -> Saved:  # fmt: skip
    """Write the model; initializers of `min_bytes` or more go to `data_name` beside it.

    `read_whole` names initializers of which every call reads all; of others it may be a few rows.
    """
    target = Path(path)
    name = data_name if data_name is not None else target.name + ".data"
    if not name or Path(name).name != name or name == target.name:
        raise ValueError(f"{name!r} is not the name of a file beside the model")
    slots = list(_layout(model, min_bytes))
    size = slots[-1].offset + slots[-1].tensor.nbytes if slots else 0
    _bring_in_attributes(model)
    data = target.with_name(name) if slots else None
    version, content = _serialized(model, slots, name)
    partials: list[tuple[Path, Path]] = []
    data_sha256: str | None = None
    try:
        if data is not None:
            whole = frozenset(read_whole)
            data_sha256 = _write_partial(data, partials, lambda file: _write_slots(file, slots, whole))
        model_sha256 = _write_partial(target, partials, lambda file: file.write(content))
        # The data come first: a reader that finds the model finds its tensors.
        for partial, final in partials:
            partial.replace(final)
    finally:
        for partial, _ in partials:
            partial.unlink(missing_ok=True)
    return Saved(target, data, size, version, model_sha256, data_sha256)


def weight_bytes(model: ir.Model) -> int:
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def _layout(model: ir.Model, min_bytes: int) -> Iterator[_Slot]:
    """Initializers in graph order; one tensor used under two names is stored once."""
    end = 0
    placed: dict[int, int] = {}
    for graph in model_graphs(model):
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes < max(min_bytes, 1):
                continue
            if id(tensor) not in placed:
                placed[id(tensor)] = -(-end // PAGE_BYTES) * PAGE_BYTES
                end = placed[id(tensor)] + tensor.nbytes
            yield _Slot(value, tensor, placed[id(tensor)])


def _write_slots(file: DigestingFile, slots: list[_Slot], read_whole: Collection[str]) -> None:
    for slot in slots:
        if slot.offset < file.tell():
            continue  # Already written under another name.
        file.write(b"\0" * (slot.offset - file.tell()))
        chunk_bytes = _CHUNK_BYTES if slot.value.name in read_whole else _ROW_CHUNK_BYTES
        file.write(_bytes_of(slot.tensor), chunk_bytes)
        drop_pages(slot.tensor)
        if file.tell() != slot.offset + slot.tensor.nbytes:
            raise ModelError("SM-MODEL-004", f"initializer {(slot.value.name or '')[:80]!r} has data of another size")


def _bytes_of(tensor: ir.TensorProtocol) -> memoryview:
    """The content where it lies, or a copy where it is stored in another form."""
    if isinstance(tensor, ir.ExternalTensor | ir.Tensor) and tensor.dtype.itemsize >= 1 and sys.byteorder == "little":
        plain = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
        if plain.nbytes == tensor.nbytes:
            return plain.data
    return memoryview(tensor.tobytes())


def _bring_in_attributes(model: ir.Model) -> None:
    """External tensors of attributes and of small initializers move into the model: their old file is not beside it."""
    for graph in model_graphs(model, functions=True):
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                external = attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref()
                if external and isinstance(attribute.value, ir.ExternalTensor):
                    node.attributes[name] = ir.AttrTensor(name, _in_memory(attribute.value))


def _in_memory(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    return ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


def _serialized(model: ir.Model, slots: list[_Slot], name: str) -> tuple[int, bytes]:
    with _referring(model, slots, name):
        proto = to_proto(model)
    proto.ir_version = lowest_ir_version(model)
    if proto.ByteSize() > MAX_PROTO_BYTES:
        raise ModelError("SM-MODEL-004", "the model without its large tensors is over 2 GiB")
    return proto.ir_version, proto.SerializeToString(deterministic=True)


@contextmanager
def _referring(model: ir.Model, slots: list[_Slot], name: str) -> Generator[None, None, None]:
    """For a while, let initializers refer to the data file, and the small external ones hold their bytes."""
    originals: list[tuple[ir.Value, ir.TensorProtocol]] = [(slot.value, slot.tensor) for slot in slots]
    moved = {id(slot.value) for slot in slots}
    for graph in model_graphs(model):
        for value in graph.initializers.values():
            if id(value) not in moved and isinstance(value.const_value, ir.ExternalTensor):
                originals.append((value, value.const_value))
                value.const_value = _in_memory(value.const_value)
    try:
        for slot in slots:
            slot.value.const_value = ir.ExternalTensor(
                name, slot.offset, slot.tensor.nbytes, slot.tensor.dtype,
                shape=ir.Shape(slot.tensor.shape.numpy()), name=slot.value.name or "",
            )  # fmt: skip
        yield
    finally:
        for value, tensor in originals:
            value.const_value = tensor


def lowest_ir_version(model: ir.Model) -> int:
    """The least IR version that has all that the model uses; never more than it declares."""
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    needed = max(4, onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True))
    if model.functions:
        needed = max(needed, 8)
        needed = max(needed, 10 if any(function.overload for function in model.functions.values()) else 8)
    for graph in model_graphs(model, functions=True):
        produced = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *produced):
            if value.dtype is not None:
                needed = max(needed, _IR_OF_TYPE.get(value.dtype.name, 0))
    return min(needed, model.ir_version)


def _write_partial(target: Path, partials: list[tuple[Path, Path]], write: Callable[[DigestingFile], object]) -> str:
    """Write a new file beside the target, to be renamed once all are complete; its digest."""
    partial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o666), "wb") as file:
        partials.append((partial, target))
        with DigestingFile(file) as hashed:
            write(hashed)
        file.flush()
        os.fsync(file.fileno())
        return hashed.sha256
