"""Storages of the device: `torch.UntypedStorage(n, device="ort")`.

Input: PyTorch's storage class. Output: the same class with a constructor that knows the device. Invariant: storages of
other devices are made as before. PyTorch asks a C++ allocator for the memory of a storage and has none for a device
that is registered from Python, so copying, unpickling and `torch.load` would crash without this.
"""

from __future__ import annotations

from typing import Any, Final, cast

import torch

from .memory import on_ort

_plain_new: Final[Any] = torch.UntypedStorage.__new__


def teach_storages() -> None:
    """Replace the constructor, once."""
    storage: Any = torch.UntypedStorage
    storage.__new__ = _new
    storage.__init__ = _nothing


def _new(cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any) -> torch.UntypedStorage:
    device = kwargs.get("device")
    if device is None or torch.device(device).type != "ort":
        return _plain_new(cls, *args, **kwargs)
    given = args[0] if args else kwargs.get("size", 0)
    size = given if isinstance(given, int) else len(given)
    made = torch.empty(size, dtype=torch.uint8, device="cpu")
    if not isinstance(given, int):
        made.copy_(torch.tensor(list(cast("list[int]", given)), dtype=torch.uint8))
    return on_ort(made, torch.device(device).index or 0).untyped_storage()


def _nothing(self: object, *args: Any, **kwargs: Any) -> None:
    """All is done in `__new__`."""
