"""Models on disk for the examining process, with their large tensors stored once.

Input: models that share tensors. Output: one .onnx file each, and one data file for all, in one folder. Invariant:
tensors are streamed; the models given are unchanged afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import onnx
import onnx_ir as ir

from smelt.ir.proto import to_proto
from smelt.ir.save import MIN_EXTERNAL_BYTES, PAGE_BYTES, lowest_ir_version
from smelt.ir.spilled import drop_pages
from smelt.ir.walk import model_graphs

DATA: Final = "tensors.data"


class Bundle:
    """A folder being filled. Close it before the files are used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: BinaryIO = (folder / DATA).open("wb")
        self._placed: dict[int, ir.ExternalTensor] = {}
        self._alive: list[ir.TensorProtocol] = []  # an id is only good while its tensor lives

    def add(self, model: ir.Model, name: str, extra_outputs: Sequence[ir.Value] = ()) -> Path:
        """Write `model` as `name`, with more of its values as outputs."""
        originals: list[tuple[ir.Value, ir.TensorProtocol]] = []
        try:
            for graph in model_graphs(model):
                for value in graph.initializers.values():
                    tensor = value.const_value
                    if tensor is not None and _goes_outside(tensor):
                        originals.append((value, tensor))
                        value.const_value = self._place(tensor)
            proto = to_proto(model)
        finally:
            for value, tensor in originals:
                value.const_value = tensor
        proto.ir_version = lowest_ir_version(model)
        known = {output.name for output in proto.graph.output}
        for value in extra_outputs:
            if value.name and value.name not in known:
                known.add(value.name)
                proto.graph.output.append(_declaration(value.name, value.dtype))
        path = self.folder / name
        path.write_bytes(proto.SerializeToString())
        return path

    def flush(self) -> None:
        """What was added so far can be read; more may follow."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _place(self, tensor: ir.TensorProtocol) -> ir.ExternalTensor:
        if id(tensor) not in self._placed:
            self._file.write(b"\0" * (-self._file.tell() % PAGE_BYTES))
            offset = self._file.tell()
            if hasattr(tensor, "tofile"):
                tensor.tofile(self._file)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            else:
                self._file.write(tensor.tobytes())
            drop_pages(tensor)
            shape = ir.Shape(tensor.shape.numpy())
            self._placed[id(tensor)] = ir.ExternalTensor(
                DATA, offset, tensor.nbytes, tensor.dtype, shape=shape, name=tensor.name or "t"
            )
            self._alive.append(tensor)
        return self._placed[id(tensor)]


def _declaration(name: str, dtype: ir.DataType | None) -> onnx.ValueInfoProto:
    """Without a type where none is known: ONNX Runtime knows what its own ops give."""
    return onnx.ValueInfoProto(name=name) if dtype is None else onnx.helper.make_tensor_value_info(name, dtype, None)


def _goes_outside(tensor: ir.TensorProtocol) -> bool:
    """Large tensors, and those that lie in another file already."""
    external = isinstance(tensor, ir.ExternalTensor)
    return tensor.dtype != ir.DataType.STRING and tensor.nbytes >= (1 if external else MIN_EXTERNAL_BYTES)
