"""Large tensors on disk instead of in memory, and pages of mapped ones dropped.

Input: arrays that were just made, tensors over mapped files. Output: a tensor over a mapping of an unlinked file; pages
that are no longer resident. Invariant: contents stay as they are: what is needed again is read from the file. A system
that lacks room or the call keeps the tensor in memory.
"""

from __future__ import annotations

import mmap
import tempfile
from contextlib import suppress
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.ir._external import MappedTensor

LEAST_BYTES: Final = 4 << 20
Array = np.ndarray[Any, Any]


class SpilledTensor(ir.Tensor[Array]):
    """A tensor whose bytes lie in a file without a name."""

    def __init__(self, array: Array, mapping: mmap.mmap, name: str) -> None:
        super().__init__(array, name=name)
        self.mapping = mapping


def spilled(array: Array, name: str) -> ir.TensorProtocol:
    """The tensor, on disk if it is large."""
    if array.nbytes < LEAST_BYTES:
        return ir.tensor(array, name=name)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            file.flush()
            mapping = mmap.mmap(file.fileno(), array.nbytes, access=mmap.ACCESS_READ)
    except OSError:
        return ir.tensor(array, name=name)
    return SpilledTensor(np.frombuffer(mapping, array.dtype).reshape(array.shape), mapping, name)


def drop_pages(tensor: ir.TensorProtocol | None) -> None:
    """Let the system take the pages of a tensor that was read: they are read again from its file when it is."""
    if isinstance(tensor, SpilledTensor):
        _discard(tensor.mapping, 0, tensor.nbytes)
    elif isinstance(tensor, MappedTensor) and tensor.mapping is not None:
        _discard(tensor.mapping, tensor.offset or 0, tensor.nbytes)


def drop_all_pages(model: ir.Model) -> None:
    """Those of all initializers."""
    for value in model.graph.initializers.values():
        drop_pages(value.const_value)


def _discard(mapping: mmap.mmap, start: int, size: int) -> None:
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first and hasattr(mmap, "MADV_DONTNEED"):
        with suppress(OSError):
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
