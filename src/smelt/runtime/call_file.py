"""The tensors of one region call as a file, for the standalone host (include/smelt/host/call_file.h).

Input: arrays, None for an absent optional input. Output: a file, or the arrays of one.
Invariant: reading what was written gives the same bits; a damaged file is an error, never a wrong array.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from smelt.base.dtype import KERNEL_DTYPES
from smelt.base.errors import InputError

Array = npt.NDArray[Any]

_MAGIC: Final = b"SMELTIO1"
_ALIGNMENT: Final = 64
_MAX_RANK: Final = 64
_MAX_TENSORS: Final = 4096
# ONNX TensorProto element type -> numpy dtype, little endian
_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    d.onnx: d.numpy.newbyteorder("<") for d in KERNEL_DTYPES if d.numpy is not None
}
_TYPES: Final = {dtype: number for number, dtype in _DTYPES.items()}


def write_call(path: Path, inputs: Sequence[Array | None], expected: Sequence[Array]) -> None:
    """Write the inputs of a call and the outputs that it should give."""
    with path.open("wb") as stream:
        stream.write(_MAGIC + struct.pack("<ii", len(inputs), len(expected)))
        for array in (*inputs, *expected):
            _write_tensor(stream, array)


def read_call(path: Path) -> tuple[list[Array | None], list[Array | None]]:
    """What `write_call` wrote: inputs and expected outputs."""
    data = path.read_bytes()
    try:
        return _parse(data)
    except (struct.error, ValueError, OverflowError, KeyError) as error:
        raise InputError("SM-INPUT-003", f"{path} is not a dumped call: {error}", hint="Dump it again.") from error


def _write_tensor(stream: BinaryIO, array: Array | None) -> None:
    if array is None:
        stream.write(struct.pack("<ii", 0, -1))
        return
    array = np.array(array, order="C", copy=None)
    type_number = _TYPES.get(array.dtype.newbyteorder("<"))
    if type_number is None:
        raise InputError("SM-INPUT-002", f"a {array.dtype} array cannot be dumped")
    if array.ndim > _MAX_RANK:
        raise InputError("SM-INPUT-003", f"an array of rank {array.ndim} cannot be dumped")
    array = array.astype(_DTYPES[type_number], copy=False)
    stream.write(struct.pack(f"<ii{array.ndim}qq", type_number, array.ndim, *array.shape, array.nbytes))
    stream.write(b"\0" * (-stream.tell() % _ALIGNMENT))
    stream.write(array.tobytes())


def _parse(data: bytes) -> tuple[list[Array | None], list[Array | None]]:
    if data[:8] != _MAGIC:
        raise ValueError("it does not begin as one")
    n_in, n_out = struct.unpack_from("<ii", data, 8)
    if not (0 <= n_in <= _MAX_TENSORS and 0 <= n_out <= _MAX_TENSORS):
        raise ValueError(f"{n_in} inputs and {n_out} outputs")
    at = 16
    tensors: list[Array | None] = []
    for _ in range(n_in + n_out):
        array, at = _read_tensor(data, at)
        tensors.append(array)
    if at != len(data):
        raise ValueError("bytes after the last tensor")
    return tensors[:n_in], tensors[n_in:]


def _read_tensor(data: bytes, at: int) -> tuple[Array | None, int]:
    type_number, rank = struct.unpack_from("<ii", data, at)
    at += 8
    if rank < 0:
        return None, at
    if rank > _MAX_RANK:
        raise ValueError(f"rank {rank}")
    *dims, size = struct.unpack_from(f"<{rank}qq", data, at)
    at += 8 * (rank + 1)
    at += -at % _ALIGNMENT
    if size < 0 or at + size > len(data):
        raise ValueError("it is cut short")
    array = np.frombuffer(data, dtype=_DTYPES[type_number], count=size // _DTYPES[type_number].itemsize, offset=at)
    return array.reshape(dims), at + size
