"""A torch module as a module that runs in ONNX Runtime: `smelt.compile(module)`, `save`, `smelt.load`.

Input: nothing. Output: the names below, at first use. Invariant: loading a saved module imports no tracing and no
exporter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.frontends.module.compiled_module import CompiledModule
    from smelt.frontends.module.saved import LoadedModule, load_module

_LAZY = {"CompiledModule": "compiled_module", "LoadedModule": "saved", "load_module": "saved"}

__all__ = ["CompiledModule", "LoadedModule", "load_module"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
