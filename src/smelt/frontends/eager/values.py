"""Tensors of `ort` and OrtValues over the same memory.

Input: a tensor, or an OrtValue in host memory. Output: the other. Invariant: nothing is copied; the memory lives as
long as either.
"""

from __future__ import annotations

from typing import Any

import torch

from smelt.base.errors import InputError

from ._internals import runtime, runtime_state, torch_c
from .calls import owned_tensor
from .device import ensure_kernels
from .memory import on_cpu, on_ort
from .providers import placement
from .storages import lend


def to_ort_value(tensor: torch.Tensor) -> Any:
    """An `onnxruntime.OrtValue` over a tensor's memory, which must be contiguous."""
    plain = on_cpu(tensor) if tensor.device.type == "ort" else tensor.detach()
    if not plain.is_contiguous():
        raise InputError(
            "SM-INPUT-005", "an OrtValue is contiguous, this tensor is not", hint="Call .contiguous() first."
        )
    if plain is not tensor:
        lend(tensor)
    boolean = plain.dtype == torch.bool
    capsule = torch_c._to_dlpack(plain.view(torch.uint8) if boolean else plain)
    return runtime().OrtValue(runtime_state().OrtValue.from_dlpack(capsule, boolean))


def from_ort_value(value: Any, index: int = 0) -> torch.Tensor:
    """A tensor of `ort:index` over an OrtValue's memory."""
    ensure_kernels()
    placement(index)
    inner = getattr(value, "_ortvalue", value)
    dtype = torch.bool if inner.data_type() == "tensor(bool)" else torch.float32
    return on_ort(owned_tensor(inner, dtype), index)
