"""The stage records: what one stage hands to the next.

Input: nothing. Output: frozen dataclasses; `Model` is `onnx_ir.Model` itself and is the only record that
passes change in place. Invariant: a record holds no live handle (session, process, open file), so each can be
dumped and a pipeline can be resumed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir


@dataclass(frozen=True)
class Claim:
    """A code generator's answer for a node or a region: yes, or no with the reason that `explain` prints."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class Region:
    """Nodes of one graph that become one custom op, in topological order, with the values that cross its border.

    `backend` is the name of the code generator that claimed them; nothing stands for the first one that was asked.
    """

    index: int
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    backend: str = ""


@dataclass(frozen=True)
class Fallback:
    """A node that ONNX Runtime keeps, and why."""

    node: ir.Node
    reason: str


@dataclass(frozen=True)
class Plan:
    """Every node of the model is in exactly one region or in `fallbacks`."""

    regions: tuple[Region, ...]
    fallbacks: tuple[Fallback, ...]

    def without(self, rejected: Mapping[int, str]) -> Plan:
        """The same plan with some regions falling back, each with the reason."""
        back = [Fallback(n, rejected[r.index]) for r in self.regions if r.index in rejected for n in r.nodes]
        return Plan(tuple(r for r in self.regions if r.index not in rejected), (*self.fallbacks, *back))


@dataclass(frozen=True)
class Unit:
    """One C file. A per-level unit is compiled once for each CPU level, others once for the baseline.

    `optimize` is the compiler's level: 1 for what takes its time to compile and would not run faster for it, 0 for what
    is compiled as fast as possible. A `rare` one holds what is seldom run: it is compiled so too, and for the lowest
    of the levels alone.
    It holds or announces the code of `entries`, has the bodies of `kernels`, and launches those of `launches`.
    """

    name: str
    text: str
    per_level: bool = True
    optimize: int = 2
    rare: bool = False
    entries: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelInfo:
    """One loop nest of a region, for reports: what it computes, from which nodes, and how much it moves.

    Kernels of a region with the same `launch` run together; launches run one after the other. `form` is the kernel form
    that the backend chose from its table, with the `reason` and the family of its `micro_kernels`; `launcher` and
    `flags` are what runs its tasks, nothing for one that is a stage of a launch or launches itself. `traits` name what
    else was chosen for it.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    summary: str
    flops: str = ""
    bytes: str = ""
    launch: int = 0
    form: str = ""
    reason: str = ""
    launcher: str = ""
    flags: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    micro_kernels: str = ""


@dataclass(frozen=True)
class Entry:
    """One custom op of the library. Regions with the same source share an entry.

    `device` is the C function that launches its kernels on a GPU, where it has one; `host_inputs` are the inputs whose
    contents that function reads, which must be in host memory."""

    name: str
    in_types: tuple[int, ...]
    out_types: tuple[int, ...]
    kernels: tuple[KernelInfo, ...] = ()
    device: str = ""
    host_inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Source:
    """Kernel source text with its entry points."""

    units: tuple[Unit, ...]
    entries: tuple[Entry, ...]
    include_dirs: tuple[Path, ...] = ()
    include_hash: str = ""
    domain: str = ""


@dataclass(frozen=True)
class Library:
    """A compiled shared object in the cache."""

    path: Path
    sha256: str
    key: str
    targets: tuple[str, ...]
    compiler: str
    seconds: float = 0.0
    cached: bool = False


@dataclass(frozen=True)
class Artifact:
    """A folder with model.onnx, the library and manifest.json: all that a deployment needs."""

    directory: Path
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def model_path(self) -> Path:
        return self.directory / "model.onnx"

    @property
    def library_path(self) -> Path | None:
        name = self.manifest.get("library")
        return self.directory / str(name["file"]) if name else None
