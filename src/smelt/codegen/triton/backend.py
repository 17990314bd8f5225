"""The Triton code generator as partitioning and the pipeline see it (`ir/backend.py`).

Input: facts about a model; then the regions of a plan. Output: claims with reasons; units of C with, for each region, a
CPU kernel from the C generator and, beside it, a function that launches Triton kernels. Invariant: both read the same
inputs in the same order and have one name, so that one library runs on either; a region whose kernels cannot be made
for every target falls back with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnx_ir as ir

from smelt.base.config import Config as Knobs
from smelt.base.target import Target
from smelt.codegen.c.backend import CBackend
from smelt.codegen.c.layout.formats import format_named
from smelt.ir.backend import Capabilities, Generated, Packed, RegionCode
from smelt.ir.kernel import Function, Unsupported
from smelt.ir.kernel import expr as E
from smelt.ir.records import Claim, Entry, Fallback, KernelInfo, Region, Source, Unit
from smelt.ops import LONG, Facts

from .binaries import Binaries, Binary, Job, require_triton
from .claims import claim
from .embed import kernel_unit
from .kernel import TARGETS, Config, GpuTarget, TritonKernel
from .region import DeviceCode, write_device
from .users import check_users

INCLUDE: Final = Path(__file__).parent / "include"
_DRIVER: Final = Unit("triton_driver", "#include <smelt/device/launch_unit.h>\n", per_level=False, optimize=1)
_HEAD: Final = "#include <smelt/threads/loop.h>\n#include <smelt/device/launch.h>\n"


@dataclass(frozen=True)
class TritonRegionCode(RegionCode):
    """The CPU's code, and what a GPU runs. `files` are kernels as Python, TTIR and PTX or GCN, by name."""

    cpu: RegionCode
    device: DeviceCode
    files: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def texts(self, entry: str) -> Mapping[str, str]:
        return {**self.cpu.texts(entry), **self.files}

    @property
    def launched(self) -> tuple[Function, ...]:
        return self.device.launched

    def is_in(self, unit: Unit, entry: str) -> bool:
        return any(k.name in unit.kernels for k in self.device.kernels) or self.cpu.is_in(unit, entry)


