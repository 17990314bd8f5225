"""The C code generator as partitioning and the pipeline see it (`ir/backend.py`).

Input: facts about a model; then the regions of a plan. Output: claims with reasons; units of C with one entry per
distinct region. Invariant: regions with the same code share one entry, kernels with the same code are emitted once
per unit, and no string of the model reaches the text.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import onnx_ir as ir

from smelt.base.target import Target
from smelt.ir.backend import Capabilities, Generated, Packed
from smelt.ir.direct import mark_direct
from smelt.ir.kernel import Unsupported
from smelt.ir.kernel import expr as E
from smelt.ir.records import Claim, Entry, Fallback, Region, Source, Unit
from smelt.ops import LONG, Facts
from smelt.ops.user import GPU_ALONE, runs_on_gpu_alone

from . import extern
from .emit import Kernel
from .headers import includes
from .launch import links_of
from .layout.formats import format_named, packed_array
from .library import INCLUDE, library_units, likely_source
from .region import BACKEND, CRegionCode, write_region
from .shared_bodies import Body, share_bodies
from .structure import structure

UNIT_LINES = 1400
T = TypeVar("T")
_HEADERS = "#include <smelt/threads/loop.h>\n#include <smelt/vec/vec.h>\n#include <smelt/math/math.h>\n"


class CBackend:
    """Claims what the op declarations can state, and writes it as C."""

    name: ClassVar[str] = BACKEND
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(LONG))

    def __init__(
        self, facts: Facts, carriers: Sequence[ir.Value] = (), prefix: str = "", *, beside_gpu: bool = False
    ) -> None:
        """`prefix` begins the names of entries and units, where another backend has this one's code beside its own;
        `beside_gpu`: that one has code for a GPU."""
        self.beside_gpu = beside_gpu
        self.facts = facts
        self.carriers = carriers
        self.prefix = prefix
        # Identical regions are written once, those of earlier rounds too.
        self._written: dict[str, tuple[CRegionCode, tuple[ir.Value, ...]]] = {}

    @classmethod
    def open(cls, facts: Facts, carriers: Sequence[ir.Value]) -> CBackend:
        return cls(facts, carriers)

    @staticmethod
    def likely(nodes: Iterable[ir.Node]) -> Source:
        return likely_source(nodes)

    @staticmethod
    def pack(plain: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
        return packed_array(plain, layout)

    def claims(self, node: ir.Node) -> Claim:
        reason = self.facts.unsupported.get(node)
        if reason is not None:
            return Claim(False, reason)
        if runs_on_gpu_alone(node) and not self.beside_gpu:
            return Claim(False, GPU_ALONE)
        for value in node.outputs:
            if value.name and value not in self.facts.by_value:
                return Claim(False, f"the type or rank of an output is unknown or has no kernel ({_type_text(value)})")
        return Claim(True)

    def cost(self, region: Region) -> Claim:
        """Partitioning's own cost rules decide; this generator has nothing to add."""
        del region
        return Claim(True)

    def exact(self, region: Region) -> bool:
        """3x3 convolutions without Winograd's transform."""
        return mark_direct(region.nodes)

    def generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        try:
            return self._generate(regions, targets)
        finally:
            E.reset()

    def _generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        codes: list[CRegionCode] = []
        kept: list[Region] = []
        fallbacks: list[Fallback] = []
        for region in regions:
            key, border = structure(region, self.facts)
            if self.facts.general is not None:
                key += structure(region, self.facts.general)[0]
            try:
                if key not in self._written:
                    self._written[key] = write_region(region, self.facts, self.carriers), border
                codes.append(_transplant(*self._written[key], border, region))
                kept.append(region)
            except Unsupported as unsupported:
                fallbacks += [Fallback(node, str(unsupported)) for node in region.nodes]
        names: dict[str, str] = {}
        for code in codes:
            names.setdefault(code.digest, f"{self.prefix}r{len(names)}")
        source = _source(codes, names, self.facts, targets, self.prefix)
        entry_of = tuple(names[c.digest] for c in codes)
        return Generated(source, tuple(kept), entry_of, tuple(codes), tuple(fallbacks))


def _type_text(value: ir.Value) -> str:
    return value.dtype.name.lower() if value.dtype is not None else "no type"


def _transplant(
    code: CRegionCode, border: Sequence[ir.Value], new_border: Sequence[ir.Value], region: Region
) -> CRegionCode:
    """The code of a region for an identical one: the same text over other values."""
    moved = dict(zip(border, new_border, strict=True))
    inputs = tuple(
        replace(v, source=moved[v.source]) if isinstance(v, Packed) else moved.get(v, v) for v in code.inputs
    )
    return replace(code, inputs=inputs, outputs=region.outputs)


def _source(
    codes: Sequence[CRegionCode], names: dict[str, str], facts: Facts, targets: Sequence[Target], prefix: str
) -> Source:
    distinct = list({c.digest: c for c in codes}.values())
    entries = tuple(_entry(names[c.digest], c, facts) for c in distinct)
    kernels = [k for c in distinct for k in (*c.kernels, *(c.general.kernels if c.general is not None else ()))]
    functions = extern.units(kernels)
    library = library_units(unit for kernel in kernels for unit in links_of(kernel))
    own = _kernel_units(distinct, names, min(targets, key=lambda t: t.index).name)
    units = [*library, *functions, *(replace(unit, name=f"{prefix}{unit.name}") for unit in own)]
    return Source(tuple(units), entries, (INCLUDE,))


