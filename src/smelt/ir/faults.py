"""Faults of smelt's own: an exception costs the part that it belongs to, never the compilation.

Input: exceptions, with the stage and the nodes that they belong to. Output: `Fault` records, for every report.
Invariant: a strict collection keeps nothing and raises at once; what is the user's or the machine's (an option,
the cache, a full disk) is always raised.
"""

from __future__ import annotations

import errno
import glob
import shlex
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx_ir as ir

from smelt.base.errors import (
    ArtifactError,
    CacheError,
    CompileError,
    ConfigError,
    InputError,
    LoadError,
    NoCompilerError,
)

_NOT_OURS: Final = (ArtifactError, CacheError, ConfigError, InputError, LoadError, NoCompilerError)
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_TEXT: Final = 500
_NAMED: Final = 8  # nodes that a command still names one by one
_SHOWN: Final = 40  # nodes that a record names


@dataclass(frozen=True)
class Fault:
    """What went wrong inside smelt, in one line each.

    `where` is the innermost place of smelt's own code; `nodes` are names (op types of nodes without one), the first
    few; `repro` is a command that shows the exception.
    """

    stage: str
    error: str
    where: str = ""
    nodes: tuple[str, ...] = ()
    repro: str = ""


class Faults:
    """The faults of one compilation. `title` is how commands name the model."""

    def __init__(self, strict: bool = True, title: str = "") -> None:
        self.strict = strict
        self._title = title or "MODEL.onnx"
        self._known: list[tuple[Fault, frozenset[ir.Node]]] = []

    def contain(self, stage: str, error: Exception, nodes: Sequence[ir.Node] | str = ()) -> str:
        """Keep a fault; the reason to give for what it costs. Raises it where faults are not contained.

        `nodes` may be the name of what failed instead, such as a pass.
        """
        if self.strict or not is_fault(error):
            raise error
        text = one_line(error)
        if isinstance(nodes, str):
            self._keep(Fault(f"{stage} ({nodes})", text, where(error), (), self._repro(())), ())
        else:
            self._keep(Fault(stage, text, where(error), _names(nodes), self._repro(nodes)), nodes)
        return f"internal error in stage {stage}: {text}"

    def report(self, stage: str, text: str, nodes: Sequence[ir.Node]) -> None:
        """Keep what was seen from outside, such as a kernel that crashed; it has been dealt with."""
        self._keep(Fault(stage, text, "", _names(nodes), self._repro(nodes)), nodes)

    def found(self) -> tuple[Fault, ...]:
        """The faults at their smallest: not the region where a part of it shows the same."""
        sets = [(fault.stage, fault.where, nodes) for fault, nodes in self._known]
        smaller = [
            any(stage == fault.stage and at == fault.where and inner < nodes for stage, at, inner in sets)
            for fault, nodes in self._known
        ]
        return tuple(fault for (fault, _), drop in zip(self._known, smaller, strict=True) if not drop)

    def _keep(self, fault: Fault, nodes: Iterable[ir.Node]) -> None:
        record = fault, frozenset(nodes)
        if record not in self._known:
            self._known.append(record)

    def _repro(self, nodes: Sequence[ir.Node]) -> str:
        globs = dict.fromkeys(glob.escape(node.name or node.op_type) for node in nodes)
        chosen = [f"--select {shlex.quote(name)}" for name in globs] if len(globs) <= _NAMED else []
        return " ".join(
            ("SMELT_STRICT=1 smelt compile", shlex.quote(self._title), *(("--force", *chosen) if chosen else ()), "-vv")
        )


def is_fault(error: Exception) -> bool:
    """Whether smelt itself is to blame."""
    full = isinstance(error, OSError) and error.errno in _FULL
    return not isinstance(error, _NOT_OURS) and not full


def one_line(error: Exception) -> str:
    """`AssertionError: text`, cut; of a compiler that failed, what it said first."""
    text = str(error)
    if isinstance(error, CompileError):
        said = [line for line in error.stderr.splitlines() if "error:" in line or "internal compiler" in line]
        text = " ".join([error.message.partition("\n")[0], *said[:1]])
    kind = type(error).__name__
    words = " ".join(text.split())
    return (f"{kind}: {words}" if words else kind)[:_TEXT]


def where(error: BaseException) -> str:
    """`codegen/c/tile_fusion.py:95 in _result`: the innermost frame in smelt, or the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    if not frames:
        return ""
    last = own[-1] if own else frames[-1]
    name = Path(last.filename)
    file = name.relative_to(_PACKAGE).as_posix() if own else name.name
    return f"{file}:{last.lineno} in {last.name}"


def _names(nodes: Sequence[ir.Node]) -> tuple[str, ...]:
    return tuple(node.name or node.op_type for node in nodes[:_SHOWN])
