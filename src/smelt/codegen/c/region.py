"""A region as one C function: learn the sizes, check them, allocate, run the kernels in order.

Input: a region of the plan and the facts about its values. Output: `CRegionCode`. Invariant: the function touches no
memory before every size it relies on was checked against the inputs' real shapes, so a model that states wrong shapes
never gets a stray access. Where the facts rely on hints of the file (equal names, declared shapes), what they rely on
is a guard: if it does not hold, a second function runs, written from the facts without hints, and only what that one
refuses is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import onnx_ir as ir

from smelt.codegen.cluster import Schedule, Step
from smelt.codegen.printer import format_steps
from smelt.codegen.schedule import schedule
from smelt.ir.backend import Packed, RegionCode
from smelt.ir.kernel import Assemble, Buffer, Builder, Ix, Result, Stored, Sym, Tensor, Unsupported, ix, of
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import coefficient, nonneg, one_not_1
from smelt.ir.records import Region, Unit
from smelt.ops import Facts, lower
from smelt.ops.analysis import OwnRules

from .arena import Lifetime, assign_slots, lifetimes
from .checked_sizes import Check, Products, arena_lines, known_shapes
from .emit import Kernel
from .extern import call_lines
from .found import Waiting, behind_found, found_sizes, reads, rooms, sizes_of
from .groups import group_kernels
from .hints import Hints
from .launch import launch_of, units_text
from .layout import RULES, CpuBuilder
from .made import info_of, kernel_of, panels_after, sources_of
from .mask_bounds import watch
from .names import C_TYPE, Integers
from .row_block_fusion import fuse_row_blocks, fused_rows
from .scalars import loose_scalars
from .tile_fusion import Launches, fuse_tiles, stage_text


@dataclass(frozen=True)
class General:
    """The function that runs where a hint of the file is wrong; seldom, so that it is compiled for one level only."""

    text: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class CRegionCode(RegionCode):
    """`text` has the placeholder @NAME@ for the function's name, and @LOWEST@ for the level of the general one.
    `launches` are how the kernels run together; `slots` have the uids of the temporaries that lie in one place; `steps`
    are what the kernels were written from."""

    text: str
    kernels: tuple[Kernel, ...]
    launches: Launches
    slots: tuple[tuple[int, ...], ...] = ()
    steps: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    general: General | None = None

    @property
    def digest(self) -> str:
        general = self.general.text if self.general is not None else ""
        return hashlib.sha256(f"{self.text}{general}".encode()).hexdigest()

    def is_in(self, unit: Unit, entry: str) -> bool:
        general = self.general.kernels if self.general is not None else ()
        return super().is_in(unit, entry) or any(kernel.name in unit.kernels for kernel in (*self.kernels, *general))

    def texts(self, entry: str) -> Mapping[str, str]:
        return {f"{entry}.schedule.txt": format_steps(self.steps)}

    @property
    def work(self) -> tuple[tuple[Ix, Ix], ...]:
        return tuple((kernel.flops, kernel.moved_bytes) for kernel in self.kernels)


BACKEND = "c"  # its name
GENERAL = "@NAME@_general"


def write_region(region: Region, facts: Facts, carriers: Sequence[ir.Value]) -> CRegionCode:
    """`carriers` are values that may be added as inputs only for their shapes (the model's own inputs)."""
    writer = RegionWriter(region, facts, carriers)
    code = writer.code()
    if facts.general is None or not writer.guarded:
        return code
    try:
        general = RegionWriter(region, facts.general, carriers, code.inputs).code(GENERAL)
    except Unsupported:
        return code  # the region keeps to its hints, and fails where they are wrong
    text = writer.function(f"SMELT_AT({GENERAL}, @LOWEST@)(env)")
    return replace(code, text=text, inputs=general.inputs, general=General(general.text, general.kernels))


class RegionWriter:
    rules: OwnRules = RULES

    def __init__(
        self, region: Region, facts: Facts, carriers: Sequence[ir.Value], given: Sequence[ir.Value | Packed] = ()
    ) -> None:
        """`given` are inputs that the op has already, in their order."""
        self.region, self.facts, self.carriers = region, facts, carriers
        self.builder, self.packed_as = self.new_builder()
        self.guarded = False
        self.groups = 0
        self.hints = Hints(facts)
        self.loose = loose_scalars(region, facts)
        self.inside: dict[ir.Value, Tensor] = {}
        self.by_buffer: dict[int, ir.Value | Packed] = {}
        self.inputs: dict[ir.Value | Packed, int] = {value: place for place, value in enumerate(given)}
        self.symbols: dict[Sym, str] = {}
        self.integers = Integers(self._symbol_name, lambda v: v.name)
        self.lines: list[str | Check] = []
        self.checked: set[Check] = set()
        self.known: dict[int, Sequence[Ix]] = {}
        self.products = Products(self.integers.text)
        self.panels_after: dict[int, tuple[Buffer, Ix]] = {}
        self.found: dict[Sym, Buffer] = {}
        self.waiting = Waiting()
        self.held: list[tuple[int, ...]] = []  # by slot

    def new_builder(self) -> tuple[Builder, Mapping[int, tuple[ir.Value, str]]]:
        """What lowers the nodes, and the weights that it packs, by buffer."""
        builder = CpuBuilder(assuming=self.facts.hints, equal=self.facts.equal)
        return builder, builder.packed_as

    # from nodes to kernels

    def code(self, name: str = "@NAME@") -> CRegionCode:
        outputs = self._lower()
        plan = schedule(outputs)
        watch(plan.clusters)
        steps = plan.steps
        made = self._behind_found([(kernel_of(step), sources_of(step)) for step in steps])
        every = [kernel for kernel, _ in made]
        tiled = fuse_tiles(group_kernels(every), every, {b.uid for b in plan.temporaries.values()})
        launches = fuse_row_blocks(tiled, every)
        order = launches.groups
        groups = [[made[place][0] for place in group] for group in order]
        kernels = [kernel for group in groups for kernel in group]
        self._claim_inputs(kernels)
        self._solve([s for s in self._needed_symbols(outputs, plan, kernels) if not reads(of(s), self.found)])
        self._checks()
        self._allocate(outputs, plan, groups, launches)
        self.panels_after = panels_after(kernels)
        for place, group in enumerate(groups):
            if place in launches.tiled:
                self._launch_tiled(launches.tiled[place], group, launches.inner)
            else:
                self._launch(group, launches.row_fused.get(place, ()))
            self.lines.append(f"SMELT_CLOCK({name}, {place})")
            self._learn(group)
        self.groups = len(groups)
        text = self.function(name=name)
        info = tuple(
            info_of(*made[place], launch, tiled=launch in launches.tiled)
            for launch, group in enumerate(order)
            for place in group
        )
        inputs, slots = tuple(self.inputs), tuple(self.held)
        return CRegionCode(inputs, self.region.outputs, info, text, tuple(kernels), launches, slots, tuple(steps))

    def _behind_found(self, made: list[tuple[Kernel, tuple[str, ...]]]) -> list[tuple[Kernel, tuple[str, ...]]]:
        """Kernels that use sizes found in data come after the functions that find them."""
        kernels = [kernel for kernel, _ in made]
        self.found = found_sizes(kernels)
        return [(kernel, made[place][1]) for place, kernel in behind_found(kernels, self.found)]

    def _lower(self) -> list[tuple[Tensor, Buffer]]:
        for value in self.region.inputs:
            if value in self.facts.by_value:
                self._operand(value)
        for node in self.region.nodes:
            self.builder.source = node.name or node.op_type
            made = lower(self.facts, self.builder, node, self.inside, self.rules)
            for value, result in zip(node.outputs, made, strict=False):
                if result is not None:
                    self.inside[value] = result[0]
                    if isinstance(self.builder, CpuBuilder):
                        self.builder.note_readers(result[0], _readers(value))
        out: list[tuple[Tensor, Buffer]] = []
        for place, value in enumerate(self.region.outputs):
            if value not in self.inside:
                raise Unsupported("an output of the op has no lowering yet")
            tensor = self.builder.cast(self.inside[value], self.facts.by_value[value].dtype)
            if isinstance(tensor.definition, Result) and tensor.definition.function.found:
                tensor = self.builder.copy(tensor)  # its output can be allocated only after the function has run
            out.append((tensor, Buffer(f"out{place}", tensor.dtype, tensor.shape)))
        return self._distinct(out)

    def _operand(self, value: ir.Value) -> None:
        tensor = self.facts.stored(self.builder, value)
        self.inside[value] = self.builder.computable(tensor)
        if isinstance(tensor.definition, Stored):
            self.by_buffer[tensor.definition.buffer.uid] = value

    def _distinct(self, outputs: list[tuple[Tensor, Buffer]]) -> list[tuple[Tensor, Buffer]]:
        """An assembled tensor, and a function's result, is built inside its output; a second output of it copies it."""
        seen: set[Tensor] = set()
        out: list[tuple[Tensor, Buffer]] = []
        for tensor, buffer in outputs:
            repeated = tensor in seen and isinstance(tensor.definition, (Assemble, Result))
            seen.add(tensor)
            out.append((self.builder.copy(tensor) if repeated else tensor, buffer))
        return out

    def _claim_inputs(self, kernels: Sequence[Kernel]) -> None:
        """Inputs that kernels read, in the order of the region's own inputs, then the rest."""
        used = {b.uid for k in kernels for b in k.buffers if b.uid in self.by_buffer}
        for uid, value in self.by_buffer.items():
            if uid in used:
                self.inputs.setdefault(value, len(self.inputs))
        for kernel in kernels:
            for buffer in kernel.buffers:
                found = self.packed_as.get(buffer.uid)
                if found is not None:
                    packed = Packed(*found, BACKEND)
                    self.by_buffer[buffer.uid] = packed
                    self.inputs.setdefault(packed, len(self.inputs))

    # sizes

    def _symbol_name(self, symbol: Sym) -> str:
        return self.symbols[symbol]

    def _needed_symbols(
        self, outputs: Sequence[tuple[Tensor, Buffer]], plan: Schedule, kernels: Sequence[Kernel]
    ) -> list[Sym]:
        sizes = [s for _, b in outputs for s in b.shape]
        sizes += [s for b in plan.temporaries.values() for s in b.shape]
        for kernel in kernels:
            sizes += sizes_of(kernel)
            sizes += [most for _, most in kernel.extern.function.found] if kernel.extern is not None else []
        for left, right, _ in self.builder.requirements:
            sizes += [left, right]
        found: dict[Sym, None] = {}
        for size in sizes:
            for symbol in sorted(size.syms, key=lambda s: s.name):
                found.setdefault(symbol)
        return list(found)

    def _solve(self, needed: list[Sym]) -> None:
        """Find each symbol in the shapes (or contents) of the inputs, adding shape carriers where none tells it."""
        for symbol in [s for s in needed if not s.nonneg]:
            self._solve_data(symbol)
        sources = self._shape_sources()
        waiting = [s for s in self._with_members(needed, sources) if s not in self.symbols]
        while waiting:
            progress = self._solve_from(waiting, sources) or self._solve_members(waiting)
            waiting = [s for s in waiting if s not in self.symbols]
            if waiting and not progress and not self._add_carrier(waiting, sources):
                raise Unsupported(f"the size {waiting[0].name!r} cannot be learned from the inputs")
        self._guard_hints()
        self._check_table()
        for value, place in list(self.inputs.items()):
            if isinstance(value, ir.Value) and place not in self.known:
                self._check_shape(value, place)

    def _with_members(self, needed: Sequence[Sym], sources: Sequence[tuple[int, int, Ix]]) -> list[Sym]:
        """The sizes that a broadcast size is made of are needed too, unless an input has it as it is."""
        told = {size.key for _, _, size in sources}
        found: dict[Sym, None] = {}
        stack = list(reversed(needed))
        while stack:
            symbol = stack.pop()
            if symbol in found:
                continue
            found[symbol] = None
            if of(symbol).key not in told:
                stack += [s for m in symbol.members for s in sorted(m.syms, key=lambda s: s.name)]
        return list(found)

    def _solve_members(self, waiting: Sequence[Sym]) -> bool:
        """Sizes that are broadcast from sizes already found."""
        before = len(self.symbols)
        for symbol in waiting:
            if symbol.members and all(s in self.symbols for m in symbol.members for s in m.syms):
                self._define(symbol, self.integers.text(one_not_1(symbol.members)))
        return len(self.symbols) > before

    def _shape_sources(self) -> list[tuple[int, int, Ix]]:
        return [
            (place, axis, size)
            for value, place in self.inputs.items()
            if isinstance(value, ir.Value)
            for axis, size in enumerate(self.facts.by_value[value].shape)
        ]

    def _solve_data(self, symbol: Sym) -> None:
        name, _, rest = symbol.name.partition("[")
        value = self._value_named(name)
        place = self.inputs.setdefault(value, len(self.inputs))
        kind = "int64_t" if self.facts.by_value[value].dtype == "i64" else "int32_t"
        self._rank_check(value, place)
        element = int(rest.rstrip("]"))
        count = " * ".join(f"env->in_dims[{place}][{a}]" for a in range(len(self.facts.by_value[value].shape))) or "1"
        self._check(f"{count} <= {element}", f"smelt_fail(env, SMELT_E_SHAPE, {place}, -1, {count}, {element + 1})")
        self._define(symbol, f"((const {kind} *)env->in[{place}])[{element}]")
        self.hints.read_from_data(symbol, value, element)

    def _value_named(self, name: str) -> ir.Value:
        for value, number in self.facts.ids.items():
            if f"v{number}" == name and value not in self._made_inside():
                return value
        raise Unsupported("a size depends on the contents of a tensor made inside the region")

    def _made_inside(self) -> set[ir.Value]:
        return {v for n in self.region.nodes for v in n.outputs}

    def _define(self, symbol: Sym, text: str) -> None:
        name = f"s{len(self.symbols)}"
        self.symbols[symbol] = name
        self.lines.append(f"const int64_t {name} = {text};")

    def _rank_check(self, value: ir.Value, place: int) -> None:
        rank, found = len(self.facts.by_value[value].shape), f"env->in_rank[{place}]"
        loose = f" && ({found} != 1 || env->in_dims[{place}][0] != 1)" if value in self.loose else ""
        self._check(f"{found} != {rank}{loose}", f"smelt_fail(env, SMELT_E_RANK, {place}, {found}, {rank}, 0)")

    def _solve_from(self, waiting: Sequence[Sym], sources: Sequence[tuple[int, int, Ix]]) -> bool:
        before = len(self.symbols)
        for place, axis, size in sources:
            unknown = [s for s in size.syms if s not in self.symbols]
            if len(unknown) != 1 or unknown[0] not in waiting:
                continue
            parts = coefficient(size, unknown[0])
            if parts is None or parts[0].const is None or parts[0].const == 0:
                continue
            self._rank_check(self._value_at(place), place)
            rest = self.integers.text(parts[1])
            found = f"env->in_dims[{place}][{axis}]"
            text = found if rest == "0" else f"({found} - ({rest}))"
            self._define(unknown[0], text if parts[0].const == 1 else f"{text} / {parts[0].const}")
            self.hints.read_from_axis(unknown[0], self._value_at(place), axis, size)
        return len(self.symbols) > before

    def _value_at(self, place: int) -> ir.Value:
        value = next(v for v, p in self.inputs.items() if p == place)
        assert isinstance(value, ir.Value)
        return value

    def _add_carrier(self, waiting: Sequence[Sym], sources: list[tuple[int, int, Ix]]) -> bool:
        """Another input of the region, or of the model, whose shape tells a missing size."""
        inside = self._made_inside()
        for value in (*self.region.inputs, *self.carriers):
            fact = self.facts.by_value.get(value)
            if fact is None or value in self.inputs or value in inside or value in self.facts.constants:
                continue
            if any(s in size.syms for size in fact.shape for s in waiting):
                place = self.inputs.setdefault(value, len(self.inputs))
                sources += [(place, axis, size) for axis, size in enumerate(fact.shape)]
                return True
        return False

    def _check(self, condition: str, failure: str) -> None:
        """What was checked once holds: sizes do not change."""
        if (check := Check(condition, failure)) not in self.checked:
            self.checked.add(check)
            self.lines.append(check)

    def _check_table(self) -> None:
        """Inputs of known shapes, by one table."""
        shapes = [(v, p, self.facts.by_value[v].shape) for v, p in self.inputs.items() if isinstance(v, ir.Value)]
        fixed = [one for one in shapes if one[0] not in self.loose and all(size.const is not None for size in one[2])]
        self.known = {p: shape for _, p, shape in fixed}
        told = [(v, axis, size) for v, p, shape in shapes if p in self.known for axis, size in enumerate(shape)]
        self.guarded = self.guarded or not all(self.hints.certain_axis(*one) for one in told)
        if self.known:
            self.lines += known_shapes(self.known)
            self._check("unlike", "smelt_fail_unlike(env, unlike)")

    def _check_shape(self, value: ir.Value, place: int) -> None:
        self._rank_check(value, place)
        for axis, size in enumerate(self.facts.by_value[value].shape):
            if any(s not in self.symbols for s in size.syms):
                continue
            text = self.integers.text(size)
            found = f"env->in_dims[{place}][{axis}]"
            self._check(f"{found} != {text}", f"smelt_fail(env, SMELT_E_SHAPE, {place}, {axis}, {found}, {text})")
            self.guarded = self.guarded or not self.hints.certain_axis(value, axis, size)

    def _checks(self) -> None:
        self.guarded = self.guarded or self.builder.assumed
        self.waiting.requirements = [(left, right) for left, right, _ in self.builder.requirements]
        self._check_known()

    def _check_known(self) -> None:
        for left, right in self.waiting.take_requirements(self._is_known):
            a, b = self.integers.text(left), self.integers.text(right)
            self._check(f"({a}) != ({b})", f"smelt_fail(env, SMELT_E_SHAPE, -1, -1, {a}, {b})")

    def _is_known(self, sizes: Iterable[Ix]) -> bool:
        return all(s in self.symbols for size in sizes for s in size.syms)

    def _learn(self, group: Sequence[Kernel]) -> None:
        """The functions of a group have run: what waited for the sizes that they found goes on."""
        calls = [k.extern for k in group if k.extern is not None and k.extern.found is not None]
        for call in calls:
            assert call.found is not None
            for place, (symbol, _) in enumerate(call.function.found):
                self._define(symbol, f"{call.found.name}[{place}]")
        if calls:
            self._solve_members([s for s in self.waiting.symbols() if s not in self.symbols])
            self._check_known()
            self._allocate_known()

    # hints

    def _guard_hints(self) -> None:
        """What the region knows of a value without reading it holds for certain, or is compared with the value."""
        inside = self._made_inside()
        for value in self.region.inputs if self.facts.general is not None else ():
            fact = self.facts.by_value.get(value)
            if fact is None or value in self.facts.constants or value in inside or value.const_value is not None:
                continue
            told = [(axis, s) for axis, s in enumerate(fact.shape) if all(y in self.symbols for y in s.syms)]
            if not all(self.hints.certain_axis(value, axis, size) for axis, size in told):
                self.inputs.setdefault(value, len(self.inputs))
            self._guard_contents(value)

    def _guard_contents(self, value: ir.Value) -> None:
        fact = self.facts.by_value[value]
        if fact.contents is None or any(s not in self.symbols for c in fact.contents for s in c.syms):
            return
        if self.hints.certain_contents(value):
            return
        self.guarded = True
        place = self.inputs.setdefault(value, len(self.inputs))
        self._check_shape(value, place)
        held = C_TYPE[fact.dtype]
        for element, content in enumerate(fact.contents):
            text, found = self.integers.text(content), f"((const {held} *)env->in[{place}])[{element}]"
            self._check(f"{found} != {text}", f"smelt_fail(env, SMELT_E_VALUE, {place}, {found}, 0, 0)")

    # memory

    def _bytes(self, shape: Sequence[Ix], each: int = 1) -> str:
        """The name of a checked product; sizes read from data may be negative, which is an error."""
        for text in (self.integers.text(size) for size in shape if not nonneg(size)):
            self._check(f"({text}) < 0", f"smelt_fail(env, SMELT_E_VALUE, -1, {text}, 0, 0)")
        name, lines = self.products.name(shape, each)
        self.lines += lines
        return name

    def _allocate(
        self,
        outputs: Sequence[tuple[Tensor, Buffer]],
        plan: Schedule,
        groups: Sequence[Sequence[Kernel]],
        launches: Launches,
    ) -> None:
        self.lines.append("int bad = 0;")
        self.lines += [f"int64_t {b.name}[{b.shape[0].const}];" for b in dict.fromkeys(self.found.values())]
        living = lifetimes(plan, groups, launches)
        kernels = [kernel for group in groups for kernel in group]
        self.waiting.outputs = [(place, buffer) for place, (_, buffer) in enumerate(outputs)]
        self.waiting.temporaries = [one for one in living if one.buffer.uid not in launches.inner]
        self.waiting.kernels = list(kernels)
        self.waiting.rooms = rooms(kernels)
        self._allocate_known()

    def _allocate_known(self) -> None:
        """Whatever has a size that is known by now."""
        outputs = self.waiting.take_outputs(self._is_known)
        for _, buffer in outputs:
            self._bytes(buffer.shape)
        temporaries = self.waiting.take_temporaries(self._is_known)
        buffers = [one.buffer for one in temporaries]
        sizes = {b.name: self._bytes(self.waiting.room(b), E.SIZE_BYTES[b.dtype]) for b in buffers}
        self.lines.append("if (bad) return smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);")
        self._emptiness(self.waiting.take_kernels(self._is_known))
        self._arena(temporaries, sizes)
        for place, buffer in outputs:
            dims = ", ".join(self.integers.text(s) for s in buffer.shape) or "0"
            self.lines.append(f"const int64_t dims{place}[] = {{{dims}}};")
            self.lines.append(f"void *out{place} = env->output(env, {place}, {len(buffer.shape)}, dims{place});")
            self.lines.append(f"if (!out{place}) return smelt_fail(env, SMELT_E_MEMORY, -1, 0, 0, 0);")

    def _emptiness(self, kernels: Sequence[Kernel]) -> None:
        """An index into an axis of size 0 has nothing to read."""
        extents = dict.fromkeys(e for k in kernels for e in k.data_extents)
        for extent in extents:
            if extent.const is None or extent.const == 0:
                guard = self.integers.text(extent)
                units = " || ".join(
                    f"(({units_text(k, self.integers.text)}) > 0)" for k in kernels if extent in k.data_extents
                )
                self.lines.append(
                    f"if (({guard}) <= 0 && ({units})) return smelt_fail(env, SMELT_E_INDEX, -1, 0, 0, 0);"
                )

    def _arena(self, temporaries: Sequence[Lifetime], sizes: Mapping[str, str]) -> None:
        """One block; temporaries that do not live at the same time share a slot."""
        slots = assign_slots(temporaries)
        if not slots:
            return
        self.lines += arena_lines([[held.name for held in slot.held] for slot in slots], sizes, len(self.held))
        self.held += [tuple(held.uid for held in slot.held) for slot in slots]

    # running

    def _pointer(self, buffer: Buffer) -> str:
        value = self.by_buffer.get(buffer.uid)
        return buffer.name if value is None else f"(void *)env->in[{self.inputs[value]}]"

    def _launch(self, group: Sequence[Kernel], steps: Sequence[int]) -> None:
        """One kernel runs at once; several are collected first and share their barrier. With `steps` so many at a time,
        and all of them where they run in order."""
        together = len(group) > 1
        starts = dict(zip(accumulate(steps, initial=0), steps, strict=False))
        lines = ["work.collecting = SMELT_AT_ONCE;"] if together and not steps else []
        for place, kernel in enumerate(group):
            if place in starts:
                rows = self.integers.text(fused_rows(kernel) or ix(0))
                lines.append(f"if (smelt_next_step(env, &work, {rows}, {starts[place]})) return env->code;")
            if kernel.extern is not None:
                lines += call_lines(kernel.extern, place, self._pointer, self.integers.text)
                continue
            pointers = ", ".join(self._pointer(b) for b in kernel.buffers) or "NULL"
            sizes = ", ".join(self.symbols[s] for s in kernel.symbols) or "0"
            lines += [
                f"void *buffers{place}[] = {{{pointers}}};",
                f"const int64_t sizes{place}[] = {{{sizes}}};",
                kernel.task.declared(place, cut=f"SMELT_CUT_{kernel.name}", **self._next_panels(kernel)),
                f"if ({launch_of(kernel).call(f'task{place}', kernel.name, self.integers.text)}) return env->code;",
            ]
        lines += ["if (smelt_run_collected(env, &work)) return env->code;"] if together else []
        self.lines += ["{", *("  " + line for line in lines), "}"]

    def _next_panels(self, kernel: Kernel) -> dict[str, str]:
        """What the last tiles of a product prefetch: panels of the next one."""
        found = self.panels_after.get(id(kernel)) if kernel.first_panels is not None else None
        if found is None:
            return {}
        buffer, depth = found
        return {"next": f"{{{self._pointer(buffer)}, ({self.integers.text(depth)}) * 16}}"}

    def _launch_tiled(self, launch: str, group: Sequence[Kernel], inner: Collection[int]) -> None:
        """Kernels of windows that run as one; what lies inside of tiles has no pointer here."""
        lines: list[str] = []
        stages: list[str] = []
        for place, kernel in enumerate(group):
            pointers = ", ".join("NULL" if b.uid in inner else self._pointer(b) for b in kernel.buffers)
            sizes = ", ".join(self.symbols[s] for s in kernel.symbols) or "0"
            lines += [
                f"void *buffers{place}[] = {{{pointers}}};",
                f"const int64_t sizes{place}[] = {{{sizes}}};",
                kernel.task.declared(place),
            ]
            stages.append(stage_text(kernel, f"task{place}", {b.uid: at for at, b in enumerate(kernel.buffers)}))
        window = group[-1].window
        assert window is not None and window.tile is not None
        images = self.integers.text(window.rows // (window.tile.lines * window.tile.line))
        lines += [
            f"smelt_stage stages[] = {{{', '.join(stages)}}};",
            f"if ({launch}(stages, {len(group)}, {images})) return env->code;",
        ]
        self.lines += ["{", *("  " + line for line in lines), "}"]

    def function(self, otherwise: str | None = None, name: str = "@NAME@") -> str:
        """The whole function; what fails a check is an error, or `otherwise`."""
        texts = (line if isinstance(line, str) else line.text(otherwise) for line in self.lines)
        lines = "\n".join(f"  {text}" for text in texts)
        head = f"SMELT_CLOCKS({name}, {self.groups})\nint32_t SMELT_NAME({name})(smelt_env *env) {{\n"
        head += "  smelt_work work = {.bytes = NULL};\n  SMELT_CLOCK_START\n"
        return f"{head}{lines}\n  return env->code;\n}}\n"


def _readers(value: ir.Value) -> int:
    """Places of the model that read elements of it, not its shape alone."""
    return sum(use.node.op_type not in ("Shape", "Size") for use in value.uses()) + value.is_graph_output()
