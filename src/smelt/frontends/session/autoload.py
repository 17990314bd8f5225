"""The hook for programs that do not know of it: armed at start, set when onnxruntime is imported.

Input: SMELT_HOOK and its kin. Output: an import hook for onnxruntime alone. Invariant: a program that never imports
onnxruntime pays nothing but this module; a fault in arming leaves the program as it is.

Python runs it at start by `smelt_hook.pth` of the installed package, where SMELT_HOOK is set, or by the `sitecustomize`
that `smelt exec` puts on PYTHONPATH.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

from smelt.base import environment

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # importing them takes as long as all else here

_NAME = "onnxruntime"
_said: list[str] = []


def arm() -> None:
    """Install the hook as soon as onnxruntime is there, if the environment asks for it. Nothing is raised."""
    try:
        _arm()
    except Exception as error:  # a program that runs without smelt runs with it
        _complain(error)


def _complain(error: Exception) -> None:
    """Once: in a virtual environment Python runs each .pth file twice."""
    line = f"smelt: sessions run on stock ONNX Runtime: {error}\n"
    if line not in _said:
        _said.append(line)
        sys.stderr.write(line)


def _arm() -> None:
    if environment.hook() == "off" or armed():
        return
    if _NAME in sys.modules:
        _install()
    else:
        sys.meta_path.insert(0, _Finder())


def armed() -> bool:
    """Whether this process has the hook, or will have it with onnxruntime."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return True
    hook = sys.modules.get("smelt.frontends.session.hook")
    return hook is not None and bool(hook.installed())


def _install() -> None:
    from smelt.frontends.session.hook import install

    background = environment.hook() == "background"
    install(environment.hook_limit_s(), background=background, skip=environment.hook_skip())


class _Then(Loader):
    """Loads the module as it would be, then installs the hook."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        try:
            _install()
        except Exception as error:  # onnxruntime itself is loaded
            _complain(error)


class _Finder(MetaPathFinder):
    """Stays until onnxruntime is loaded: programs ask where a module is long before they import it, or never do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _NAME:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader)
        return spec
