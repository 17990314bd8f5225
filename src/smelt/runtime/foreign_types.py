"""Sessions whose inputs or outputs have a type that numpy lacks: bfloat16, float8.

Input: a session of onnxruntime. Output: one whose `run` takes and gives arrays of `ml_dtypes` for such types, where
onnxruntime's own refuses them. Invariant: a session without such types is handed back as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from smelt.base.dtype import BY_ONNX_NAME, DTYPES, DType

_FOREIGN: Final = {
    f"tensor({d.onnx_name})": d for d in DTYPES if d.numpy is not None and d.numpy.isbuiltin != 1 and d.bits >= 8
}


def with_foreign_types(session: Any) -> Any:
    """The session, or a wrapper where some input or output has a type that numpy lacks."""
    kinds = [str(argument.type) for argument in (*session.get_inputs(), *session.get_outputs())]
    wrapped = any(kind in _FOREIGN for kind in kinds) and all(kind.startswith("tensor(") for kind in kinds)
    return ForeignTypeSession(session) if wrapped else session


class ForeignTypeSession:
    """As `onnxruntime.InferenceSession`, with arrays of `ml_dtypes`."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        feeds = {name: _ort_value(value) for name, value in input_feed.items()}
        return [_array(made) for made in self._session.run_with_ort_values(output_names, feeds)]


def _ort_value(value: Any) -> Any:
    from onnxruntime import OrtValue

    if isinstance(value, OrtValue):
        return value
    array = np.ascontiguousarray(value)
    found = next((d for d in _FOREIGN.values() if d.numpy == array.dtype), None)
    if found is None:
        return OrtValue.ortvalue_from_numpy(array)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(_bits(found)), found.onnx)


def _array(value: Any) -> Any:
    kind = str(value.data_type())
    found = _FOREIGN.get(kind)
    if found is None:
        return value.numpy()
    shape = cast("list[int]", value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * found.bytes
    held = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(held, np.dtype(found.numpy)).reshape(shape).copy()


def _bits(dtype: DType) -> np.dtype[Any]:
    """The unsigned integer of the same size."""
    found = BY_ONNX_NAME[f"uint{dtype.bits}"].numpy
    assert found is not None
    return found
