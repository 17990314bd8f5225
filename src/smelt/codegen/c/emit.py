"""A loop nest as C: one function over vec.h's vocabulary.

Input: a `Nest`. Output: a `Kernel`: its text, and the buffers and sizes it expects in its task. Invariant: names
are generated; equal nests give equal text, so that kernels can be shared between regions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from smelt.codegen.cluster import Extern
from smelt.codegen.kernel_forms import KernelForm
from smelt.codegen.loops import Nest
from smelt.codegen.settings import GEMM_UNIT, HALF_UNIT
from smelt.ir.kernel import Buffer, Ix, Sym, Tensor, ix, product
from smelt.ir.kernel import expr as E

from .headers import HALF_PRODUCT, HALF_WINDOW, PRODUCT, TRANSPOSE, WINDOW, headers_of
from .measure import data_extents, flops, moved_bytes
from .names import C_TYPE
from .online_softmax import b2b_gemm_writer
from .product import ProductSizes, suffix
from .row_access import RowSizes, row_affine_buffers, row_affine_of_b2b
from .row_pairs import PAIRED, RowPairWriter
from .tasks import B2B, GEMM, LOOPS, TaskStruct
from .tasks import WINDOW as WINDOW_TASK
from .traits import IN_REGISTERS, REGISTER_EPILOGUE, ROW_PAIRS
from .transpose import TransposeWriter, find_transpose
from .window import WindowSizes, WindowWriter, window_units

CHUNK_COST = 6000


@dataclass(frozen=True)
class Kernel:
    """`units` and `unit_cost` are size expressions; `row_bytes` is the row buffer that one task needs. Its body reads a
    `task` of its launcher.

    `written` has the uids of the buffers that the kernel writes; None: it may write any of its buffers. `over` has
    those that it reads, each element just before it writes one at the same place: the result may lie over any of them.
    `row_affine` has those of which it touches, for a row of its result, that row alone; with `row_sizes` these
    are not the rows of its product. `first_panels`: the constant operand that it reads first, and its depth. One
    with an `extern` has no text: it is a call of a function, which cuts its own work. `form` tells which
    kernel form it is, and why; `traits` what else was chosen for it; `headers` are those that its text needs, `links`
    the units of the library that it calls (`library.py`).
    """

    name: str
    text: str
    task: TaskStruct
    buffers: tuple[Buffer, ...]
    symbols: tuple[Sym, ...]
    units: Ix
    chunked: tuple[Ix, int] | None
    unit_cost: Ix
    row_bytes: Ix
    product: ProductSizes | None
    flops: Ix
    moved_bytes: Ix
    data_extents: tuple[Ix, ...]
    whole_rows: bool
    written: frozenset[int] | None = None
    window: WindowSizes | None = None
    over: frozenset[int] = frozenset()
    row_affine: frozenset[int] = frozenset()
    row_sizes: RowSizes | None = None
    first_panels: tuple[Buffer, Ix] | None = None
    extern: Extern | None = None
    form: KernelForm | None = None
    headers: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    traits: tuple[str, ...] = ()


def write_kernel(nest: Nest) -> Kernel:
    copy = find_transpose(nest)
    return _KernelWriter(nest).kernel() if copy is None else _transposed(nest, TransposeWriter(nest, copy))


def _transposed(nest: Nest, writer: TransposeWriter) -> Kernel:
    body = writer.body()
    buffers = tuple(b for _, b in writer.buffers.values())
    name, text = _function(LOOPS, body, buffers, writer.written, len(writer.symbols))
    return Kernel(
        name=name,
        text=text,
        task=LOOPS,
        buffers=buffers,
        symbols=tuple(writer.symbols),
        units=writer.units(),
        chunked=None,
        unit_cost=writer.unit_cost(),
        row_bytes=ix(0),
        product=None,
        flops=flops(nest, 0),
        moved_bytes=moved_bytes(nest),
        data_extents=(),
        whole_rows=False,
        written=writer.written,
        headers=frozenset((TRANSPOSE,)),
        traits=(IN_REGISTERS,),
    )


def write_b2b_gemm(producer: Nest, kept: tuple[Tensor, Buffer], consumer: Nest) -> Kernel:
    """A product and the one that takes its rows from the same task, as one kernel."""
    writer = b2b_gemm_writer(producer, kept, consumer)
    body, sizes, nests = writer.body(), writer.sizes(), (producer, consumer)
    found = None if sizes.by_rows or writer.producer.bias is not None else row_affine_of_b2b(producer, consumer)
    name, text = _function(B2B, body, writer.buffers, writer.written, len(writer.symbols))
    return Kernel(
        name=name,
        text=text,
        task=B2B,
        buffers=tuple(writer.buffers),
        symbols=tuple(writer.symbols),
        units=sizes.batches * sizes.rows,
        chunked=None,
        unit_cost=ix(writer.cost()) * sizes.columns,
        row_bytes=ix(0),
        product=sizes,
        flops=flops(producer, writer.cost()) + flops(consumer, 0),
        moved_bytes=moved_bytes(producer) + moved_bytes(consumer),
        data_extents=tuple(dict.fromkeys(e for n in nests for e in data_extents(n))),
        whole_rows=True,
        written=writer.written,
        row_affine=found[1] if found is not None else row_affine_buffers(producer, consumer),
        row_sizes=found[0] if found is not None else None,
        first_panels=writer.producer.first_panels(),
        headers=headers_of(*nests) | writer.headers | _half_headers(*nests),
        links=frozenset((GEMM_UNIT, *_half_links(*nests))),
        form=writer.form,
        traits=writer.traits(),
    )


def _function(
    task: TaskStruct, body: list[str], buffers: Sequence[Buffer], written: Collection[int], symbols: int,
    over: Collection[int] = (),
) -> tuple[str, str]:  # fmt: skip
    """(name, text): the name is a digest of the body, so that equal kernels are one."""

    def declared(buffer: Buffer) -> str:
        kind = C_TYPE[buffer.dtype]
        if buffer.uid in written:
            return f"{kind} *"
        return f"const {kind} *" if buffer.uid in over else f"const {kind} *restrict "

    arguments = [f"{declared(b)}b{place} = t->b[{place}];" for place, b in enumerate(buffers)]
    arguments += [f"const int64_t s{place} = t->s[{place}];" for place in range(symbols)]
    text = "\n".join(["  " + line for line in arguments + body])
    name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    return name, f"void SMELT_NAME({name})(void *p, int64_t task) {{\n  {task.local}\n{text}\n}}\n"


def _half_headers(*nests: Nest) -> frozenset[str]:
    """What products with constant weights of 16 bits need."""
    return frozenset((HALF_PRODUCT,) if _half_links(*nests) else ())


def _half_links(*nests: Nest) -> tuple[str, ...]:
    return (HALF_UNIT,) if any(suffix(made) for nest in nests for made in nest.products) else ()


class _KernelWriter(RowPairWriter, WindowWriter):
    """Cuts the nest into units of work around its rows."""

    def kernel(self) -> Kernel:
        body = self._product_body() if self.nest.products else self._units_body()
        cost, over, task = self._unit_cost(), self._over(), self._task()
        buffers = [b for _, b in self.buffers.values()]
        name, whole = _function(task, body, buffers, self.written, len(self.symbols), over)
        return Kernel(
            name=name,
            text=whole,
            task=task,
            buffers=tuple(b for _, b in self.buffers.values()),
            symbols=tuple(self.symbols),
            units=self._units(),
            chunked=self._chunks(),
            unit_cost=cost,
            row_bytes=self._row_bytes(),
            product=self._product_sizes(),
            flops=flops(self.nest, sum(self.phases.cost)),
            moved_bytes=moved_bytes(self.nest),
            data_extents=data_extents(self.nest),
            whole_rows=bool(self.nest.inner),
            written=self.written,
            window=self._window_sizes(),
            over=over,
            row_affine=row_affine_buffers(self.nest),
            first_panels=self.first_panels(),
            headers=headers_of(self.nest) | self._own_headers() | _half_headers(self.nest),
            links=self._links(),
            traits=self._traits(),
        )

    def _traits(self) -> tuple[str, ...]:
        window = self._window()
        if window is not None:
            found = self._window_epilogue(window)
        else:
            found = self._register_epilogue() if self._plain_store() is None else None
        paired = not self.nest.products and self._paired()
        chosen = ((REGISTER_EPILOGUE,) if found is not None else ()) + ((ROW_PAIRS,) if paired else ())
        return (*chosen, *sorted(self.strided))

    def _own_headers(self) -> frozenset[str]:
        if not self.nest.products:
            return frozenset()
        window = self._window()
        if window is not None:
            return frozenset((WINDOW, HALF_WINDOW) if window.narrow else (WINDOW,))
        return frozenset((PRODUCT,))

    def _task(self) -> TaskStruct:
        if not self.nest.products:
            return LOOPS
        return GEMM if self._window() is None else WINDOW_TASK

    def _links(self) -> frozenset[str]:
        if not self.nest.products:
            return frozenset()
        window = self._window()
        return frozenset((GEMM_UNIT, *_half_links(self.nest)) if window is None else window_units(window))

    def _units(self) -> Ix:
        return product(v.extent for v in self._rows())

    def _chunk(self) -> int:
        """Elements of the vectorized loop that one unit takes."""
        cost = max(1, sum(self.phases.cost) or 1)
        return max(256, (CHUNK_COST // cost) // 64 * 64)

    def _chunks(self) -> tuple[Ix, int] | None:
        if not self.nest.columns or self.nest.vector is None or self.nest.products:
            return None
        return self.nest.vector.extent, self._chunk()

    def _unit_cost(self) -> Ix:
        per_point = ix(max(1, sum(self.phases.cost) // 2))
        if self.nest.columns:
            return per_point * self._inner_elements()
        return per_point * self._inner_elements() + 4

    def _row_bytes(self) -> Ix:
        total = ix(0)
        for buffer in self.phases.row_buffers:
            total = total + (buffer.elements * E.SIZE_BYTES[buffer.dtype] + 64)
        return total * 2 if self._paired() else total

    def _units_body(self) -> list[str]:
        """Cut out this task's units; walk them with a counter per parallel loop."""
        scope = self.scopes[0]
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        chunks = self._chunks()
        head = ["int64_t u = task * t->step;", "const int64_t stop = smelt_min(u + t->step, t->units);"]
        if chunks is not None:
            head.append(f"const int64_t wide = {self._integer(chunks[0])};")
            head.append(f"const int64_t parts = (wide + {chunks[1]} - 1) / {chunks[1]};")
        head += self._row_pointers()
        self._open()
        if chunks is not None:
            self._columns(chunks[1])
        else:
            self._row()
        unit = self.scopes.pop()
        decode = self._decode(rows, extents, chunks is not None)
        step = self._advance(rows, extents, chunks is not None)
        pairs = self._pair_loop(rows, extents, step) if self._paired() else []
        loop = [*pairs, "for (; u < stop; u++) {", *("  " + x for x in unit.lines + step), "}"]
        end = ["if (t->memory) smelt_release(t, local);"] if self.phases.row_buffers else []
        return [*scope.lines, *head, *decode, *loop, *end]

    def _row_pointers(self) -> list[str]:
        """Row buffers on the stack when they are small, else in a slot that the task claims."""
        if not self.phases.row_buffers:
            return []
        lines = [
            "char *local = t->memory ? smelt_claim(t) : __builtin_alloca_with_align((size_t)t->row_bytes, 512);",
            "char *row = local;",
        ]
        for paired in ("", PAIRED) if self._paired() else ("",):
            for buffer in self.phases.row_buffers:
                kind = C_TYPE[buffer.dtype]
                bytes_ = f"({self._integer(buffer.elements)}) * {E.SIZE_BYTES[buffer.dtype]}"
                lines.append(f"{kind} *{self._buffer(buffer)}{paired} = ({kind} *)SMELT_FENCED(row, {bytes_});")
                lines.append(f"row += ({bytes_} + 63) & ~(int64_t)63;")
        return lines

    def _columns(self, chunk: int) -> None:
        lines = self.scopes[-1].lines
        where = "part" if self._rows() else "u"
        lines.append(f"int64_t v = {where} * {chunk};")
        lines.append(f"const int64_t last = smelt_min(v + {chunk}, wide);")
        if not self._copies_plainly():
            self._column_loops("last")
            return
        store = self.nest.stores[0]
        assert isinstance(store.value.kind, E.Load)
        to, source = self._buffer(store.buffer), self._buffer(store.value.kind.buffer)
        there, here = self._integer(store.offset), self._integer(store.value.kind.offset)
        size = E.SIZE_BYTES[store.value.dtype]
        lines.append(f"__builtin_memcpy({to} + {there}, {source} + {here}, (size_t)(last - v) * {size});")

    def _copies_plainly(self) -> bool:
        """Contiguous elements to contiguous places: memcpy knows how to write without reading first."""
        nest = self.nest
        if len(nest.stores) != 1 or nest.reductions or nest.inner or not isinstance(nest.stores[0].value.kind, E.Load):
            return False
        store, load = nest.stores[0], nest.stores[0].value.kind
        if store.value.dtype != store.buffer.dtype or load.buffer.uid == store.buffer.uid or load.offset.data:
            return False
        steps = [self._affine(o) if self._ix_varying(o) else None for o in (store.offset, load.offset)]
        return all(s is not None and s.const == 1 for s in steps)