def _entry(name: str, code: CRegionCode, facts: Facts) -> Entry:
    inputs = tuple(
        int(LONG[format_named(v.layout).dtype if isinstance(v, Packed) else facts.by_value[v].dtype])
        for v in code.inputs
    )
    outputs = tuple(int(LONG[facts.by_value[v].dtype]) for v in code.outputs)
    return Entry(name, inputs, outputs, code.info)


def _kernel_units(codes: Sequence[CRegionCode], names: dict[str, str], lowest: str) -> list[Unit]:
    """Each kernel once, in files of moderate size that compile in parallel; then the functions that launch them."""
    kernels = {k.name: k for c in codes for k in c.kernels if k.extern is None}
    units = _units_of_kernels("kernels", kernels)
    regions = [_Launcher(names[c.digest], c.text.replace("@LOWEST@", lowest), c.kernels) for c in codes]
    general = [names[c.digest] for c in codes if c.general is not None]
    head = _launch_head(k for c in codes for k in c.kernels)
    head += "".join(f"int32_t SMELT_AT({n}_general, {lowest})(smelt_env *);\n" for n in general)
    # What launches kernels runs once a call: it need not be fast.
    units += [replace(unit, optimize=0) for unit in _launch_units("regions", head, regions)]
    return units + _general_units(codes, names, kernels)


def _general_units(codes: Sequence[CRegionCode], names: dict[str, str], known: Container[str]) -> list[Unit]:
    """The same for what runs where hints are wrong; kernels that are there already serve it too."""
    every = [k for c in codes if c.general is not None for k in c.general.kernels]
    own = {k.name: k for k in every if k.extern is None and k.name not in known}
    units = _units_of_kernels("general_kernels", own, rare=True)
    regions = [_Launcher(names[c.digest], g.text, g.kernels) for c in codes if (g := c.general) is not None]
    return units + [replace(unit, rare=True) for unit in _launch_units("general", _launch_head(every), regions)]


@dataclass(frozen=True)
class _Launcher:
    """The function of an entry that launches its kernels; `template` has its name as @NAME@."""

    entry: str
    template: str
    kernels: tuple[Kernel, ...]

    @property
    def text(self) -> str:
        return self.template.replace("@NAME@", self.entry)


def _launch_units(name: str, head: str, regions: Sequence[_Launcher]) -> list[Unit]:
    units: list[Unit] = []
    for part in _cut(regions, lambda one: one.text):
        launches = tuple(dict.fromkeys(kernel.name for one in part for kernel in one.kernels))
        text = f"{head}\n" + "\n".join(one.text for one in part)
        units.append(Unit(f"{name}{len(units)}", text, entries=tuple(one.entry for one in part), launches=launches))
    return units


def _units_of_kernels(name: str, kernels: Mapping[str, Kernel], *, rare: bool = False) -> list[Unit]:
    headers = {kernel.name: kernel.headers for kernel in kernels.values()}
    alike = {kernel.name for kernel in kernels.values() if kernel.window is not None}
    bodies = share_bodies({kernel.name: kernel.text for kernel in kernels.values()}, alike)
    parts = _cut(bodies, lambda body: body.text)
    return [_kernel_unit(f"{name}{n}", part, headers, rare=rare) for n, part in enumerate(parts)]


def _launch_head(kernels: Iterable[Kernel]) -> str:
    """What a function that launches kernels needs to know of them."""
    every = list(kernels)
    names = list(dict.fromkeys(k.name for k in every if k.extern is None))
    declared = "".join(f"void SMELT_NAME({name})(void *p, int64_t task);\n" for name in names)
    declared += "".join(f"#ifndef SMELT_CUT_{name}\n#define SMELT_CUT_{name} {{0}}\n#endif\n" for name in names)
    declared += extern.declarations(every)
    return f"#include <smelt/attention/loop_b2b_gemm.h>\n#include <smelt/conv/tile_fusion.h>\n\n{declared}"


def _cut(pieces: Sequence[T], text_of: Callable[[T], str]) -> list[list[T]]:
    """Pieces in order, in parts of about UNIT_LINES lines."""
    parts: list[list[T]] = []
    room = 0
    for piece in pieces:
        if room <= 0:
            parts.append([])
            room = UNIT_LINES
        parts[-1].append(piece)
        room -= text_of(piece).count("\n")
    return parts


def _kernel_unit(name: str, bodies: Sequence[Body], headers: Mapping[str, frozenset[str]], *, rare: bool) -> Unit:
    """`headers` are what the kernels' texts need, by kernel."""
    needed = {header for body in bodies for kernel in body.kernels for header in headers[kernel]}
    text = "\n".join(body.text for body in bodies)
    kernels = tuple(kernel for body in bodies for kernel in body.kernels)
    return Unit(name, f"{_HEADERS}{includes(needed)}\n{text}", rare=rare, kernels=kernels)
