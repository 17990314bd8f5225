"""Back-to-back GEMM as one kernel: the consumer reads the producer's rows from the task's block.

Input: the nests of a producer and its consumer. Output: the lines of the kernel. Invariant: a task owns some rows of
one batch index in both; what the producer keeps replaces its product in the block only after its last reader.
"""

from __future__ import annotations

from typing import ClassVar

from smelt.codegen.cluster import BatchedGemm, Operand, Store
from smelt.codegen.kernel_forms import KernelForm
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Contraction, Ix, Sym, Tensor, ix, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import coefficient, substitute

from .headers import PRODUCT
from .layout.products import BACK_TO_BACK
from .mask_bounds import MaskBounds, bias_of, mask_bounds_lines
from .names import C_TYPE
from .product import ProductSizes, ProductWriter
from .traits import KV_SEGMENTS, MASK_BOUNDS


class FusedGemmWriter(ProductWriter):
    """One GEMM of a back-to-back pair, in a block of its own of C. Buffers and sizes are numbered for the whole
    kernel."""

    def __init__(self, nest: Nest, kept: tuple[Tensor, Buffer] | None = None) -> None:
        super().__init__(nest)
        self.kept = kept[1] if kept is not None else None
        work = nest.work
        if isinstance(work, BatchedGemm) and work.unpacked and any(segment.source for segment in work.segments):
            self.written = frozenset((*self.written, work.unpacked.buffer.uid))
        self.bias = bias_of(nest) if kept is not None and isinstance(work, BatchedGemm) else None
        self.within = self.zero_padded = False
        self.low, self.limit, self.aside = "low", "limit", "kept"
        self.last = self._take_kept()
        self.in_place = self._may_overwrite()
        if self.kept is not None:
            self.row_names[self.kept.uid] = "acc" if self.in_place else "aside"

    def share(self, buffers: dict[int, tuple[int, Buffer]], symbols: dict[Sym, int]) -> None:
        self.buffers, self.symbols = buffers, symbols

    def _take_kept(self) -> dict[int, Store]:
        """The store into the block, by phase: it is emitted after everything else of its phase."""
        found: dict[int, Store] = {}
        for phase, stores in enumerate(self.phases.stores):
            for store in [s for s in stores if self.kept is not None and s.buffer is self.kept]:
                stores.remove(store)
                found[phase] = store
        return found

    def _may_overwrite(self) -> bool:
        """No later pass reads the product once a row of it has been replaced."""
        later = [made for phase in self.last for made in self.phases.made[phase + 1 :]]
        read = {node.uid for s in self.nest.stores for node in E.walk(s.value) if self._is_product(node)}
        read |= {node.uid for r in self.nest.reductions for node in E.walk(r.value) if self._is_product(node)}
        return not any(uid in made for made in later for uid in read)

    def _is_product(self, node: E.Expr) -> bool:
        return isinstance(node.kind, E.Ref) and node.kind.tensor is self.nest.products[0]

    def _body_end(self, phase: int) -> None:
        if phase in self.last and not self._is_product(self.last[phase].value):
            self._emit_store(self.last[phase])

    def _span(self) -> tuple[str, str]:
        return (self.low, self.limit) if self.bias is not None else super()._span()

    def _by_panels(self, left: str, right: str, depth: str, result: str) -> str:
        if not self.within:
            return super()._by_panels(left, right, depth, result)
        deep = f"{self.limit} - {self.low}"
        return f"SMELT_PRODUCT_WITHIN({left}, {right} + {self.low} * 16, {depth}, {deep}, {result});"

    def _from_unpacked(self, left: str, there: str, steps: tuple[str, str], depth: str, result: str) -> str:
        """Columns of the producer's operand, rows of the consumer's."""
        down, across = steps
        some, start = f"{self.limit} - {self.low}", f"{there} + {self.low}"
        if self._parted():
            return f"SMELT_GEMV({left}, {start} * ({across}), {down}, {across}, {depth}, {some}, {result});"
        if self.within:
            return f"SMELT_GEMV({left}, {start} * ({down}), {down}, {across}, {some}, c1 - c0, {result});"
        return super()._from_unpacked(left, there, steps, depth, result)

    def _parted(self) -> bool:
        """Whether not all columns of the product are computed at once, or at all."""
        return self.bias is not None

    def is_zero_padded(self) -> bool:
        """Whether what is masked in all rows is zeros; segments are read whole."""
        work, made = self.batched, self.nest.products[0].definition
        return isinstance(made, Contraction) and made.zero_padded and not work.segments

    def _mask_bounds(self, left: str, stride: str) -> list[str]:
        """Columns from `low` to `limit` are all that the rows of the block look at."""
        assert self.bias is not None
        self._open()
        whole, part = self._bias_at(tail=False), self._bias_at(tail=True)
        row = self.scopes.pop().lines
        return mask_bounds_lines(
            MaskBounds(
                self._integer(self.columns), self.height(), self.var_names[self._rows()[-1]], left, stride,
                self._integer(self.batched.depth.extent), row, whole, part, self.zero_padded,
            )
        )  # fmt: skip

    def _bias_at(self, *, tail: bool) -> tuple[str, list[str]]:
        assert self.bias is not None
        self.tail = tail
        self._open()
        name = self._value(self.bias)
        self.tail = False
        return name, self.scopes.pop().lines

    def width(self) -> str:
        """Columns of the product, rounded up to whole panels."""
        return f"((({self._integer(self.columns)}) + 15) / 16 * 16)"

    def mask_bounds_end(self) -> str:
        return self._integer(self.columns)

    def height(self) -> str:
        return self._integer(self._rows()[-1].extent)

    def row_pointers(self, prefix: str) -> list[str]:
        """Row buffers one after the other from `row` on."""
        lines: list[str] = []
        for place, buffer in enumerate(self.phases.row_buffers):
            name = self.row_names[buffer.uid] = f"{prefix}{place}"
            kind, bytes_ = C_TYPE[buffer.dtype], f"({self._integer(buffer.elements)}) * {E.SIZE_BYTES[buffer.dtype]}"
            lines.append(f"{kind} *{name} = ({kind} *)SMELT_FENCED(row, {bytes_});")
            lines.append(f"row += ({bytes_} + 63) & ~(int64_t)63;")
        return lines

    @property
    def columns(self) -> Ix:
        return self.nest.products[0].shape[-1]

    def left(self) -> tuple[str, str]:
        """Where the producer's left operand starts, and the step between its rows."""
        left = self.batched.left
        assert isinstance(left, Operand)
        step = coefficient(left.offset, self._rows()[-1])
        start = self.integers.text(substitute(left.offset, {self.batched.depth: ix(0)}))
        return f"{self._buffer(left.buffer)} + {start}", self.integers.text(step[0]) if step is not None else "0"

    def lines(self, left: tuple[str, str] | None, block: str, ld: str) -> list[str]:
        """The product into `block`, then the epilogue row by row."""
        loop = self.rows_of(block, ld)
        a, stride = left or self.left()
        call = self.product_of((a, stride), block, ld)
        if self.bias is not None:
            panels = f"low / 16, (limit + 15) / 16, {ld}"
            call = [*self._mask_bounds(a, stride), *self._multiply(a, stride, f"{block} + low", ld, panels)]
        return self.scoped([*call, *loop])

    def product_of(self, left: tuple[str, str], block: str, ld: str) -> list[str]:
        """All columns of the product."""
        return self._multiply(*left, block, ld, f"0, {ld} / 16, {ld}")

    def rows_of(self, block: str, ld: str) -> list[str]:
        """The epilogue, row by row."""
        unit, row = self._unit(block, ld), self.var_names[self._rows()[-1]]
        return ["for (int64_t u = 0; u < count; u++) {", *("  " + x for x in unit), f"  ++{row};", "}"] if unit else []

    def scoped(self, lines: list[str]) -> list[str]:
        """A block of C with the batch indices of the task and what belongs to the whole kernel."""
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        columns = self._integer(self.columns)
        decode = ["int64_t rest = at / t->row_blocks; (void)rest;"]
        for place in range(len(rows) - 2, -1, -1):
            name, extent = self.var_names[rows[place]], extents[place]
            decode.append(f"const int64_t {name} = rest % ({extent}); rest /= ({extent}); (void){name};")
        row = f"int64_t {self.var_names[rows[-1]]} = first; (void){self.var_names[rows[-1]]};"
        head = [*self.scopes[0].lines, *decode, row, f"const int64_t c0 = 0, c1 = {columns};", "(void)c0; (void)c1;"]
        return ["{", *("  " + x for x in [*head, *lines]), "}"]

    def _unit(self, block: str, ld: str) -> list[str]:
        self._open()
        if self.nest.columns:
            self.scopes[-1].lines.append("int64_t v = c0;")
            self._column_loops("c1")
        else:
            self._row()
        made = self.scopes.pop().lines
        if not self.in_place:
            made.insert(0, f"float *aside = {self.aside} + u * {ld};")
        return [f"float *acc = {block} + u * {ld}; (void)acc;", *made] if made else []


