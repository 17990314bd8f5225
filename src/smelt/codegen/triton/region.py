"""A region as a C function that launches Triton kernels: learn the sizes, check them, allocate, launch in order.

Input: a region of the plan and the facts about its values. Output: `DeviceCode`. Invariant: sizes are learned, checked
and allocated by the same rules as for the CPU (`codegen/c/region.py`); contents that the host reads are of inputs that
no kernel reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from smelt.codegen.c.measure import moved_bytes
from smelt.codegen.c.names import constant
from smelt.codegen.c.region import RegionWriter
from smelt.codegen.c.tasks import LOOPS
from smelt.codegen.c.tile_fusion import Launches
from smelt.codegen.cluster import BackToBack, Cluster, Extern, Fill, Loops, RunningTotal, Schedule, Step
from smelt.codegen.loops import Nest
from smelt.codegen.loops import build as build_nest
from smelt.codegen.needs import operands_first
from smelt.codegen.schedule import schedule
from smelt.ir.backend import Packed
from smelt.ir.kernel import (
    Buffer,
    Builder,
    Contraction,
    Function,
    Ix,
    Stored,
    Sym,
    Tensor,
    Unsupported,
    ix,
    product,
    show,
)
from smelt.ir.kernel import expr as E
from smelt.ir.records import KernelInfo, Region
from smelt.ops import Facts

from .attention import COLUMNS, FEW_DEPTHS, ROWS, Attention, AttentionWriter, attention_of
from .claims import operands_of, own_rules
from .configs import aligned_arguments, flat_configs, row_configs, scan_configs
from .emit import Arguments, levels_of, write
from .kernel import Argument, Config, TritonKernel
from .modules import module_of
from .user_launch import launch_kernels, with_all_results

MOST_NARROW = 2**31 - 65536


@dataclass(frozen=True)
class DeviceCode:
    """`text` has the placeholder @NAME@. `host` are the inputs, by place, whose contents the function reads."""

    inputs: tuple[ir.Value | Packed, ...]
    text: str
    kernels: tuple[TritonKernel, ...]
    info: tuple[KernelInfo, ...]
    host: tuple[int, ...]
    guarded: bool
    launched: tuple[Function, ...] = ()


def write_device(
    region: Region, facts: Facts, carriers: Sequence[ir.Value], given: Sequence[ir.Value | Packed]
) -> DeviceCode:
    """`given` are the inputs of the CPU kernel, which the op has in that order; more may follow. Packed weights are
    the CPU's, and stay in the host's memory."""
    writer = DeviceWriter(region, facts, carriers, given)
    code = writer.device_code()
    if facts.general is None or not writer.guarded:
        return code
    general = DeviceWriter(region, facts.general, carriers, code.inputs).device_code("@NAME@_general")
    text = f"{general.text}\n{writer.device_function('@NAME@', 'smelt_device_@NAME@_general(env)')}"
    kernels = {kernel.name: kernel for kernel in (*code.kernels, *general.kernels)}
    host = tuple(sorted({*code.host, *general.host}))
    return DeviceCode(general.inputs, text, tuple(kernels.values()), code.info, host, True, code.launched)


class DeviceWriter(RegionWriter):
    """Writes launches of a GPU where the CPU's writer has loops of its own."""

    def new_builder(self) -> tuple[Builder, Mapping[int, tuple[ir.Value, str]]]:
        self.rules = own_rules()
        self.on_host: set[ir.Value] = set()
        return Builder(assuming=self.facts.hints, equal=self.facts.equal), {}

    def device_code(self, name: str = "@NAME@") -> DeviceCode:
        self.outputs = outputs = self._lower()
        before, temporaries, told = self._attentions([tensor for tensor, _ in outputs])
        plan = with_all_results(schedule(outputs))
        made = [(one, _sources(step)) for step in plan.steps for one in kernels_of(step, plan.temporaries)]
        kernels = [*before, *(one for one, _ in made)]
        plan = Schedule(plan.clusters, {**temporaries, **plan.temporaries})
        self._claim_inputs(kernels)
        self._solve(self._needed_symbols(outputs, plan, kernels))
        self._checks()
        self._fits(plan, outputs, kernels)
        self._allocate(outputs, plan, [[kernel] for kernel in kernels], Launches([], {}, frozenset()))
        for kernel in kernels:
            self.lines += self._launch_lines(kernel)
        sources = [*told, *(source for _, source in made)]
        info = tuple(_info(*one) for one in zip(kernels, sources, range(len(kernels)), strict=True))
        host = self._host_places(kernels)
        calls = [step.work for step in plan.steps if isinstance(step, Cluster) and isinstance(step.work, Extern)]
        launched = tuple(c.function for c in calls if c.function.device is not None and c.function.device.is_users)
        return DeviceCode(
            tuple(self.inputs), self.device_function(name), tuple(kernels), info, host, self.guarded, launched
        )  # fmt: skip

    def _attentions(
        self, roots: Sequence[Tensor]
    ) -> tuple[list[TritonKernel], dict[Tensor, Buffer], list[tuple[str, ...]]]:
        """Kernels of products, which are read from memory from here on, with the temporaries that they need."""
        kernels: list[TritonKernel] = []
        temporaries: dict[Tensor, Buffer] = {}
        told: list[tuple[str, ...]] = []
        for made in operands_first(list(roots), operands_of):
            if not isinstance(made.definition, Contraction) or _is_inner(made, roots):
                continue
            one = attention_of(made, operands_of)
            if one is None:
                raise Unsupported("a product: the GPU's own provider computes it")
            own, held = self._attention(one, len(temporaries))
            kernels += own
            told += [(made.source,)] * len(own)
            temporaries |= held
        return kernels, temporaries, told

    def _attention(self, one: Attention, number: int) -> tuple[list[TritonKernel], dict[Tensor, Buffer]]:
        needed: dict[Tensor, Buffer] = {}

        def buffer(tensor: Tensor) -> Buffer:
            if tensor not in needed:
                needed[tensor] = Buffer(f"a{number}_{len(needed)}", tensor.dtype, tensor.shape)
            return needed[tensor]

        made = one.made
        target = Buffer(f"a{number}_y", made.dtype, made.shape)
        kernel = attention_kernel(one, target, buffer)
        first = schedule(list(needed.items())) if needed else Schedule([], {})
        first = with_all_results(first)
        kernels = [*(k for step in first.steps for k in kernels_of(step, first.temporaries)), kernel]
        temporaries = {**first.temporaries, **needed, made: target}
        for place, held in enumerate(first.temporaries.values()):
            held.name = f"a{number}_t{place}"
        for tensor, stored in (*needed.items(), (made, target)):
            tensor.definition = Stored(stored)
        for root in [t for t, _ in self.outputs]:
            for tensor in operands_first([root], operands_of):
                tensor.forget()
        return kernels, temporaries

    def _host_places(self, kernels: Sequence[TritonKernel]) -> tuple[int, ...]:
        read = {self.by_buffer[b.uid] for k in kernels for b in k.buffers if b.uid in self.by_buffer}
        if self.on_host & read:
            raise Unsupported("the contents of an input are needed on the host and on the GPU")
        packed = [place for value, place in self.inputs.items() if isinstance(value, Packed)]
        return tuple(sorted([*packed, *(self.inputs[value] for value in self.on_host)]))

    def _solve_data(self, symbol: Sym) -> None:
        super()._solve_data(symbol)
        self.on_host.add(self._value_named(symbol.name.partition("[")[0]))

    def _guard_contents(self, value: ir.Value) -> None:
        before = len(self.lines)
        super()._guard_contents(value)
        if len(self.lines) > before:
            self.on_host.add(value)

    def _fits(self, plan: Schedule, outputs: Sequence[tuple[object, Buffer]], kernels: Sequence[TritonKernel]) -> None:
        """Indices of 32 bits reach so many elements."""
        if all(kernel.wide for kernel in kernels):
            return
        if any(_is_large(kernel) for kernel in kernels if not kernel.wide):
            raise Unsupported("a tensor has 2^31 - 65536 elements or more")
        buffers = [*(b for _, b in outputs), *plan.temporaries.values(), *(b for k in kernels for b in k.buffers)]
        counts = [b.elements for b in buffers] + [k.rows for k in kernels] + [k.columns for k in kernels]
        for size in dict.fromkeys(count for count in counts if count.const is None):
            fail = 'smelt_device_fail(env, "a launch", "", "a tensor has 2^31 - 65536 elements or more")'
            self._check(f"({self.integers.text(size)}) > SMELT_DEVICE_MOST", fail)

    def _launch_lines(self, kernel: TritonKernel) -> list[str]:
        if kernel.grid is not None:
            return self._user_launch_lines(kernel, kernel.grid)
        kind = "int64_t" if kernel.wide else "int32_t"
        pointers = [self._pointer(buffer) for buffer in kernel.buffers]
        sizes = [f"({self.integers.text(size)})" for size in kernel.sizes]
        lines = [f"void *p{place} = (void *){text};" for place, text in enumerate(pointers)]
        narrow = "" if kernel.wide else "smelt_device_narrow"
        lines += [f"{kind} z{place} = {narrow}{text};" for place, text in enumerate(sizes)]
        names = [f"p{place}" for place in range(len(pointers))] + [f"z{place}" for place in range(len(sizes))]
        values = [f"(uint64_t)(uintptr_t)p{place}" for place in range(len(pointers))]
        values += [f"(uint64_t){text}" for text in sizes]
        rows, columns = self.integers.text(kernel.rows), self.integers.text(kernel.columns)
        lines += [
            f"void *arguments[] = {{{', '.join('&' + name for name in names)}}};",
            f"const uint64_t values[] = {{{', '.join(values)}}};",
            f"const smelt_device_work work = {{{rows}, {columns}, {self._row_bytes(kernel)}}};",
            f"if (smelt_device_launch(env, &device, &{kernel.name}, &work, arguments, values))",
            "  return env->code;",
        ]
        return ["{", *("  " + line for line in lines), "}"]

    def _row_bytes(self, kernel: TritonKernel) -> str:
        """Of one element of each buffer for each column: what the cost model compares configurations by."""
        return str(sum(E.SIZE_BYTES[buffer.dtype] for buffer in kernel.buffers))

    def _user_launch_lines(self, kernel: TritonKernel, grid: tuple[Ix, Ix, Ix]) -> list[str]:
        made = [self._user_argument(kernel, one, f"a{place}") for place, one in enumerate(kernel.arguments)]
        pointers = ", ".join(f"&a{place}" for place in range(len(made)))
        sizes = ", ".join(self.integers.text(size) for size in grid)
        lines = [
            *(declared for declared, _ in made),
            f"void *arguments[] = {{{pointers}}};",
            f"const uint64_t values[] = {{{', '.join(value for _, value in made)}}};",
            f"const int64_t grid[] = {{{sizes}}};",
            f"if (smelt_device_launch_grid(env, &device, &{kernel.name}, grid, arguments, values)) return env->code;",
        ]
        return ["{", *("  " + line for line in lines), "}"]

    def _user_argument(self, kernel: TritonKernel, one: Argument, name: str) -> tuple[str, str]:
        """Its declaration in C, and what alignment is told by."""
        if one.number is not None:
            whole = one.type == "i1"
            text = str(int(one.number)) if whole else constant(one.number, "f32")
            return f"{'uint8_t' if whole else 'float'} {name} = {text};", "1"
        assert one.value is not None
        text = self.integers.text(one.value)
        if one.place >= 0:
            pointer = self._pointer(kernel.buffers[one.place])
            return f"void *{name} = (char *)({pointer}) + ({text});", f"(uint64_t)(uintptr_t){name}"
        if one.type == "i32" and one.value.const is None:
            fail = 'smelt_device_fail(env, "a launch", "", "a size has more than 31 bits")'
            self._check(f"({text}) > INT32_MAX", fail)
        kind = _C_SIZES.get(one.type)
        if kind is None:
            raise Unsupported(f"an argument of the type {one.type} of a Triton kernel")
        return f"{kind} {name} = ({kind})({text});", f"(uint64_t)({text})"

    def device_function(self, name: str, otherwise: str | None = None) -> str:
        texts = (line if isinstance(line, str) else line.text(otherwise) for line in self.lines)
        body = "\n".join(f"  {text}" for text in texts)
        head = f"int32_t smelt_device_{name}(smelt_env *env) {{\n  smelt_device device;\n"
        return f"{head}  if (smelt_device_here(env, &device)) return env->code;\n{body}\n  return env->code;\n}}\n"


