"""Tensors that share memory, and memory that grows: what neither ONNX Runtime nor a copy can do.

Input: tensors on `ort`. Output: kernels of `as_strided`, `view`, `set_`, `resize_` and kin. Invariant: a view shares
its base's storage object, so that autograd and in-place writes see it; no kernel here reads or writes an element,
except a resize that needs more memory, which moves the old elements for all tensors over the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from ._internals import torch_c
from .memory import on_ort
from .providers import index_of_device
from .storages import give_memory

_CPU_KEY: Final[Any] = torch_c.DispatchKey.CPU
aten: Final[Any] = torch.ops.aten

_place: Final[Any] = aten.set_.source_Storage_storage_offset._op_dk

# These kernels of the CPU only rewrite sizes, strides and storage, whatever the device.
METADATA_OPS: Final = (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
    aten.is_set_to.default,
)


def metadata_kernel(op: Any) -> Callable[..., Any]:
    call, key = op._op_dk, _CPU_KEY

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return call(key, *args, **kwargs)

    return kernel


def allocate(
    size: Sequence[int], stride: Sequence[int] | None, dtype: torch.dtype | None, device: torch.device | None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:  # fmt: skip
    index = index_of_device(device)
    if stride is not None:
        return on_ort(torch.empty_strided(size, stride, dtype=dtype, device="cpu"), index)
    made = torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format)
    return on_ort(made, index)


def resize(tensor: torch.Tensor, size: Sequence[int], memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """As torch's: old elements stay in front, new ones are undefined; the storage grows and never shrinks."""
    wanted = torch.empty(
        size, dtype=tensor.dtype, device="meta", memory_format=memory_format or torch.contiguous_format
    )
    if tensor.shape == wanted.shape and (memory_format is None or tensor.stride() == wanted.stride()):
        return tensor
    offset, storage = tensor.storage_offset(), tensor.untyped_storage()
    needed = int(offset + _span(wanted)) * tensor.element_size()
    if storage.nbytes() < needed:
        give_memory(storage, needed)
    return _place(_CPU_KEY, tensor, storage, offset, wanted.shape, wanted.stride())


def restride(tensor: torch.Tensor, strides: Sequence[int]) -> None:
    """Other strides, if they need no more memory than the elements take."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    if tensor.stride() != strides and tensor.numel() and reach <= tensor.numel():
        _place(_CPU_KEY, tensor, tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, strides)


def retyped(base: torch.Tensor, like: torch.Tensor, offset_bytes: int) -> torch.Tensor:
    """A tensor over `base`'s storage with the dtype, sizes and strides of `like`."""
    made = allocate([0], None, like.dtype, base.device)
    offset = offset_bytes // like.element_size()
    return _place(_CPU_KEY, made, base.untyped_storage(), offset, like.shape, like.stride())


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage."""
    made = allocate([0], None, torch.uint8, tensor.device)
    return aten.set_.source_Storage._op_dk(_CPU_KEY, made, tensor.untyped_storage())


def _span(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