class B2bGemmWriter:
    """The kernel's body around its two products."""

    headers: ClassVar[frozenset[str]] = frozenset((PRODUCT,))
    form: ClassVar[KernelForm] = BACK_TO_BACK

    def __init__(self, producer: Nest, kept: tuple[Tensor, Buffer], consumer: Nest) -> None:
        self.producer, self.consumer = self._produce(producer, kept), FusedGemmWriter(consumer)
        self.consumer.share(self.producer.buffers, self.producer.symbols)
        self.producer.zero_padded = self.producer.is_zero_padded() and self.consumer.is_zero_padded()

    def _produce(self, producer: Nest, kept: tuple[Tensor, Buffer]) -> FusedGemmWriter:
        return FusedGemmWriter(producer, kept)

    @property
    def buffers(self) -> list[Buffer]:
        return [b for _, b in self.producer.buffers.values()]

    @property
    def symbols(self) -> dict[Sym, int]:
        return self.producer.symbols

    @property
    def written(self) -> frozenset[int]:
        return self.producer.written | self.consumer.written

    def traits(self) -> tuple[str, ...]:
        works = (self.producer.nest.work, self.consumer.nest.work)
        segments = any(isinstance(work, BatchedGemm) and work.segments for work in works)
        bounds = (MASK_BOUNDS,) if self.producer.bias is not None else ()
        strided = sorted(self.producer.strided | self.consumer.strided)
        return (*bounds, *((KV_SEGMENTS,) if segments else ()), *strided)

    def cost(self) -> int:
        return sum(self.producer.phases.cost) + sum(self.consumer.phases.cost)

    def sizes(self) -> ProductSizes:
        *batch, row = (v.extent for v in self.producer.nest.outer if v != self.producer.nest.vector)
        made = self.producer.batched
        blocks = self.producer.columns + 16 if self.producer.in_place else 2 * self.producer.columns + 32
        return ProductSizes(
            product(batch), row, self.producer.columns, made.depth.extent,
            self.producer.extra_bytes() + self.consumer.extra_bytes(), True, blocks + self.consumer.columns + 16,
            made.group,
        )  # fmt: skip

    def body(self) -> list[str]:
        first, second = self.producer, self.consumer
        head = [
            "const int64_t first = (at % t->row_blocks) * t->block_rows;",
            f"const int64_t count = smelt_min(t->block_rows, ({first.height()}) - first);",
            f"const int64_t ld = {first.width()}, ld2 = {second.width()};",
            *block_pointers(("block", "ld"), ("block2", "ld2"), *([] if first.in_place else [("kept", "ld")])),
            "(void)row;",
            *first.row_pointers("w"),
            *second.row_pointers("y"),
        ]
        kept, ld = ("block", "ld") if first.in_place else ("kept", "ld")
        if first.bias is not None:
            head.append(f"int64_t low = 0, limit = {first.mask_bounds_end()};")
            second.within, kept = True, f"{kept} + low"
        lines = [*first.lines(None, "block", "ld"), *second.lines((kept, ld), "block2", "ld2")]
        return self.task_lines([*head, *lines])

    def task_lines(self, lines: list[str]) -> list[str]:
        """What a task does for each of its batch indices."""
        return [
            "char *local = t->memory ? smelt_claim(t) : __builtin_alloca_with_align((size_t)t->block_bytes, 512);",
            "for (int64_t at = task * t->group; at < (task + 1) * t->group; at++) {",
            *("  " + line for line in lines),
            "}",
            "if (t->memory) smelt_release(t, local);",
        ]


def block_pointers(*blocks: tuple[str, str]) -> list[str]:
    """Blocks of a task's rows, each a name and its floats in a row, one after the other; `row` is behind them."""
    lines = ["char *row = local;"]
    for name, wide in blocks:
        lines.append(f"float *{name} = (float *)SMELT_FENCED(row, t->block_rows * {wide} * 4);")
        lines.append(f"row += t->block_rows * {wide} * 4;")
    return lines
