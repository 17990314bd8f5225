"""Stock programs that use ONNX Runtime: a drop-in session, its options, and a hook for every session of a process.

Input: what `onnxruntime.InferenceSession` takes. Output: a session over the compiled model where there is one, stock's
otherwise. Invariant: never in the way; whatever prevents compiling means stock, with one line of log. The names are
loaded at first use: the armed hook, which runs at the start of every process, lies in this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.frontends.session.hook import install, installed, uninstall
    from smelt.frontends.session.options import session_options
    from smelt.frontends.session.session import InferenceSession

_LAZY = {
    "InferenceSession": "smelt.frontends.session.session",
    "install": "smelt.frontends.session.hook",
    "installed": "smelt.frontends.session.hook",
    "session_options": "smelt.frontends.session.options",
    "uninstall": "smelt.frontends.session.hook",
}

__all__ = ["InferenceSession", "install", "installed", "session_options", "uninstall"]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
