"""The C code generator as partitioning and the pipeline see it.

Input: facts about a model; then the regions of a plan. Output: claims with reasons; a `Source` with one entry per
distinct region. Invariant: regions with the same code share one entry, kernels with the same code are emitted once
per unit, and no string of the model reaches the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from smelt.base.target import Target
from smelt.ir.kernel import Ix, Refusal, Sym, of
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, substitute
from smelt.ir.kernel.int8_panels import packed_dtype
from smelt.ir.records import Claim, Entry, Left, Region, Source, Unit
from smelt.ops import LONG, Facts

from . import extern
from .emit import Kernel
from .library import INCLUDE, library_units
from .region import Packed, RegionCode, write_region
from .shared_bodies import share_bodies
from .structure import structure

UNIT_LINES = 1400
_HEADERS = "#include <smelt/loop.h>\n#include <smelt/vec.h>\n#include <smelt/math.h>\n"


@dataclass(frozen=True)
class Generated:
    """`regions` and `entry_of` run in step; a region that could not be written is in `left` with its reason. `dims` are
    the sizes of what regions read: numbers, or formulas over names that are equal where sizes are. `packed` keeps
    constants that were packed, for whoever needs them next."""

    source: Source
    regions: tuple[Region, ...]
    entry_of: tuple[str, ...]
    codes: tuple[RegionCode, ...]
    left: tuple[Left, ...]
    dims: Mapping[ir.Value, tuple[int | str, ...]] = field(default_factory=dict[ir.Value, "tuple[int | str, ...]"])
    packed: dict[tuple[ir.Value, str], ir.TensorProtocol] = field(
        default_factory=dict[tuple[ir.Value, str], ir.TensorProtocol], compare=False, repr=False
    )

    def without(self, indices: Container[int]) -> Generated:
        """The same code, of which some regions are not used."""
        kept = [place for place, region in enumerate(self.regions) if region.index not in indices]
        regions, codes, entry_of = (
            tuple(of[place] for place in kept) for of in (self.regions, self.codes, self.entry_of)
        )
        return replace(self, regions=regions, codes=codes, entry_of=entry_of)

    def regions_in(self, unit: str) -> list[Region]:
        """The regions of which some code is in the unit of that name."""
        text = next((u.text for u in self.source.units if u.name == unit), "")
        named = zip(self.regions, self.entry_of, self.codes, strict=True)
        return [
            region
            for region, entry, code in named
            if f"SMELT_NAME({entry})(smelt_env" in text or any(_defines(text, kernel) for kernel in code.kernels)
        ]


def _defines(text: str, kernel: Kernel) -> bool:
    return kernel.text in text or f"void SMELT_NAME({kernel.name})(void *p, int64_t task) {{" in text


class CBackend:
    """Claims what the op declarations can state, and writes it as C."""

    name = "c"

    def __init__(self, facts: Facts, carriers: Sequence[ir.Value] = ()) -> None:
        self.facts = facts
        self.carriers = carriers

    def claims(self, node: ir.Node) -> Claim:
        reason = self.facts.refusals.get(node)
        if reason is not None:
            return Claim(False, reason)
        for value in node.outputs:
            if value.name and value not in self.facts.by_value:
                return Claim(False, f"the type or rank of an output is unknown or has no kernel ({_type_text(value)})")
        return Claim(True)

    def worth(self, region: Region) -> Claim:
        """Partitioning's own cost rules decide; this generator has nothing to add."""
        del region
        return Claim(True)

    def generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        """One source for all regions. The domain is named after what the kernels are."""
        try:
            made = self._generate(regions, targets)
            while (wider := _with_shared(made)) is not None:
                again = self._generate(wider, targets)
                made = replace(again, left=(*made.left, *again.left))
            return made
        finally:
            E.reset()

    def _generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        codes: list[RegionCode] = []
        kept: list[Region] = []
        left: list[Left] = []
        twins: dict[str, tuple[RegionCode, tuple[ir.Value, ...]]] = {}
        for region in regions:
            key, border = structure(region, self.facts)
            if self.facts.general is not None:
                key += structure(region, self.facts.general)[0]
            try:
                if key not in twins:
                    twins[key] = write_region(region, self.facts, self.carriers), border
                codes.append(_transplant(*twins[key], border, region))
                kept.append(region)
            except Refusal as refusal:
                left += [Left(node, str(refusal)) for node in region.nodes]
        names: dict[str, str] = {}
        for code in codes:
            names.setdefault(code.digest, f"r{len(names)}")
        source = _source(codes, names, self.facts, targets)
        entry_of = tuple(names[c.digest] for c in codes)
        return Generated(source, tuple(kept), entry_of, tuple(codes), tuple(left), self._dims(kept, codes))

    def _dims(self, regions: Sequence[Region], codes: Sequence[RegionCode]) -> dict[ir.Value, tuple[int | str, ...]]:
        read = [value for region in regions for value in region.inputs]
        read += [value for code in codes for value in code.inputs if isinstance(value, ir.Value)]
        spelled: dict[Atom, Ix] = {}
        return {v: _formulas(self.facts.by_value[v].shape, spelled) for v in read if v in self.facts.by_value}


