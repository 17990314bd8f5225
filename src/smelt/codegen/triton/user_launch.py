"""What a function's launches do, a user's or smelt's own, as kernels of a region.

Input: the call of a function that has code for a GPU, with buffers of its own for what nobody reads. Output: kernels in
the order of its launches. Invariant: text, grid, constants and arguments are the author's, in the order of the
function's parameters; a kernel writes what its call may write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from smelt.codegen.c.tasks import LOOPS
from smelt.codegen.cluster import Extern, Schedule
from smelt.ir.kernel import Buffer, Ix, Stored, Tensor, ix, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.device import DeviceCode, DeviceLaunch, DeviceNumber, DevicePointer, DeviceSize

from .kernel import Argument, Config, TritonKernel
from .spelling import POINTER

WARPS = 4


def with_all_results(plan: Schedule) -> Schedule:
    """A launch writes each of its results, whether somebody reads it or not."""
    temporaries = dict(plan.temporaries)
    for cluster in plan.clusters:
        call = cluster.work
        if not isinstance(call, Extern) or call.function.device is None:
            continue
        for place, (shape, dtype) in enumerate(call.function.results):
            if call.results[place] is None:
                call.results[place] = _temporary(temporaries, shape, dtype)
    return Schedule(plan.clusters, temporaries)


def launch_kernels(call: Extern, code: DeviceCode, temporaries: dict[Tensor, Buffer]) -> list[TritonKernel]:
    """Memory between launches is added to the temporaries."""
    buffers = [b for b in (*call.operands, *call.results) if b is not None]
    between = [_temporary(temporaries, shape, dtype) for shape, dtype in code.temporaries]
    written = frozenset(b.uid for b in (*call.results, *between) if b is not None)
    return [_kernel(launch, [*buffers, *between], written) for launch in code.launches]


def _temporary(temporaries: dict[Tensor, Buffer], shape: Sequence[Ix], dtype: str) -> Buffer:
    made = Buffer(f"u{len(temporaries)}", dtype, tuple(shape))
    temporaries[Tensor(made.shape, dtype, Stored(made))] = made
    return made


def _kernel(launch: DeviceLaunch, every: Sequence[Buffer], written: frozenset[int]) -> TritonKernel:
    buffers: list[Buffer] = []
    arguments = [_argument(one, every, buffers) for one in launch.arguments]
    name = _name(launch, arguments)
    sizes = [a.value for a in arguments if a.value is not None]
    symbols = sorted({s for size in (*sizes, *launch.grid) for s in size.syms}, key=lambda s: s.name)
    return TritonKernel(
        name=name, text=launch.text, task=LOOPS, buffers=tuple(buffers), symbols=tuple(symbols),
        units=product(launch.grid), chunked=None, unit_cost=ix(1), row_bytes=ix(0), product=None, flops=ix(0),
        moved_bytes=_bytes(buffers), data_extents=(), whole_rows=False,
        written=frozenset(b.uid for b in buffers) & written, rows=product(launch.grid), columns=ix(1),
        configs=_configs(launch, arguments), arguments=tuple(arguments), grid=launch.grid,
        user=launch if launch.title else None,
    )  # fmt: skip


def _argument(one: DevicePointer | DeviceSize | DeviceNumber, every: Sequence[Buffer], used: list[Buffer]) -> Argument:
    if isinstance(one, DeviceSize):
        return Argument(one.name, one.type, value=one.value)
    if isinstance(one, DeviceNumber):
        return Argument(one.name, one.type, number=one.value)
    buffer = every[one.place]
    if buffer not in used:
        used.append(buffer)
    kind = "*i1" if buffer.dtype == "b" else POINTER[buffer.dtype]
    return Argument(one.name, kind, place=used.index(buffer), value=one.offset * E.SIZE_BYTES[buffer.dtype])


def _configs(launch: DeviceLaunch, arguments: Sequence[Argument]) -> tuple[Config, ...]:
    """The author's own sizes, with and without the alignment that Triton itself would see in the arguments."""
    aligned = tuple(
        place for place, one in enumerate(arguments)
        if one.type.startswith("*") or (one.number is None and _is_multiple(one.value))
    )  # fmt: skip
    made = Config(launch.function, launch.constants, launch.warps or WARPS, stages=launch.stages, single=True)
    fast = Config(made.function, made.constants, made.warps, aligned[:64], stages=made.stages, single=True,
                  reason="vector loads")  # fmt: skip
    return fast, Config(
        made.function, made.constants, made.warps, stages=made.stages, single=True, reason="any alignment"
    )


def _is_multiple(size: Ix | None) -> bool:
    return size is not None and size.const is not None and size.const % 16 == 0


def _name(launch: DeviceLaunch, arguments: Sequence[Argument]) -> str:
    """No name of the user's: an identifier that is the same for the same kernel."""
    numbers = [(a.name, a.type, a.number) for a in arguments]
    content = repr((launch.text, launch.function, launch.constants, launch.warps, launch.stages, numbers))
    return f"{'smelt_user' if launch.title else 'k'}_{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _bytes(buffers: Sequence[Buffer]) -> Ix:
    total = ix(0)
    for buffer in buffers:
        total = total + buffer.elements * E.SIZE_BYTES[buffer.dtype]
    return total
