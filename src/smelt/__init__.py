"""smelt: native kernels for ONNX models, run by stock ONNX Runtime.

Input: an ONNX model. Output: `compile`, which gives a compiled model. Invariant: importing this package loads
neither a model, a compiler nor torch; what is heavy is imported at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from smelt.base.deferred import defer
from smelt.base.environment import wanted_log
from smelt.base.log import configure
from smelt.base.version import __version__

configure(wanted_log())
defer("sympy", "onnx_ir._symbolic_shapes")

_LAZY = {
    "compile": "smelt.frontends",
    "CompiledModel": "smelt.frontends",
    "CompiledModule": "smelt.frontends",
    "Coverage": "smelt.frontends",
    "LoadedModule": "smelt.frontends",
    "Options": "smelt.frontends",
    "load": "smelt.frontends",
    "SmeltError": "smelt.base",
    "TorchOptions": "smelt.frontends.torch_compile",
    "explain": "smelt.frontends.torch_compile",
    "refresh": "smelt.frontends.torch_compile",
    "Exported": "smelt.frontends.export_module",
    "register_converter": "smelt.export",
    "dump": "smelt.frontends.dumping",
    "intercept": "smelt.frontends.intercept",
    "InferenceSession": "smelt.frontends.session",
    "batch": "smelt.frontends.batch",
    "forget_kernel": "smelt.frontends.user_kernels",
    "install": "smelt.frontends.session",
    "kernel": "smelt.frontends.user_kernels",
    "session_options": "smelt.frontends.session",
    "uninstall": "smelt.frontends.session",
}

_MODULES = {"eager": "smelt.frontends.eager", "export": "smelt.export", "patterns": "smelt.passes.patterns"}

__all__ = [
    *_LAZY,  # pyright: ignore[reportUnsupportedDunderAll]
    "__version__",
    *_MODULES,  # pyright: ignore[reportUnsupportedDunderAll]
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'smelt' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