class TritonBackend:
    """Claims what becomes Triton kernels; products and convolutions stay with the GPU's own provider."""

    name: ClassVar[str] = "triton"
    targets: ClassVar[tuple[GpuTarget, ...]] = TARGETS
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(LONG), frozenset(("cpu", "cuda", "rocm")))

    def __init__(self, facts: Facts, carriers: Sequence[ir.Value] = ()) -> None:
        self.facts, self.carriers = facts, carriers
        self.cpu = CBackend(facts, carriers, "triton_", beside_gpu=True)
        self.binaries = Binaries(Knobs.from_env())

    @classmethod
    def open(cls, facts: Facts, carriers: Sequence[ir.Value]) -> TritonBackend:
        require_triton()
        return cls(facts, carriers)

    @staticmethod
    def likely(nodes: Iterable[ir.Node]) -> Source:
        return CBackend.likely(nodes)

    @staticmethod
    def pack(plain: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
        return CBackend.pack(plain, layout)

    def claims(self, node: ir.Node) -> Claim:
        own = self.cpu.claims(node)
        return claim(node, self.facts) if own.ok else own

    def cost(self, region: Region) -> Claim:
        return self.cpu.cost(region)

    def exact(self, region: Region) -> bool:
        return self.cpu.exact(region)

    def generate(self, regions: Sequence[Region], targets: Sequence[Target]) -> Generated:
        made = self.cpu.generate(regions, targets)
        device, fallbacks = self._devices(made)
        if len(device) < len(made.regions):
            kept = self.cpu.generate([region for region in made.regions if region.index in device], targets)
            made = replace(kept, fallbacks=(*made.fallbacks, *kept.fallbacks))
        return self._joined(made, device, fallbacks)

    # kernels of a GPU

    def _devices(self, given: Generated) -> tuple[dict[int, DeviceCode], list[Fallback]]:
        """Code by region, and why the rest has none."""
        made: dict[int, DeviceCode] = {}
        fallbacks: list[Fallback] = []
        for region, code in zip(given.regions, given.codes, strict=True):
            try:
                made[region.index] = write_device(region, self.facts, self.carriers, code.inputs)
            except Unsupported as unsupported:
                fallbacks += [Fallback(node, str(unsupported)) for node in region.nodes]
            finally:
                E.reset()
        failed = self._failures(made)
        for region in given.regions:
            if region.index in failed:
                del made[region.index]
                fallbacks += [Fallback(node, failed[region.index]) for node in region.nodes]
        return made, fallbacks

    def _failures(self, made: Mapping[int, DeviceCode]) -> dict[int, str]:
        """Compiles everything that is missing at once; regions with a kernel that a target refuses, and why."""
        kernels = {kernel.name: kernel for code in made.values() for kernel in code.kernels}
        jobs = [job for kernel in kernels.values() for job in self._jobs(kernel)]
        compiled = self.binaries.make(jobs)
        check_users(compiled)
        bad = {job.kernel.name: f"{job.kernel.name} for {job.target.name}: {found}"
               for job, found in compiled.items() if isinstance(found, str) and job.kernel.user is None}  # fmt: skip
        wrong = {index: [bad[k.name] for k in code.kernels if k.name in bad] for index, code in made.items()}
        return {index: reasons[0] for index, reasons in wrong.items() if reasons}

    def _jobs(self, kernel: TritonKernel) -> list[Job]:
        return [Job(kernel, config, target) for config in kernel.configs for target in self.targets]

    def _unit(self, kernel: TritonKernel) -> Unit:
        found = self.binaries.make(self._jobs(kernel))
        made: dict[Config, list[Binary]] = {}
        for job, binary in found.items():
            if isinstance(binary, Binary):  # users' kernels may ask for more than some targets have
                made.setdefault(job.config, []).append(binary)
        return kernel_unit(kernel, made)

    def _files(self, code: DeviceCode) -> dict[str, str]:
        """What `--dump` shows of the kernels, for the first of the targets."""
        files: dict[str, str] = {}
        for kernel in code.kernels:
            files[f"{kernel.name}.py"] = kernel.text
            for place, config in enumerate(kernel.configs):
                job = Job(kernel, config, self.targets[0])
                found = self.binaries.make([job])[job]
                if isinstance(found, Binary):
                    files[f"{kernel.name}.{place}.{job.target.name}.ttir"] = self.binaries.ttir(job)
                    files[f"{kernel.name}.{place}.{job.target.name}.{job.target.language}"] = found.text
        return files

    # one source

    def _joined(self, made: Generated, device: Mapping[int, DeviceCode], fallbacks: Sequence[Fallback]) -> Generated:
        by_entry: dict[str, DeviceCode] = {}
        codes: list[RegionCode] = []
        for region, entry, code in zip(made.regions, made.entry_of, made.codes, strict=True):
            own = by_entry.setdefault(entry, device[region.index])
            codes.append(_moved(code, own, device[region.index], self._files(own)))
        kernels = {k.name: k for code in by_entry.values() for k in code.kernels}
        own = (_DRIVER, *(self._unit(kernel) for kernel in kernels.values()), _launches(by_entry, kernels))
        entries = tuple(_entry(entry, by_entry[entry.name], self.facts) for entry in made.source.entries)
        source = Source((*made.source.units, *own), entries, (*made.source.include_dirs, INCLUDE))
        return Generated(source, made.regions, made.entry_of, tuple(codes), (*made.fallbacks, *fallbacks))


class CudaBackend(TritonBackend):
    """For NVIDIA's GPUs alone."""

    name: ClassVar[str] = "triton-cuda"
    targets: ClassVar[tuple[GpuTarget, ...]] = tuple(target for target in TARGETS if target.kind == "cuda")
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(LONG), frozenset(("cpu", "cuda")))


class RocmBackend(TritonBackend):
    """For AMD's GPUs alone."""

    name: ClassVar[str] = "triton-rocm"
    targets: ClassVar[tuple[GpuTarget, ...]] = tuple(target for target in TARGETS if target.kind == "hip")
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(LONG), frozenset(("cpu", "rocm")))


def _moved(code: RegionCode, own: DeviceCode, region: DeviceCode, files: Mapping[str, str]) -> TritonRegionCode:
    """Identical regions share an entry; each keeps its own values, in the same order."""
    assert len(own.inputs) == len(region.inputs) and own.text == region.text
    return TritonRegionCode(region.inputs, code.outputs, (*code.info, *region.info), code, region, files)


def _launches(by_entry: Mapping[str, DeviceCode], kernels: Iterable[str]) -> Unit:
    declared = "".join(f"extern const smelt_device_kernel {name};\n" for name in kernels)
    bodies = "\n".join(code.text.replace("@NAME@", entry) for entry, code in by_entry.items())
    text = f"{_HEAD}{declared}\n{bodies}"
    return Unit("triton_launches", text, per_level=False, optimize=0, entries=tuple(by_entry))


def _entry(entry: Entry, code: DeviceCode, facts: Facts) -> Entry:
    dtypes = [format_named(v.layout).dtype if isinstance(v, Packed) else facts.by_value[v].dtype for v in code.inputs]
    inputs = tuple(int(LONG[dtype]) for dtype in dtypes)
    info: tuple[KernelInfo, ...] = (*entry.kernels, *code.info)
    return replace(entry, in_types=inputs, kernels=info, device=f"smelt_device_{entry.name}", host_inputs=code.host)
