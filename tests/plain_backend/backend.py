"""The plain code generator as partitioning and the pipeline see it (`smelt/ir/backend.py`).

Input: facts about a model; then regions. Output: claims with reasons; one unit of C and one entry per region.
Invariant: what cannot be written falls back with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from smelt.base.dtype import BY_NAME, KERNEL_DTYPES
from smelt.base.target import Target
from smelt.codegen import function_units
from smelt.ir.backend import Capabilities, Generated
from smelt.ir.kernel import Unsupported
from smelt.ir.kernel import expr as E
from smelt.ir.records import Claim, Entry, Fallback, Region, Source, Unit
from smelt.ops import Facts

from .region import PlainCode, write_region

HERE = Path(__file__).parent


class PlainBackend:
    name: ClassVar[str] = "plain"
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(d.name for d in KERNEL_DTYPES))

    def __init__(self, facts: Facts, carriers: Sequence[ir.Value] = ()) -> None:
        self.facts = facts.general or facts  # what holds in every run, whatever the file declares
        self.carriers = carriers

    @classmethod
    def open(cls, facts: Facts, carriers: Sequence[ir.Value]) -> PlainBackend:
        return cls(facts, carriers)

    @staticmethod
    def likely(nodes: Iterable[ir.Node]) -> Source:
        del nodes
        return Source((), ())

    @staticmethod
    def pack(plain: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
        raise NotImplementedError(f"the plain backend packs nothing, asked for {layout}")

    def claims(self, node: ir.Node) -> Claim:
        if node in self.facts.unsupported:
            return Claim(False, self.facts.unsupported[node])
        unknown = [v for v in node.outputs if v.name and v not in self.facts.by_value]
        return Claim(False, "the type or rank of an output is unknown") if unknown else Claim(True)

    def cost(self, region: Region) -> Claim:
        del region
        return Claim(True)

    def exact(self, region: Region) -> bool:
        del region
        return False

    def generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        del targets  # the same text for each
        codes: list[PlainCode] = []
        kept: list[Region] = []
        fallbacks: list[Fallback] = []
        for region in regions:
            try:
                codes.append(write_region(region, self.facts, self.carriers, f"plain{region.index}"))
                kept.append(region)
            except Unsupported as unsupported:
                fallbacks += [Fallback(node, str(unsupported)) for node in region.nodes]
        E.reset()
        units = [Unit(code.name, code.text, optimize=1, entries=(code.name,)) for code in codes]
        units += function_units([function for code in codes for function in code.functions])
        source = Source(tuple(units), tuple(self._entry(code) for code in codes), (HERE,))
        return Generated(source, tuple(kept), tuple(code.name for code in codes), tuple(codes), tuple(fallbacks))

    def _entry(self, code: PlainCode) -> Entry:
        read, made = (
            tuple(BY_NAME[self.facts.by_value[v].dtype].onnx for v in values) for values in (code.values, code.outputs)
        )
        return Entry(code.name, read, made, code.info)
