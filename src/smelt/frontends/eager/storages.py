"""Storages of the device: `torch.UntypedStorage(n, device="ort")`, and their growth.

Input: PyTorch's storage class. Output: the same class with a constructor and a `resize_` that know the device.
Invariant: storages of other devices behave as before. PyTorch asks C++ code of a device for the memory of a storage and
has none for a device that is registered from Python, so copying, unpickling and `torch.load` would crash without this.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any, Final, cast

import torch

from ._internals import torch_c
from .memory import on_cpu, on_ort
from .providers import index_of_device

_plain_new: Final[Any] = torch.UntypedStorage.__new__
_plain_resize: Final[Any] = torch.UntypedStorage.resize_
_CPU_KEY: Final[Any] = torch_c.DispatchKey.CPU
_aten: Final[Any] = torch.ops.aten
_place: Final[Any] = _aten.set_.source_Storage._op_dk
# A storage in memory, in words: its class, its counts of references, the pointer with its deleter, context and device,
# the size in bytes.
_POINTER, _SIZE, _WORDS = 2, 6, 7
_lent: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()


def teach_storages() -> None:
    """Replace the constructor and `resize_`, once."""
    storage: Any = torch.UntypedStorage
    storage.__new__ = _new
    storage.__init__ = _nothing
    storage.resize_ = _resize


def _new(cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any) -> torch.UntypedStorage:
    device = kwargs.get("device")
    if device is None or torch.device(device).type != "ort":
        return _plain_new(cls, *args, **kwargs)
    given = args[0] if args else kwargs.get("size", 0)
    size = given if isinstance(given, int) else len(given)
    made = torch.empty(size, dtype=torch.uint8, device="cpu")
    if not isinstance(given, int):
        made.copy_(torch.tensor(list(cast("list[int]", given)), dtype=torch.uint8))
    return on_ort(made, index_of_device(torch.device(device))).untyped_storage()


def _nothing(self: object, *args: Any, **kwargs: Any) -> None:
    """All is done in `__new__`."""


def _resize(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    if self.device.type != "ort":
        return _plain_resize(self, size)
    if size != self.nbytes():
        give_memory(self, size)
    return self


def lend(tensor: torch.Tensor) -> None:
    """Note that something besides tensors points into a storage, which may not move from now on."""
    _lent.add(tensor.untyped_storage())


def give_memory(storage: torch.UntypedStorage, size: int) -> None:
    """Put new memory with the same leading bytes beneath a storage: every tensor over it sees the new memory."""
    put_memory(storage, torch.empty(size, dtype=torch.uint8))


def put_memory(storage: torch.UntypedStorage, new: torch.Tensor) -> None:
    """Put the memory of a CPU tensor beneath a storage, after the old bytes were copied to it."""
    if storage in _lent:
        raise RuntimeError("Trying to resize storage that is not resizable: an OrtValue shares its memory")
    if not _layout_is_known():
        raise RuntimeError("Trying to resize storage that is not resizable: this PyTorch keeps storages in another way")
    index = storage.device.index or 0
    old = on_cpu(_place(_CPU_KEY, on_ort(torch.empty(0, dtype=torch.uint8), index), storage))
    kept = min(new.numel(), old.numel())
    new[:kept].copy_(old[:kept])
    del old
    _exchange(storage, on_ort(new, index).untyped_storage())


def _words(storage: Any) -> Any:
    return (ctypes.c_uint64 * _WORDS).from_address(storage._cdata)


def _exchange(one: torch.UntypedStorage, other: torch.UntypedStorage) -> None:
    """Swap the memory of two storages of one device: C++ swaps these members in the same way."""
    mine, theirs = _words(one), _words(other)
    mine[_POINTER:], theirs[_POINTER:] = theirs[_POINTER:], mine[_POINTER:]


@cache
def _layout_is_known() -> bool:
    """Whether storages lie in memory as `_words` says: pointers and sizes are where they are looked for."""
    probes = [torch.empty(size, dtype=torch.uint8).untyped_storage() for size in (24, 40)]
    return all(words[_POINTER] == s.data_ptr() and words[_SIZE] == s.nbytes() for s in probes for words in (_words(s),))