def _sources(step: Step) -> tuple[str, ...]:
    return tuple(step.sources) if isinstance(step, Cluster) else ()


_C_SIZES: Final = {"i32": "int32_t", "i64": "int64_t", "u32": "uint32_t", "u64": "uint64_t", "i16": "int16_t",
                   "i8": "int8_t", "i1": "uint8_t"}  # fmt: skip


def kernels_of(step: Step, temporaries: dict[Tensor, Buffer]) -> list[TritonKernel]:
    work = step.work if isinstance(step, Cluster) else None
    if isinstance(work, Extern) and work.function.device is not None:
        return launch_kernels(work, work.function.device, temporaries)
    return [kernel_of(step)]


def kernel_of(step: Step) -> TritonKernel:
    if isinstance(step, BackToBack) or not isinstance(step.work, (Loops, RunningTotal, Fill)):
        raise Unsupported("a product, a window or a function has no Triton kernel here")
    return loop_kernel(build_nest(step))


def _is_inner(product_: Tensor, roots: Sequence[Tensor]) -> bool:
    """Whether a product is the scores of an attention, which are made inside of it."""
    every = operands_first(list(roots), operands_of)
    found = [attention_of(t, operands_of) for t in every if t is not product_]
    return any(one is not None and one.scores is product_ for one in found)


