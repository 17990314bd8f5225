"""A region's Triton kernels on arrays: what the host code does, without a GPU and without a C compiler.

Input: a model, inputs. Output: arrays. Invariant: sizes are evaluated by the numpy interpreter of the tensor language;
each distinct configuration of a kernel is run, and all must agree with the first within rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from executor import launch, load_module

from smelt.base.dtype import BY_NAME
from smelt.codegen.triton.backend import TritonBackend
from smelt.codegen.triton.kernel import Config, TritonKernel
from smelt.codegen.triton.region import DeviceWriter
from smelt.ir.kernel import Buffer, Sym
from smelt.ir.kernel.interpret import Interpreter
from smelt.ir.load import load_model
from smelt.ir.records import Plan, Region
from smelt.ops import Facts, analyze
from smelt.partition import capture

Array = np.ndarray[Any, Any]


@dataclass
class Captured:
    model: ir.Model
    facts: Facts
    plan: Plan


def captured(model: Any, *, force: bool = True) -> Captured:
    loaded = load_model(model)
    facts = analyze(loaded)
    backend = TritonBackend(facts, list(loaded.graph.inputs))
    return Captured(loaded, facts, capture(loaded, [backend], force=force))


class Simulated:
    """One region, and what its kernels were."""

    def __init__(self, region: Region, facts: Facts, carriers: Any = ()) -> None:
        self.region, self.facts = region, facts
        self.writer = DeviceWriter(region, facts, carriers)
        self.code = self.writer.device_code()
        self.kernels = self.code.kernels

    def run(self, arrays: Mapping[ir.Value, Array], pick: int = 0) -> dict[ir.Value, Array]:
        """`pick` chooses among each kernel's distinct configurations that fit the call."""
        read = {value: arrays[value] for value in self.code.inputs if isinstance(value, ir.Value)}
        numbers = Interpreter(self._named(read), self._symbols(read))
        memory: dict[int, Array] = {}
        for buffer, value in self._inputs():
            memory[buffer] = np.ascontiguousarray(read[value]).reshape(-1)
        for kernel in self.kernels:
            for buffer in kernel.buffers:
                if buffer.uid not in memory:
                    memory[buffer.uid] = _poisoned(buffer, numbers.number(buffer.elements))
            self._launch(kernel, memory, numbers, pick)
        return {value: self._output(place, memory, numbers) for place, value in enumerate(self.region.outputs)}

    def _inputs(self) -> Iterator[tuple[int, ir.Value]]:
        for uid, value in self.writer.by_buffer.items():
            if isinstance(value, ir.Value) and value in self.writer.inputs:
                yield uid, value

    def _named(self, read: Mapping[ir.Value, Array]) -> dict[str, Array]:
        return {self.facts.name(value): array for value, array in read.items()}

    def _symbols(self, read: Mapping[ir.Value, Array]) -> dict[str, int]:
        found: dict[str, int] = {}
        for value, array in read.items():
            for size, number in zip(self.facts.by_value[value].shape, array.shape, strict=True):
                atoms = list(size.atoms)
                if len(atoms) == 1 and isinstance(atoms[0], Sym) and size.key == f"1*{atoms[0].key}":
                    found[atoms[0].name] = number
        return found

    def _launch(self, kernel: TritonKernel, memory: dict[int, Array], numbers: Interpreter, pick: int) -> None:
        if kernel.grid is not None:
            self._launch_users(kernel, kernel.grid, memory, numbers)
            return
        rows, columns = numbers.number(kernel.rows), numbers.number(kernel.columns)
        if rows <= 0:
            return
        sizes = [numbers.number(size) for size in kernel.sizes]
        config = _chosen(kernel, columns, pick)
        held = [memory[b.uid] for b in kernel.buffers]
        own = [(array.ctypes.data, array.nbytes) for array in held]
        written = [own[place] for place, b in enumerate(kernel.buffers) if b.uid in (kernel.written or ())]
        function = getattr(load_module(kernel.text, kernel.name), config.function)
        grid = (-(-rows // config.rows), 1, 1)
        values = [address for address, _ in own] + sizes
        launch(function, kernel.signature, values, dict(config.constants), grid, own, written)

    def _launch_users(self, kernel: TritonKernel, grid: Any, memory: dict[int, Array], numbers: Interpreter) -> None:
        held = [memory[b.uid] for b in kernel.buffers]
        own = [(array.ctypes.data, array.nbytes) for array in held]
        written = [own[place] for place, b in enumerate(kernel.buffers) if b.uid in (kernel.written or ())]
        values: list[float] = []
        for one in kernel.arguments:
            number = one.number if one.value is None else numbers.number(one.value)
            assert number is not None
            values.append(number + (own[one.place][0] if one.place >= 0 else 0))
        config = kernel.configs[-1]
        function = getattr(load_module(kernel.text, kernel.name), config.function)
        x, y, z = (numbers.number(size) for size in grid)
        launch(function, kernel.signature, values, dict(config.constants), (x, y, z), own, written)

    def _output(self, place: int, memory: dict[int, Array], numbers: Interpreter) -> Array:
        tensor, buffer = self.writer.outputs[place]
        shape = tuple(numbers.number(s) for s in buffer.shape)
        found = memory.get(buffer.uid)
        if found is None:
            assert 0 in shape, f"output {place} was not written"
            return np.zeros(shape, BY_NAME[buffer.dtype].numpy)
        del tensor
        return found.reshape(shape)


def _chosen(kernel: TritonKernel, columns: int, pick: int) -> Config:
    """Distinct ones that hold: alignment makes no difference here."""
    fitting = [c for c in kernel.configs if not c.most_columns or columns <= c.most_columns]
    distinct = list({(c.function, c.constants): c for c in fitting}.values())
    return distinct[pick % len(distinct)]


def _poisoned(buffer: Buffer, elements: int) -> Array:
    """Memory in which an element that was not written shows."""
    dtype = BY_NAME[buffer.dtype].numpy
    assert dtype is not None
    made = np.empty(elements, dtype)
    made.view(np.uint8)[...] = 0xFF if dtype.kind != "b" else 1
    return made
