"""Torch tensors in, torch tensors out, over one session and without copies.

Input: a session, and how each of its inputs and outputs maps to torch. Output: `TorchRunner`, called with the list of
arguments of a compiled graph. Invariant: a contiguous tensor's memory is read in place; results own their memory;
nothing of a call is kept after it; one runner may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from smelt.runtime.session import Session

_SOME_ADDRESS: Final = 64  # an empty tensor has no address, and ONNX Runtime refuses none
_MOST_INTEGERS: Final = 1024

# torch dtypes that ONNX Runtime wraps by address; others, such as bfloat16, go by DLPack.
_TYPES: Final[dict[str, Any]] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
}

Prepare = Callable[[Any], Any]
Sizes = Callable[[Sequence[Any]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Feed:
    """One input of the session: argument `place`, changed by `prepare` where its memory is not as the model's input."""

    name: str
    place: int
    dtype: str
    prepare: Prepare | None = None


@dataclass(frozen=True)
class Fetch:
    """One output of the session. `finish` turns the dense result into what torch expects."""

    name: str
    dtype: str
    finish: Prepare | None = None


class TorchRunner:
    """Calls one session with torch tensors. `sizes` gives the shapes of all outputs where they are known in advance."""

    def __init__(
        self, session: Session, feeds: Sequence[Feed], fetches: Sequence[Fetch], sizes: Sizes | None = None
    ) -> None:
        import onnxruntime
        import torch
        from torch.utils.dlpack import from_dlpack

        plain = [feed for feed in feeds if feed.dtype in _TYPES]
        foreign = [feed for feed in feeds if feed.dtype not in _TYPES]
        self.session = session
        self.feeds = (*plain, *foreign)
        self.fetches = tuple(fetches)
        self._run: Final = cast("Any", session)._sess.run_with_ortvaluevector
        ort = cast("Any", onnxruntime)
        native = ort.capi._pybind_state
        self._options: Final = ort.RunOptions()
        device = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        self._in_names = [feed.name for feed in self.feeds]
        self._in_places = [feed.place for feed in plain]
        self._in_types = [_TYPES[feed.dtype] for feed in plain]
        self._in_devices = [device] * len(plain)
        self._prepared = [(at, feed.prepare) for at, feed in enumerate(plain) if feed.prepare is not None]
        self._foreign = [(feed.place, feed.prepare) for feed in foreign]
        self._out_names = [fetch.name for fetch in fetches]
        self._out_devices = [device] * len(fetches)
        self._out_types = [_TYPES.get(fetch.dtype) for fetch in fetches]
        self._out_dtypes = [getattr(torch, fetch.dtype) for fetch in fetches]
        self._finish = [(at, fetch.finish) for at, fetch in enumerate(fetches) if fetch.finish is not None]
        self._sizes = sizes if None not in self._out_types else None
        self._vector = native.OrtValueVector
        self._empty = _allocator()
        self._to_dlpack: Callable[[Any], Any] = cast("Any", torch._C)._to_dlpack  # pyright: ignore[reportPrivateUsage]
        self._from_dlpack: Callable[[Any], Any] = from_dlpack
        self._bool = torch.bool

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """All outputs of the session, in its order."""
        tensors = [args[place] for place in self._in_places]
        for at, prepare in self._prepared:
            tensors[at] = prepare(tensors[at])
        tensors = [t if t.is_contiguous() else t.contiguous() for t in tensors]
        given = self._vector()
        given.push_back_batch(
            tensors,
            [t.data_ptr() or _SOME_ADDRESS for t in tensors],
            self._in_types,
            [t.shape for t in tensors],
            self._in_devices,
        )
        for place, prepare in self._foreign:
            tensor = args[place] if prepare is None else prepare(args[place])
            given.push_back(self._to_dlpack(tensor.contiguous()), False)
        results = self._taken(given) if self._sizes is None else self._filled(given, self._sizes(args))
        for at, finish in self._finish:
            results[at] = finish(results[at])
        return results

    def _filled(self, given: Any, shapes: Sequence[Sequence[int]]) -> list[Any]:
        """Results written by the session into memory of torch's own."""
        results = [self._empty(shape, dtype) for shape, dtype in zip(shapes, self._out_dtypes, strict=True)]
        taken = self._vector()
        taken.push_back_batch(
            results, [t.data_ptr() or _SOME_ADDRESS for t in results], self._out_types, shapes, self._out_devices
        )
        self._run(self._options, self._in_names, given, self._out_names, taken, self._out_devices)
        return results

    def _taken(self, given: Any) -> list[Any]:
        """Results in memory of the session's, which they own from then on."""
        taken = self._vector()
        self._run(self._options, self._in_names, given, self._out_names, taken, self._out_devices)
        results = [self._from_dlpack(taken.dlpack_at(at)) for at in range(len(taken))]
        for at, dtype in enumerate(self._out_dtypes):
            if dtype is self._bool:
                results[at] = results[at].view(dtype)
        return results


def integer_feed() -> Prepare:
    """A Python integer as the scalar tensor that stands for it; those met lately are kept."""
    import torch

    known: dict[int, Any] = {}

    def tensor_of(value: int) -> Any:
        found = known.get(value)
        if found is None:
            if len(known) >= _MOST_INTEGERS:
                known.clear()
            found = known[value] = torch.scalar_tensor(int(value), dtype=torch.int64)
        return found

    return tensor_of


def number_feed(dtype: str) -> Prepare:
    """A Python float or bool as a scalar tensor."""
    import torch

    kind = getattr(torch, dtype)
    return lambda value: torch.scalar_tensor(value, dtype=kind)


def _allocator() -> Callable[[Sequence[int], Any], Any]:
    """Memory for a contiguous result. torch's compiled wrappers have a faster way in than `torch.empty`."""
    import torch

    def plainly(shape: Sequence[int], dtype: Any) -> Any:
        return torch.empty(shape, dtype=dtype)

    guards = cast("Any", torch._C)._dynamo.guards  # pyright: ignore[reportPrivateUsage]
    fast = getattr(guards, "_empty_strided_cpu", None)
    if fast is None:
        return plainly

    def quickly(shape: Sequence[int], dtype: Any) -> Any:
        shape = tuple(shape)
        return fast(shape, _row_major(shape), dtype)

    return quickly


@lru_cache(maxsize=1024)
def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * (shape[axis + 1] or 1)
    return tuple(strides)
