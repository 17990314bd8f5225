"""What users call: one file per way in. Each gives the pipeline a model and hands back something that runs.

Input: nothing. Output: the names below, loaded at first use. Invariant: importing this package imports nothing heavy,
since PyTorch does so at its own import for the device `ort`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.frontends.entry import compile, load
    from smelt.frontends.module import CompiledModule, LoadedModule
    from smelt.frontends.onnx_file import CompiledModel, Coverage
    from smelt.pipeline import Options

_LAZY = {
    "CompiledModel": "smelt.frontends.onnx_file",
    "CompiledModule": "smelt.frontends.module",
    "Coverage": "smelt.frontends.onnx_file",
    "Options": "smelt.pipeline",
    "LoadedModule": "smelt.frontends.module",
    "compile": "smelt.frontends.entry",
    "load": "smelt.frontends.entry",
}

__all__ = ["CompiledModel", "CompiledModule", "Coverage", "LoadedModule", "Options", "compile", "load"]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
