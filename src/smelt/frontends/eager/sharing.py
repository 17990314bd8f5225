"""Memory that two parties use: other processes, and devices that copy from pinned memory.

Input: PyTorch's way to send storages to another process, its op `_pin_memory`. Output: both, knowing the device.
Invariant: a storage that is sent lies in shared memory, as one of the CPU does, and what either process writes, the
other sees. Memory of the device is plain memory: a copy of it is as good as pinned.
"""

from __future__ import annotations

import importlib
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import torch

from ._internals import torch_c
from .memory import on_ort
from .storages import put_memory

_aten: Final[Any] = torch.ops.aten
_shared: weakref.WeakKeyDictionary[torch.UntypedStorage, torch.Tensor] = weakref.WeakKeyDictionary()


def teach_sharing() -> None:
    """Replace the way in which storages are sent to other processes, once."""
    importlib.import_module("torch.multiprocessing")  # registers PyTorch's own way, which ours replaces
    ForkingPickler.register(torch.UntypedStorage, _sent)


def _sent(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != "ort":
        reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
        return reductions.reduce_storage(storage)
    plain = _shared.get(storage)
    if plain is None or plain.data_ptr() != storage.data_ptr():
        plain = torch.empty(storage.nbytes(), dtype=torch.uint8)
        plain.share_memory_()
        put_memory(storage, plain)
        _shared[storage] = plain
    return _received, (plain, storage.device.index or 0)


def _received(plain: torch.Tensor, index: int) -> torch.UntypedStorage:
    storage = on_ort(plain, index).untyped_storage()
    _shared[storage] = plain
    return storage


def pinned(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """`_pin_memory` of a tensor of the CPU: for this device a copy, for others what PyTorch does."""
    wanted: str = torch_c._accelerator_getAccelerator().type if device is None else device.type
    if wanted == "ort":
        return tensor.clone()
    return _aten._pin_memory.default._op_dk(torch_c.DispatchKey.CompositeExplicitAutograd, tensor, device)