def attention_kernel(one: Attention, target: Buffer, buffer: Callable[[Tensor], Buffer]) -> TritonKernel:
    narrow = _attention_kernel(one, target, buffer, wide=False)
    return _attention_kernel(one, target, buffer, wide=True) if _is_large(narrow) else narrow


def _attention_kernel(
    one: Attention, target: Buffer, buffer: Callable[[Tensor], Buffer], *, wide: bool
) -> TritonKernel:
    arguments = Arguments()
    writer = AttentionWriter(one, target, arguments, operands_of, buffer, wide=wide)
    text = writer.text()
    name, module = module_of({"attention": text.function(arguments)}, text.functions)
    buffers, sizes = tuple(b for _, b in arguments.buffers.values()), tuple(arguments.sizes)
    rows, columns = writer.programs, writer.column.extent
    depths = [1 << max(4, ((v.extent.const or 1) - 1).bit_length()) for v in (writer.depth, writer.width)]
    constants = (("ROWS", ROWS), ("BLOCK", COLUMNS), ("DEPTH", depths[0]), ("WIDTH", depths[1]))
    function, pointers = f"{name}_attention", tuple(range(len(buffers)))
    stages = 2 if max(depths) <= FEW_DEPTHS else 1  # blocks of keys and values that shared memory holds at a time
    told = f"attention, {writer.form}"
    loose = Config(function, constants, 4, single=True, stages=stages, reason=f"{told}, any alignment")
    configs = (replace(loose, divisible=pointers, reason=f"{told}, vector loads"), loose)
    symbols = sorted({s for size in (*sizes, rows, columns) for s in size.syms}, key=lambda s: s.name)
    return TritonKernel(
        name=name, text=module, task=LOOPS, buffers=buffers, symbols=tuple(symbols), units=rows, chunked=None,
        unit_cost=ix(1), row_bytes=ix(0), product=None, flops=ix(0), moved_bytes=ix(0), data_extents=(),
        whole_rows=False, written=frozenset((target.uid,)), sizes=sizes, rows=rows, columns=columns, configs=configs,
        wide=wide,
    )  # fmt: skip


