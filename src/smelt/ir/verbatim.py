"""A model as it is, for what no Model can hold: ModelProto -> model.onnx, with its data in one file beside it.

Input: a path, bytes or a ModelProto. Output: the two files. Invariant: nothing but the place of external data is
changed, and these are read as safely as those of any model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from smelt.base.errors import LoadError, ModelError
from smelt.ir._external import ExternalFolder, external_fields
from smelt.ir._proto_check import check_tensor
from smelt.ir.load import Source, read_proto
from smelt.ir.records import Fallback, Plan
from smelt.ir.save import PAGE_BYTES, Saved

_MESSAGE: Final = FieldDescriptor.TYPE_MESSAGE


def may_be_held_by_stock(error: LoadError | ModelError) -> bool:
    """Whether the error says that a model cannot be read, and not that it would be unsafe to."""
    return isinstance(error, ModelError) or error.code == "SM-LOAD-007"


@dataclass(frozen=True)
class Verbatim:
    """A model that was parsed, and nothing more; `folder` is where its external data lie."""

    proto: onnx.ModelProto
    folder: ExternalFolder | None

    @classmethod
    def read(cls, source: Source) -> Verbatim | None:
        """None for a Model, which is no file."""
        if isinstance(source, ir.Model):
            return None
        found, folder = read_proto(source)
        proto = onnx.ModelProto()
        proto.CopyFrom(found)
        for tensor in _external_tensors(proto):
            check_tensor(tensor, folder)
        return cls(proto, folder)

    def plan(self, reason: str) -> Plan:
        """Every node is left, for one reason. The nodes stand alone: their values cannot be said."""
        nodes = ((_text(n.domain), _text(n.op_type), _text(n.name)) for n in self._nodes())
        return Plan((), tuple(Fallback(ir.Node(d, op, [], num_outputs=0, name=name), reason) for d, op, name in nodes))

    def _nodes(self) -> Iterator[onnx.NodeProto]:
        pending = [self.proto.graph]
        while pending:
            graph = pending.pop()
            yield from graph.node
            for attribute in (attribute for node in graph.node for attribute in node.attribute):
                pending += [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []
                pending += attribute.graphs

    def interface(self) -> tuple[list[str], list[str]]:
        """The names of the inputs and outputs."""
        constants = {tensor.name for tensor in self.proto.graph.initializer}
        inputs = [info.name for info in self.proto.graph.input if info.name not in constants]
        return inputs, [info.name for info in self.proto.graph.output]

    def save(self, path: Path, data_name: str) -> Saved:
        """Write the model, and its external data as `data_name` beside it."""
        data = path.with_name(data_name)
        moved = onnx.ModelProto()
        moved.CopyFrom(self.proto)
        tensors = list(_external_tensors(moved))
        if tensors:
            with data.open("wb") as file:
                for tensor in tensors:
                    self._move(tensor, file, data_name)
        content = moved.SerializeToString()
        path.write_bytes(content)
        return Saved(
            path, data if tensors else None, data.stat().st_size if tensors else 0, moved.ir_version,
            hashlib.sha256(content).hexdigest(), _digest(data) if tensors else None,
        )  # fmt: skip

    def _move(self, tensor: onnx.TensorProto, file: BinaryIO, name: str) -> None:
        assert self.folder is not None  # checked when the model was read
        fields = external_fields(tensor)
        mapping, size = self.folder.mapping(fields["location"], tensor.name)
        offset = int(fields.get("offset", "0"))
        length = int(fields["length"]) if "length" in fields else size - offset
        file.write(b"\0" * (-file.tell() % PAGE_BYTES))
        place = file.tell()
        if mapping is not None:
            file.write(memoryview(mapping)[offset : offset + length])
        del tensor.external_data[:]
        for key, value in (("location", name), ("offset", str(place)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)


def _external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    pending: list[Message] = [proto]
    while pending:
        message = pending.pop()
        if isinstance(message, onnx.TensorProto):
            if message.data_location == onnx.TensorProto.EXTERNAL:
                yield message
            continue
        for field, content in message.ListFields():
            if field.type == _MESSAGE:
                pending.extend((content,) if isinstance(content, Message) else content)


def _text(value: object) -> str:
    """A text field as protobuf gives it: bytes where it is not UTF-8."""
    return value if isinstance(value, str) else repr(value)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