def _with_shared(made: Generated) -> list[Region] | None:
    """The regions with what others read from inside of them among their outputs; None where all of it is. What a region
    reads is told by its code: the contents of a small tensor of integers may follow from an earlier one."""
    home = {
        value: place for place, region in enumerate(made.regions) for node in region.nodes for value in node.outputs
    }
    shared: dict[int, dict[ir.Value, None]] = {}
    for reader, code in enumerate(made.codes):
        for value in (one for one in code.inputs if isinstance(one, ir.Value)):
            place = home.get(value, reader)
            if place != reader and value not in made.regions[place].outputs:
                shared.setdefault(place, {})[value] = None
    if not shared:
        return None
    return [replace(r, outputs=(*r.outputs, *shared.get(place, ()))) for place, r in enumerate(made.regions)]


def _formulas(shape: Sequence[Ix], spelled: dict[Atom, Ix]) -> tuple[int | str, ...]:
    """Numbers, and formulas that Python's parser reads: symbols are named after what a file calls them."""
    for symbol in (s for size in shape for s in size.syms if s not in spelled):
        spelled[symbol] = of(Sym(f"{re.sub('[^0-9a-zA-Z]', '_', symbol.name)}_{len(spelled)}"))
    return tuple(size.const if size.const is not None else repr(substitute(size, spelled)) for size in shape)


def _type_text(value: ir.Value) -> str:
    return value.dtype.name.lower() if value.dtype is not None else "no type"


def _transplant(
    code: RegionCode, border: Sequence[ir.Value], new_border: Sequence[ir.Value], region: Region
) -> RegionCode:
    """The code of a region for its twin: the same text over other values."""
    moved = dict(zip(border, new_border, strict=True))
    inputs = tuple(Packed(moved[v.source], v.layout) if isinstance(v, Packed) else moved.get(v, v) for v in code.inputs)
    return replace(code, inputs=inputs, outputs=region.outputs)


def _source(codes: Sequence[RegionCode], names: dict[str, str], facts: Facts, targets: Sequence[Target]) -> Source:
    distinct = list({c.digest: c for c in codes}.values())
    entries = tuple(_entry(names[c.digest], c, facts) for c in distinct)
    kernels = [k for c in distinct for k in (*c.kernels, *(c.general.kernels if c.general is not None else ()))]
    functions = extern.units(kernels)
    library = library_units([*(k.text for k in kernels), *(u.text for u in functions)])
    units = [*library, *functions, *_kernel_units(distinct, names, min(targets, key=lambda t: t.index).name)]
    digest = hashlib.sha256("\0".join(u.text for u in units).encode()).hexdigest()
    domain = f"smelt.{digest[:16]}"
    glue = Unit("glue", _glue(entries, domain, targets), per_level=False, optimize=1)
    return Source((*units, glue), entries, (INCLUDE,), "", domain)


def _entry(name: str, code: RegionCode, facts: Facts) -> Entry:
    inputs = tuple(
        int(LONG[packed_dtype(v.layout) if isinstance(v, Packed) else facts.by_value[v].dtype]) for v in code.inputs
    )
    outputs = tuple(int(LONG[facts.by_value[v].dtype]) for v in code.outputs)
    return Entry(name, inputs, outputs, code.info)


