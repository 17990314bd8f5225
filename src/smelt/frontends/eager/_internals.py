"""The private parts of PyTorch and onnxruntime that the device needs, in one place and without types.

Input: the installed packages. Output: `torch_c`, `neg_view`, `runtime_state()`. Invariant: nothing else of this package
reaches into another package's private names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

torch_c: Final[Any] = vars(torch)["_C"]
neg_view: Final[Any] = vars(torch)["_neg_view"]


def runtime_state() -> Any:
    """onnxruntime's own binding, beneath its Python classes."""
    return import_module("onnxruntime.capi.onnxruntime_pybind11_state")


def runtime() -> Any:
    return import_module("onnxruntime")