def loop_kernel(nest: Nest) -> TritonKernel:
    narrow = _loop_kernel(nest, wide=False)
    return _loop_kernel(nest, wide=True) if _is_large(narrow) else narrow


def _loop_kernel(nest: Nest, *, wide: bool) -> TritonKernel:
    arguments = Arguments()
    suffixes = ("looped",) if nest.scan is not None else ("looped", "whole") if nest.inner else ("flat",)
    forms = {suffix: write(nest, arguments, whole=suffix == "whole", wide=wide) for suffix in suffixes}
    functions = {function for form in forms.values() for function in form.functions}
    name, module = module_of({suffix: form.function(arguments) for suffix, form in forms.items()}, functions)
    rows, columns = (product(v.extent for v in loops) for loops in (nest.outer, nest.inner))
    buffers = tuple(buffer for _, buffer in arguments.buffers.values())
    sizes = tuple(arguments.sizes)
    aligned = aligned_arguments(columns if nest.inner and not nest.columns else rows, sizes, len(buffers))
    symbols = sorted({s for size in (*sizes, rows, columns) for s in size.syms}, key=lambda s: s.name)
    return TritonKernel(
        name=name, text=module, task=LOOPS, buffers=buffers, symbols=tuple(symbols), units=rows, chunked=None,
        unit_cost=ix(1), row_bytes=ix(0), product=None, flops=ix(0), moved_bytes=moved_bytes(nest), data_extents=(),
        whole_rows=False, written=frozenset(s.buffer.uid for s in nest.stores), sizes=sizes, rows=rows, columns=columns,
        configs=_configs(name, nest, columns, aligned), wide=wide,
    )  # fmt: skip


def _configs(name: str, nest: Nest, columns: Ix, aligned: tuple[int, ...]) -> tuple[Config, ...]:
    if nest.scan is not None:
        return scan_configs(name)
    if not nest.inner:
        return flat_configs(name, aligned)
    passes = max([*levels_of(nest.reductions).values(), 0]) + 1
    return row_configs(name, columns, aligned, across=nest.columns, passes=passes)


def _is_large(kernel: TritonKernel) -> bool:
    """Whether a size that is known needs more than 32 bits; one that is not known is checked when it is."""
    counts = [*(buffer.elements for buffer in kernel.buffers), kernel.rows, kernel.columns]
    return any(count.const is not None and count.const > MOST_NARROW for count in counts)


def _info(kernel: TritonKernel, sources: tuple[str, ...], launch: int) -> KernelInfo:
    reasons = "; ".join(f"{config} ({config.reason})" for config in kernel.configs)
    return KernelInfo(
        kernel.name, "triton", sources, f"{show(kernel.rows)} rows", bytes=show(kernel.moved_bytes), launch=launch,
        form="triton", reason=reasons, launcher="smelt_device_launch",
    )  # fmt: skip
