"""The backends of one compilation, as one: each generates the regions that it claimed, all go into one library.

Input: facts about a model and backends in order of preference; then the regions of a plan. Output: claims; one
`Generated`. Invariant: a node belongs to the first backend that claims it. Regions keep the plan's order. A unit or
entry that two backends call by the same name is an error, never overwritten.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx_ir as ir

from smelt.base.errors import CodegenError
from smelt.base.target import Target
from smelt.ir.backend import Backend, BackendKind, Generated, RegionCode
from smelt.ir.kernel import Ix, Sym, of
from smelt.ir.kernel.index import Atom, substitute
from smelt.ir.records import Region, Source, Unit
from smelt.ops import Facts

from .glue import announced

Known = dict[ir.Value, tuple[int | str, ...]]


class Backends:
    """Those of one compilation, the preferred one first."""

    def __init__(self, kinds: Sequence[BackendKind], facts: Facts, carriers: Sequence[ir.Value] = ()) -> None:
        self.facts = facts
        self.all: tuple[Backend, ...] = tuple(kind.open(facts, carriers) for kind in kinds)

    def of(self, region: Region) -> Backend:
        return next((one for one in self.all if one.name == region.backend), self.all[0])

    def exact(self, region: Region) -> bool:
        return self.of(region).exact(region)

    def generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        """One source for all regions, in a domain that is named after what the kernels are."""
        made = self._generate(regions, targets)
        while (wider := _with_shared(made)) is not None:
            again = self._generate(wider, targets)
            made = replace(again, fallbacks=(*made.fallbacks, *again.fallbacks))
        dims, contents = self._known(made.regions, made.codes)
        return replace(made, source=announced(made.source, targets), dims=dims, contents=contents)

    def _generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        shares = [(one, [region for region in regions if self.of(region) is one]) for one in self.all]
        return _joined([one.generate(share, targets) for one, share in shares if share], regions)

    def _known(self, regions: Sequence[Region], codes: Sequence[RegionCode]) -> tuple[Known, Known]:
        """Sizes and contents of what regions read, in the same names."""
        read = [value for region in regions for value in region.inputs]
        read += [value for code in codes for value in code.inputs if isinstance(value, ir.Value)]
        facts = {value: self.facts.by_value[value] for value in read if value in self.facts.by_value}
        spelled: dict[Atom, Ix] = {}
        dims = {value: _formulas(fact.shape, spelled) for value, fact in facts.items()}
        told = {value: fact.contents for value, fact in facts.items() if fact.contents is not None}
        return dims, {value: _formulas(contents, spelled) for value, contents in told.items()}


def _joined(parts: Sequence[Generated], regions: Sequence[Region]) -> Generated:
    """What several backends made, in the plan's order of regions."""
    order = {region.index: place for place, region in enumerate(regions)}
    rows = [row for part in parts for row in zip(part.regions, part.entry_of, part.codes, strict=True)]
    rows.sort(key=lambda row: order[row[0].index])
    units = _shared(unit for part in parts for unit in part.source.units)
    entries = tuple(entry for part in parts for entry in part.source.entries)
    _check_names([unit.name for unit in units], "unit")
    _check_names([entry.name for entry in entries], "entry")
    folders = tuple(dict.fromkeys(folder for part in parts for folder in part.source.include_dirs))
    return Generated(
        Source(units, entries, folders),
        tuple(region for region, _, _ in rows),
        tuple(entry for _, entry, _ in rows),
        tuple(code for _, _, code in rows),
        tuple(fallback for part in parts for fallback in part.fallbacks),
    )


def _shared(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """Functions in C are the same units for every backend, whichever of them each calls."""
    found: dict[Unit, dict[str, None]] = {}
    for unit in units:
        found.setdefault(replace(unit, kernels=()), {}).update(dict.fromkeys(unit.kernels))
    return tuple(replace(unit, kernels=tuple(kernels)) for unit, kernels in found.items())


def _check_names(names: Iterable[str], what: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise CodegenError("SM-CODEGEN-001", f"two backends have a {what} {twice[0]!r}")


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
