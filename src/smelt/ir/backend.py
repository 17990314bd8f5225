"""The contract between the pipeline and a code generator: the `Backend` protocol, and the records that it hands over.

Input: nothing. Output: frozen dataclasses and a protocol. Invariant: nothing here knows a backend. A backend is opened
for the facts about one model (`codegen/registry.py` has them by name); then it is asked, in this order:

    likely    units that may be compiled while the model is still looked at
    claims    node by node: yes, or no with the reason
    cost      region by region: whether it pays
    generate  regions of a plan -> `Generated`: units of C, entry points, what each region reads and writes
    pack      a constant, or a weight of PyTorch's -> the form that the code reads
    exact     a region failed verification: whether there is slower code for it that rounds less

The units are built by `toolchain/`, which every backend shares; so are the entry points' announcement to ONNX Runtime
(`codegen/glue.py`) and verification (`check/`), which knows a region only by its entry and its nodes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import onnx_ir as ir

from smelt.base.dtype import BY_ONNX
from smelt.base.target import Target
from smelt.ir.kernel import Function, Ix
from smelt.ir.records import Claim, Fallback, KernelInfo, Region, Source, Unit


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do at all, whatever the model: `types` of tensors by their short names (`f32`), `devices` that
    its code runs on, and whether one compilation serves sizes that only a call tells."""

    types: frozenset[str]
    devices: frozenset[str] = frozenset(("cpu",))
    symbolic_sizes: bool = True

    def unsupported(self, node: ir.Node) -> str:
        """Why a node is beyond them; nothing where it is not."""
        for value in (v for v in (*node.inputs, *node.outputs) if v is not None and v.dtype is not None):
            dtype = BY_ONNX.get(int(value.dtype or 0))
            if dtype is not None and dtype.name not in self.types:
                return f"it has no kernels of {dtype.onnx_name}"
            if not self.symbolic_sizes and not all(isinstance(size, int) for size in value.shape or ()):
                return "it needs sizes that are known when it compiles"
        return ""


@dataclass(frozen=True)
class Packed:
    """A constant or weight in the form that a region's code reads; `layout` is what its backend calls that form."""

    source: ir.Value
    layout: str
    backend: str


@dataclass(frozen=True)
class RegionCode:
    """What everybody may know of a region's code: what it reads and writes, in the order of its entry, and its kernels.
    A backend adds the code itself in a class of its own."""

    inputs: tuple[ir.Value | Packed, ...]
    outputs: tuple[ir.Value, ...]
    info: tuple[KernelInfo, ...]

    def texts(self, entry: str) -> Mapping[str, str]:
        """What a dump shows of the code beside its units, by file name, given the name of the region's entry."""
        del entry
        return {}

    def is_in(self, unit: Unit, entry: str) -> bool:
        """Whether some of the code is in the unit, given the name of the region's entry."""
        return entry in unit.entries

    @property
    def launched(self) -> tuple[Function, ...]:
        """Functions whose author's own code runs on a GPU, where the backend launches it."""
        return ()

    @property
    def work(self) -> tuple[tuple[Ix, Ix], ...]:
        """Operations and bytes of each kernel, in step with `info`; nothing where the backend does not count them."""
        return ()


PackedTensors = dict[tuple[ir.Value, str], ir.TensorProtocol]  # by constant and layout


@dataclass(frozen=True)
class Generated:
    """`regions` and `entry_of` run in step; a region that could not be written is in `fallbacks` with its reason.
    `dims` are the sizes of what regions read: numbers, or formulas over names that are equal where sizes are.
    `contents` are those of small integer tensors that follow from sizes, spelled likewise. `packed` keeps constants
    that were packed, for whoever needs them next."""

    source: Source
    regions: tuple[Region, ...]
    entry_of: tuple[str, ...]
    codes: tuple[RegionCode, ...]
    fallbacks: tuple[Fallback, ...]
    dims: Mapping[ir.Value, tuple[int | str, ...]] = field(default_factory=dict[ir.Value, "tuple[int | str, ...]"])
    contents: Mapping[ir.Value, tuple[int | str, ...]] = field(default_factory=dict[ir.Value, "tuple[int | str, ...]"])
    packed: PackedTensors = field(default_factory=PackedTensors, compare=False, repr=False)

    def without(self, indices: Container[int]) -> Generated:
        """The same code, of which some regions are not used."""
        kept = [place for place, region in enumerate(self.regions) if region.index not in indices]
        regions, codes, entry_of = (
            tuple(of[place] for place in kept) for of in (self.regions, self.codes, self.entry_of)
        )
        return replace(self, regions=regions, codes=codes, entry_of=entry_of)

    def regions_in(self, unit: str) -> list[Region]:
        """The regions of which some code is in the unit of that name."""
        found = next((u for u in self.source.units if u.name == unit), Unit("", ""))
        named = zip(self.regions, self.entry_of, self.codes, strict=True)
        return [region for region, entry, code in named if code.is_in(found, entry)]


class Backend(Protocol):
    """A code generator that is open for one model."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def claims(self, node: ir.Node) -> Claim:
        """Whether it has code for the node. What is beyond its capabilities is refused for it."""
        ...

    def cost(self, region: Region) -> Claim:
        """Whether the region pays, where the rules that hold for all backends (`partition/cost.py`) say yes."""
        ...

    def generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        """Units and entries, without the unit that announces them; regions that cannot be written are in `fallbacks`.
        Names of units, entries and symbols are unlike those of other backends; functions in C are the same units for
        all (`codegen.function_units`)."""
        ...

    def exact(self, region: Region) -> bool:
        """The region's results were wrong. True where `generate` will now write code that rounds less."""
        ...


class BackendKind(Protocol):
    """A code generator before it has a model: what the registry holds. A class with these attributes will do."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self, facts: Any, carriers: Sequence[ir.Value]) -> Backend:
        """For the model that these `ops.Facts` are about. `carriers` are values that a region may read just for their
        shapes, the model's own inputs."""
        ...

    def likely(self, nodes: Iterable[ir.Node]) -> Source:
        """Units that these nodes will probably need, told before their types and sizes are known."""
        ...

    def pack(self, plain: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
        """A constant as `Packed` with this layout; never asked of a backend that makes none."""
        ...
