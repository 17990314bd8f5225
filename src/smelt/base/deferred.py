"""Modules that are loaded when they are first used, not when they are imported.

Input: names of modules that nobody has imported yet. Output: an import hook for these names alone. Invariant: whoever
looks at such a module sees the whole of it: the first access to any attribute, from whatever thread, loads it under a
lock. onnx_ir imports sympy for the arithmetic of symbolic dims, which smelt does not use and which costs as much as
all other imports together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # importing them takes as long as all else here

_STATE = "_smelt_deferred"


class _Deferred(ModuleType):
    """A module whose code has not run yet."""

    def __getattribute__(self, name: str) -> Any:
        _load(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _load(self)
        ModuleType.__setattr__(self, name, value)


class _Pending:
    """What is left to do for one module."""

    def __init__(self, loader: Loader, spec: ModuleSpec) -> None:
        import threading  # most programs never come here

        self.loader = loader
        self.spec = spec
        self.lock = threading.RLock()
        self.started = False


def _load(module: ModuleType) -> None:
    pending: _Pending | None = ModuleType.__getattribute__(module, "__dict__").get(_STATE)
    if pending is None:
        return
    with pending.lock:
        if pending.started:  # by this thread, whose code looks at its own module, or by another that has ended
            return
        pending.started = True
        pending.spec.loader = pending.loader
        own: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
        own["__loader__"] = pending.loader
        try:
            pending.loader.exec_module(module)
        except BaseException:
            pending.started = False
            raise
        module.__class__ = ModuleType
        own.pop(_STATE, None)


class _Later(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        module.__dict__[_STATE] = _Pending(self.loader, spec)
        module.__class__ = _Deferred


class _Finder(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


def defer(*names: str) -> None:
    """Let later imports of these modules load them at first use."""
    sys.meta_path.insert(0, _Finder(names))
