"""Host memory under two names: a tensor on `cpu` and one on `ort` over the same bytes.

Input: a tensor of either device. Output: a tensor of the other over the same memory, with the same sizes and strides.
Invariant: nothing is copied, and the memory lives as long as any of its tensors. The device of a DLPack capsule is
rewritten between the export from one tensor and the import into the other.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import torch

from ._internals import neg_view, torch_c

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_Word: Final = ctypes.c_int64
_DEVICE_AT: Final = 8  # a DLTensor: the data pointer, then the device's type and index as two 32-bit integers
_CPU: Final = 1
_EXTENSION: Final = 12
_to_dlpack: Final = torch_c._to_dlpack
_from_dlpack: Final = torch_c._from_dlpack


def new_on_ort(shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> torch.Tensor:
    """New memory as a tensor of the device of a `device_word`. numpy allocates it: half the cost of torch's way."""
    capsule = np.empty(shape, dtype).__dlpack__()
    _Word.from_address(_get_pointer(capsule, b"dltensor") + _DEVICE_AT).value = device
    return _from_dlpack(capsule)


def retag(capsule: Any, device: int) -> Any:
    """Rewrite a capsule's device: `device_word(...)`."""
    _Word.from_address(_get_pointer(capsule, b"dltensor") + _DEVICE_AT).value = device
    return capsule


def device_word(index: int | None) -> int:
    """What a capsule says for `ort:index`, or for the CPU."""
    return _CPU if index is None else _EXTENSION | index << 32


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a CPU tensor."""
    return _from_dlpack(retag(_to_dlpack(tensor), _CPU))


def mirror_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """As `on_cpu`, with a pending conjugation and negation, which DLPack knows nothing of."""
    plain = on_cpu(tensor)
    plain = plain.conj() if tensor.is_conj() else plain
    return neg_view(plain) if tensor.is_neg() else plain


def on_ort(tensor: torch.Tensor, index: int = 0) -> torch.Tensor:
    """The memory of a CPU tensor as a tensor of `ort:index`."""
    return _from_dlpack(retag(_to_dlpack(tensor), _EXTENSION | index << 32))
