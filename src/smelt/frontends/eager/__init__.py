"""The device `ort`: PyTorch tensors whose ops run one by one in ONNX Runtime.

Input: importing this package. Output: `torch.device("ort")` with its kernels, and the functions below. Invariant: what
ONNX Runtime cannot do as torch does it, the CPU does over the same memory, and `fallbacks()` says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .device import register
from .providers import Placement, devices, set_device
from .tally import Fallback, fallbacks, natives, reset_counts

if TYPE_CHECKING:
    from .custom import custom_op, forget_op
    from .values import from_ort_value, to_ort_value

AVAILABLE = register()
_LATER = {"custom_op": "custom", "forget_op": "custom", "from_ort_value": "values", "to_ort_value": "values"}

__all__ = [
    "AVAILABLE", "Fallback", "Placement", "custom_op", "devices", "fallbacks", "forget_op", "from_ort_value", "natives",
    "register", "reset_counts", "set_device", "to_ort_value",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
