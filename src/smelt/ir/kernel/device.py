"""What a function over whole tensors launches on a GPU, where its author wrote that too.

Input: nothing. Output: records of `Function`. Invariant: `text` is a Python module that needs nothing but Triton; the
arguments stand in the order of the function's parameters, without its constants.
"""

from __future__ import annotations

from dataclasses import dataclass

from .index import Ix

Constant = int | float | bool | str | None


@dataclass(frozen=True)
class DevicePointer:
    """Element `offset` of an operand, a result or a temporary, which are numbered in this order."""

    name: str
    place: int
    offset: Ix


@dataclass(frozen=True)
class DeviceSize:
    """An integer that the host computes: `type` is "i32" or "i64"."""

    name: str
    value: Ix
    type: str


@dataclass(frozen=True)
class DeviceNumber:
    """A number that is known: `type` is "fp32", or "i1" for a truth value."""

    name: str
    value: float
    type: str


DeviceArgument = DevicePointer | DeviceSize | DeviceNumber


@dataclass(frozen=True)
class DeviceLaunch:
    """`title` names a user's kernel in messages, nothing for smelt's own; `places` tell the file and line where each
    function of the text begins, by name. 0 warps or stages: what the compiler takes by itself."""

    title: str
    function: str
    text: str
    arguments: tuple[DeviceArgument, ...]
    constants: tuple[tuple[str, Constant], ...]
    grid: tuple[Ix, Ix, Ix]
    warps: int = 0
    stages: int = 0
    places: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class DeviceCode:
    """`temporaries` are shapes and types of memory that the launches hand on to each other. `alone`: the function has
    no C text."""

    launches: tuple[DeviceLaunch, ...]
    temporaries: tuple[tuple[tuple[Ix, ...], str], ...] = ()
    alone: bool = False

    @property
    def is_users(self) -> bool:
        return any(launch.title for launch in self.launches)
