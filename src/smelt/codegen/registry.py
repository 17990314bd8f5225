"""Code generators by name.

Input: a name, or several in order of preference. Output: what is registered under it. Invariant: a name that nobody
registered is an error that lists those that are. Packages of others register theirs by an entry point of the group
`smelt.backends`, whose object is a `BackendKind`. It is imported when it is asked for, as smelt's own for GPUs are.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from smelt.base.errors import ConfigError
from smelt.ir.backend import BackendKind

from .c.backend import CBackend

GROUP: Final = "smelt.backends"
_REGISTERED: Final[dict[str, BackendKind]] = {CBackend.name: CBackend}
_OWN: Final = tuple(
    EntryPoint(name, f"smelt.codegen.triton.backend:{kind}", GROUP)
    for name, kind in (("triton", "TritonBackend"), ("triton-cuda", "CudaBackend"), ("triton-rocm", "RocmBackend"))
)


def register_backend(kind: BackendKind) -> None:
    """Add a code generator, or replace the one of its name."""
    _REGISTERED[kind.name] = kind


def backend_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*_REGISTERED, *(point.name for point in _installed()))))


def find_backend(name: str) -> BackendKind:
    if name in _REGISTERED:
        return _REGISTERED[name]
    for point in _installed():
        if point.name == name:
            kind = cast("BackendKind", point.load())
            register_backend(kind)
            return kind
    raise ConfigError("SM-CONFIG-001", f"there is no backend {name!r}", hint=f"Known are {', '.join(backend_names())}.")


def find_backends(names: str) -> tuple[BackendKind, ...]:
    """Those of a list with commas, the one that is asked first first."""
    found = tuple(find_backend(name.strip()) for name in names.split(",") if name.strip())
    return found or (find_backend(CBackend.name),)


def _installed() -> Iterator[EntryPoint]:
    yield from _OWN
    yield from entry_points(group=GROUP)