def _kernel_units(codes: Sequence[RegionCode], names: dict[str, str], lowest: str) -> list[Unit]:
    """Each kernel once, in files of moderate size that compile in parallel; then the functions that launch them."""
    kernels = {k.name: k.text for c in codes for k in c.kernels if k.extern is None}
    units = [Unit(f"kernels{n}", _unit_text(part)) for n, part in enumerate(_cut(share_bodies(kernels)))]
    regions = [c.text.replace("@NAME@", names[c.digest]).replace("@LOWEST@", lowest) for c in codes]
    general = [names[c.digest] for c in codes if c.general is not None]
    head = _launch_head(k for c in codes for k in c.kernels)
    head += "".join(f"int32_t SMELT_AT({n}_general, {lowest})(smelt_env *);\n" for n in general)
    # What launches kernels runs once a call: it need not be fast.
    units += [Unit(f"regions{n}", f"{head}\n" + "\n".join(part), optimize=0) for n, part in enumerate(_cut(regions))]
    return units + _general_units(codes, names, kernels)


def _general_units(codes: Sequence[RegionCode], names: dict[str, str], known: Mapping[str, str]) -> list[Unit]:
    """The same for what runs where hints are wrong; kernels that are there already serve it too."""
    every = [k for c in codes if c.general is not None for k in c.general.kernels]
    texts = share_bodies({k.name: k.text for k in every if k.extern is None and k.name not in known})
    units = [Unit(f"general_kernels{n}", _unit_text(part), rare=True) for n, part in enumerate(_cut(texts))]
    regions = [c.general.text.replace("@NAME@", names[c.digest]) for c in codes if c.general is not None]
    head = _launch_head(every)
    return units + [Unit(f"general{n}", f"{head}\n" + "\n".join(p), rare=True) for n, p in enumerate(_cut(regions))]


def _launch_head(kernels: Iterable[Kernel]) -> str:
    """What a function that launches kernels needs to know of them."""
    every = list(kernels)
    names = list(dict.fromkeys(k.name for k in every if k.extern is None))
    declared = "".join(f"void SMELT_NAME({name})(void *p, int64_t task);\n" for name in names)
    declared += "".join(f"#ifndef SMELT_CUT_{name}\n#define SMELT_CUT_{name} {{0}}\n#endif\n" for name in names)
    declared += extern.declarations(every)
    return f"#include <smelt/loop_chain.h>\n#include <smelt/bands.h>\n\n{declared}"


def _cut(texts: Sequence[str]) -> list[list[str]]:
    """Texts in order, in parts of about UNIT_LINES lines."""
    parts: list[list[str]] = []
    room = 0
    for text in texts:
        if room <= 0:
            parts.append([])
            room = UNIT_LINES
        parts[-1].append(text)
        room -= text.count("\n")
    return parts


def _unit_text(parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    extra = "#include <smelt/loop_chain.h>\n" if "SMELT_PRODUCT" in body or "SMELT_PACK(" in body else ""
    extra += "#include <smelt/chain_blocks.h>\n" if "smelt_chain_seen(" in body else ""
    extra += "#include <smelt/window.h>\n" if "smelt_window w" in body else ""
    extra += "#include <smelt/reduce_arg.h>\n" if "smelt_arg" in body or "smelt_harg" in body else ""
    extra += "#include <smelt/transpose.h>\n" if "smelt_transpose(" in body else ""
    return f"{_HEADERS}{extra}\n{body}"


def _glue(entries: Sequence[Entry], domain: str, targets: Sequence[Target]) -> str:
    """The unit that announces every region to ONNX Runtime."""
    lines = ["#include <smelt/kernel.h>", f'#define SMELT_DOMAIN "{domain}"']
    levels = {t.index: t.name for t in targets}
    for entry in entries:
        lines += [f"int32_t SMELT_AT({entry.name}, {name})(smelt_env *);" for name in levels.values()]
        lines.append(f"static const int32_t {entry.name}_in[] = {{{', '.join(map(str, entry.in_types)) or '0'}}};")
        lines.append(f"static const int32_t {entry.name}_out[] = {{{', '.join(map(str, entry.out_types)) or '0'}}};")
    lines.append("static const smelt_entry smelt_entries[] = {")
    for entry in entries:
        table = ", ".join(f"[{level}] = SMELT_AT({entry.name}, {name})" for level, name in levels.items())
        lines.append(
            f'  {{"{entry.name}", {len(entry.in_types)}, {len(entry.out_types)}, {entry.name}_in, {entry.name}_out, '
            f"{{{table}}}, NULL}},"
        )
    lines += ["};", "#include <smelt/ort_glue.h>", ""]
    return "\n".join(lines)


def with_inputs(region: Region, code: RegionCode, packed: Mapping[Packed, ir.Value]) -> Region:
    """The region as the custom op sees it: only what the code reads, packed constants in place of plain ones."""
    return replace(region, inputs=tuple(packed[v] if isinstance(v, Packed) else v for v in code.inputs))
