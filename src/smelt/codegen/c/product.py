"""Matrix products as C: a block of the product, then its epilogue row by row while the block is in cache.

Input: a nest with a product. Output: the body of its kernel; the sizes that its launch needs. Invariant: a block lies
on the stack when it is small and in a slot that the task claims otherwise, the row buffers of the epilogue behind it.
Where an epilogue needs whole rows, the launch may have the product computed apart first, cut by columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smelt.codegen.cluster import BatchedGemm, Matrix, Operand, PackedGemm, Segment, Store, UnpackedGemm
from smelt.codegen.kernel_forms import PackedContraction
from smelt.codegen.shared_panels import GEMV_ROWS
from smelt.ir.kernel import Buffer, Ix, Stored, Tensor, Var, flat, ix, of, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, coefficient, substitute

from .layout.products import reads_unpacked
from .names import C_TYPE, accumulator_name, constant
from .register_epilogue import RegisterEpilogue, find_register_epilogue
from .rows import RowWriter

TASK_OF_ROWS = (
    "const int64_t width = t->block_panels, first = smelt_row_block(t, task) * t->block_rows, "
    "p0 = smelt_column_block(t, task) * width;"
)
APART = "t->whole + first * all + p0 * 16"


@dataclass(frozen=True)
class ProductSizes:
    """`batches` products of `rows` x `depth` by `depth` x `columns`; `extra_bytes` of row buffers per task.

    `b2b` is set when a second product follows in the same task: the floats of a row of all blocks together. With
    `buffers` they are those beside the first product's, whose columns may come in parts, as those of so many buffers.
    `by_rows`: the b2b products have constant panels, which all rows share.
    `group` neighbouring batch indices read the same right operands, which few rows then read in one task.
    `copies` products have the same sizes and left operand. With `may_part` the product may be computed before an
    epilogue that needs whole rows; a `direct` one is stored as it is, and needs no block. Tasks of a `unpacked` one lay
    out the right operand themselves; the panels of a `halved` one have 16 bits.
    """

    batches: Ix
    rows: Ix
    columns: Ix
    depth: Ix
    extra_bytes: Ix
    whole_rows: bool
    b2b: Ix | None = None
    group: Ix = field(default_factory=lambda: ix(1))
    copies: int = 1
    may_part: bool = False
    direct: bool = False
    buffers: int | None = None
    by_rows: bool = False
    unpacked: bool = False
    halved: bool = False

    @property
    def wants(self) -> str:
        """What the launch is to provide for the epilogue."""
        if self.direct:
            return "SMELT_NO_BLOCK"
        return "SMELT_MAY_PART" if self.may_part else "SMELT_WHOLE_ROWS" if self.whole_rows else "SMELT_ANY_COLUMNS"

    def all(self) -> tuple[Ix, ...]:
        made = (self.batches, self.rows, self.columns, self.depth, self.extra_bytes)
        return made if self.b2b is None else (*made, self.b2b, self.group)


class ProductWriter(RowWriter):
    """Adds products: constant panels shared by all rows, or run-time operands batch by batch."""

    def _product_sizes(self) -> ProductSizes | None:
        nest = self.nest
        if not isinstance(nest.work, (PackedGemm, BatchedGemm, UnpackedGemm)):
            return None
        rows, batched = self._rows(), isinstance(nest.work, BatchedGemm)
        batch, over = (rows[:-1], rows[-1:]) if batched else ([], rows)
        columns = nest.work.made.shape[-1]
        return ProductSizes(
            product(v.extent for v in batch), product(v.extent for v in over), columns, self._depth_size(),
            self.extra_bytes(), bool(nest.inner), copies=len(nest.products),
            may_part=bool(nest.inner) and not batched, direct=self._plain_store() is not None,
            unpacked=isinstance(nest.work, UnpackedGemm), halved=bool(suffix(nest.work.made)),
        )  # fmt: skip

    def _depth_size(self) -> Ix:
        work = self.nest.work
        if isinstance(work, (BatchedGemm, UnpackedGemm)):
            return work.depth.extent
        assert isinstance(work, PackedGemm) and isinstance(work.made.definition, PackedContraction)
        return work.made.definition.a.shape[-1]

    @property
    def batched(self) -> BatchedGemm:
        """The product, of a nest that is known to have one of run-time operands batch by batch."""
        assert isinstance(self.nest.work, BatchedGemm)
        return self.nest.work

    def extra_bytes(self) -> Ix:
        """Row buffers of the epilogue, each on a boundary of its own."""
        total = ix(0)
        for buffer in self.phases.row_buffers:
            total = total + (buffer.elements * E.SIZE_BYTES[buffer.dtype] + 64)
        return total

    def _plain_store(self) -> Store | None:
        """The only store, when it puts the product of shared panels row by row where it goes."""
        nest = self.nest
        if not isinstance(nest.work, (PackedGemm, UnpackedGemm)) or nest.reductions:
            return None
        if len(nest.products) != 1 or len(nest.stores) != 1:
            return None
        store = nest.stores[0]
        kind = store.value.kind
        whole = flat(tuple(of(v) for v in nest.outer), tuple(v.extent for v in nest.outer))
        return store if isinstance(kind, E.Ref) and kind.tensor is nest.work.made and store.offset == whole else None

    def _product_body(self) -> list[str]:
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        columns = self._integer(self.nest.products[0].shape[-1])
        store = self._plain_store()
        if store is not None:
            return self._direct_body(store, extents, columns)
        epilogue = self._register_epilogue()
        if epilogue is not None:
            return self._register_epilogue_body(epilogue, extents, columns)
        self._open()
        self.scopes[-1].lines += [
            f"const float *{accumulator_name(place)} = block + {f'{place} * size + ' if place else ''}(u - first) * ld;"
            for place in range(len(self.nest.products))
        ]
        if self.nest.columns:
            self.scopes[-1].lines.append("int64_t v = c0;")
            self._column_loops("c1")
        else:
            self.scopes[-1].lines.append("(void)c1;")
            self._row()
        unit = self.scopes.pop()
        shared = not isinstance(self.nest.work, BatchedGemm)
        step = self._advance(rows, extents, False) if shared else [f"++{self.var_names[rows[-1]]};"]
        loop = ["for (; u < stop; u++) {", *("  " + x for x in unit.lines + step), "}"]
        lines = self._product_lines(rows, extents, columns, loop)
        return [*self.scopes[0].lines, *lines, "if (t->memory) smelt_release(t, local);"]

    def _product_lines(self, rows: list[Var], extents: list[str], columns: str, loop: list[str]) -> list[str]:
        """The task's block of the product, then the loop of its epilogue."""
        return [*self._product_head(rows, extents, columns), *loop]

    def _direct_body(self, store: Store, extents: list[str], columns: str) -> list[str]:
        total = " * ".join(f"({e})" for e in extents) or "1"
        to = f"{self._buffer(store.buffer)} + first * ({columns}) + c0"
        multiply = self._shared_products(total, to, columns, columns)
        return [TASK_OF_ROWS, *self._share_lines(total, columns), "(void)c1; (void)ld;", *multiply]

    def _register_epilogue(self) -> RegisterEpilogue | None:
        """The epilogue as something that a product of shared panels does to its sums before it stores them. What is
        added comes from far away, and tiles would wait for it: a loop over the block asks for more of it at once."""
        nest = self.nest
        if not isinstance(nest.work, PackedGemm) or nest.work.siblings or len(nest.stores) != 1:
            return None
        if nest.inner or nest.reductions or nest.stores[0].buffer.dtype != "f32":
            return None
        whole = flat(tuple(of(v) for v in nest.outer), tuple(v.extent for v in nest.outer))
        if nest.stores[0].offset != whole:
            return None
        found = find_register_epilogue(nest.stores[0], nest.work.made.shape[-1], nest.outer[-1])
        return found if found is not None and found.added is None else None

    def _register_epilogue_body(self, epilogue: RegisterEpilogue, extents: list[str], columns: str) -> list[str]:
        total, depth = " * ".join(f"({e})" for e in extents) or "1", self._integer(self._depth_size())
        left = self._shared_left(depth)
        made = self.nest.products[0]
        panels = self._buffer(panels_of_product(made))
        return [
            TASK_OF_ROWS,
            *self._share_lines(total, columns),
            *self._place_lines(),
            self._epilogue_text(epilogue, columns),
            epilogue_call(made, f"{left}, {panels}, {depth}, block, ld, count, p0, p1, &epilogue", self._next()),
            "if (t->memory) smelt_release(t, local);",
        ]

    def _epilogue_text(self, epilogue: RegisterEpilogue, columns: str) -> str:
        there = f"first * ({columns}) + c0"
        added = "NULL" if epilogue.added is None else f"{self._buffer(epilogue.added)} + {there}"
        return (
            f"const smelt_epilogue epilogue = {{.bias = {self._buffer(epilogue.bias)} + c0, .added = {added}, "
            f".to = {self._buffer(epilogue.to)} + {there}, .ld = {columns}, .columns = c1 - c0, "
            f".least = {constant(epilogue.least, 'f32')}, .most = {constant(epilogue.most, 'f32')}}};"
        )

    def _shared_products(self, rows: str, to: str, step: str, valid: str, by_parts: bool = False) -> list[str]:
        """The task's rows times the operands that all rows share; further products go `size` floats behind. `by_parts`:
        the terms that the launch names."""
        nest = self.nest
        if isinstance(nest.work, UnpackedGemm):
            return self._unpacked_product(nest.work.left, nest.work.right, rows, to, step)
        depth = self._integer(self._depth_size())
        left = self._shared_left(depth)
        behind = [f"{to} + {place} * size" if place else to for place in range(len(nest.products))]
        panels = [self._buffer(panels_of_product(made)) for made in nest.products]
        name, terms = ("SMELT_PRODUCT_K_BLOCK", f"{depth}, t->from, t->terms") if by_parts else ("SMELT_PRODUCT", depth)
        lines = [
            f"{name}{suffix(made)}({left}, {packed}, {terms}, {at}, {step}, count, p0, p1, {valid});"
            for made, at, packed in zip(nest.products, behind, panels, strict=True)
        ]
        if not by_parts:
            last = f"{left}, {panels[-1]}, {terms}, {behind[-1]}, {step}, count, p0, p1, {valid}"
            lines[-1] = product_call(nest.products[-1], last, self._next())
        return lines

    def _shared_left(self, depth: str) -> str:
        """The task's rows of a left operand that lies row by row, and the step between them."""
        work = self.nest.work
        assert isinstance(work, PackedGemm) and isinstance(work.left, Operand)
        return f"{self._buffer(work.left.buffer)} + first * ({depth}), {depth}"

    def _next(self) -> str:
        """What the product is followed by, where the task has its last columns."""
        return f"smelt_next_after(t->next, c1 >= {self._integer(self.nest.products[0].shape[-1])})"

    def first_panels(self) -> tuple[Buffer, Ix] | None:
        """The constant operand that is read first, and its depth."""
        work = self.nest.work
        if not isinstance(work, PackedGemm) or suffix(work.made):
            return None
        return panels_of_product(work.made), self._depth_size()

    def _unpacked_product(self, a: Matrix, b: Matrix, rows: str, to: str, step: str) -> list[str]:
        """Both operands unpacked. A GEMV reads the right one once, without panels."""
        left, down, across = self._matrix_text(a)
        right, k_step, n_step = self._matrix_text(b)
        depth, columns = self._integer(self._depth_size()), self._integer(self.nest.products[0].shape[-1])
        many = (
            f"SMELT_PRODUCT_UNPACKED({left} + first * ({down}), {down}, {across}, {right}, {k_step}, {n_step}, "
            f"{depth}, {to}, {step}, count, p0, p1, {columns});"
        )
        if not reads_unpacked(a, b):
            return [many]
        gemv = (
            f"SMELT_GEMV({left} + first * ({down}), {down}, {right} + c0 * ({n_step}), {k_step}, {n_step}, {depth}, "
            f"c1 - c0, {to}, {step}, count, 0);"
        )
        return [f"if (({rows}) <= {GEMV_ROWS}) {gemv}", f"else {many}"]

    def _matrix_text(self, matrix: Matrix) -> tuple[str, str, str]:
        """Where it starts, and the steps between its rows and its columns."""
        start = f"{self._buffer(matrix.buffer)} + {self.integers.text(matrix.start)}"
        return start, self.integers.text(matrix.down), self.integers.text(matrix.across)

    def _product_head(self, rows: list[Var], extents: list[str], columns: str) -> list[str]:
        batched = isinstance(self.nest.work, BatchedGemm)
        return self._batched_head(rows, extents, columns) if batched else self._shared_head(rows, extents, columns)

    def _shared_head(self, rows: list[Var], extents: list[str], columns: str) -> list[str]:
        """All rows of all batches share the panels, so a block may cross batches."""
        total = " * ".join(f"({e})" for e in extents) or "1"
        head, decode = TASK_OF_ROWS, self._decode(rows, extents, False)
        inside = self._shared_products(total, "block", "ld", "p1 * 16")
        if not self.nest.inner:
            return [head, *self._block_lines(total, columns), *inside, *decode]
        outside = self._shared_products(total, APART, "all", "p1 * 16", by_parts=True)
        apart = ["if (t->apart == SMELT_PRODUCT_ONLY) {", *("  " + x for x in outside), "  return;", "}"]
        inline = ["if (!t->apart) {", *("  " + x for x in inside), "}"]
        return [head, *self._whole_row_lines(total, columns, apart), *inline, *decode]

    def _whole_row_lines(self, rows: str, columns: str, apart: list[str]) -> list[str]:
        """The block is the task's own, or these rows of a product that was computed apart."""
        copies, extra = len(self.nest.products), self._integer(self.extra_bytes())
        return [
            *self._share_lines(rows, columns),
            f"const int64_t all = (({columns}) + 15) / 16 * 16, size = t->apart ? ({rows}) * all : t->block_rows * ld;",
            *apart,
            f"const int64_t held = t->apart ? 0 : {copies} * size * 4;",
            f"const int64_t slot = held + ((({extra}) + 63) & ~(int64_t)63);",
            "char *local = t->memory ? smelt_claim(t) : __builtin_alloca_with_align((size_t)slot, 512);",
            "float *block = t->apart ? t->whole + first * all : (float *)SMELT_FENCED(local, held);",
            *self._row_lines("held"),
        ]

    def _batched_head(self, rows: list[Var], extents: list[str], columns: str) -> list[str]:
        """One batch index per task; operands are read where they lie."""
        operand, row = self.batched.left, rows[-1]
        assert isinstance(operand, Operand)
        lines = [
            f"const int64_t width = t->block_panels, panels = (({columns}) + 15) / 16;",
            "const int64_t across = smelt_max((panels + width - 1) / width, 1);",
            "const int64_t per = t->row_blocks * across, within = task % per;",
            "const int64_t first = (within % t->row_blocks) * t->block_rows, p0 = within / t->row_blocks * width;",
            *self._block_lines(extents[-1], columns),
            "int64_t rest = task / per;",
        ]
        for place in range(len(rows) - 2, -1, -1):
            name = self.var_names[rows[place]]
            lines.append(f"const int64_t {name} = rest % ({extents[place]}); rest /= ({extents[place]});")
        lines.append(f"int64_t {self.var_names[row]} = first;")
        start = substitute(operand.offset, {self.batched.depth: ix(0)})
        step = coefficient(operand.offset, row)
        stride = self.integers.text(step[0]) if step is not None else "0"
        left = f"{self._buffer(operand.buffer)} + {self.integers.text(start)}"
        return [*lines, *self._multiply(left, stride, "block", "ld", "p0, p1, p1 * 16")]

    def _multiply(self, left: str, stride: str, block: str, ld: str, panels: str) -> list[str]:
        """The product of a run-time operand: by its panels or, for a GEMV, unpacked."""
        made, column = self.batched, self.nest.vector
        right = f"{self._buffer(made.right.buffer)} + {self.integers.text(made.right.offset)}"
        depth = self._integer(made.depth.extent)
        packed = self._by_panels(f"{left}, {stride}", right, depth, f"{block}, {ld}, count, {panels}")
        if made.unpacked is None or column is None:
            return [packed]
        offset = made.unpacked.offset
        steps = [coefficient(offset, v) for v in (made.depth, column)]
        down, across = (self.integers.text(s[0]) if s is not None else "0" for s in steps)
        start = self.integers.text(substitute(offset, {made.depth: ix(0), column: ix(0)}))
        there = f"{self._buffer(made.unpacked.buffer)} + {start}"
        gemv = [self._from_unpacked(f"{left}, {stride}", there, (down, across), depth, f"{block}, {ld}, count, 0")]
        if made.segments:
            gemv = [line for segment in made.segments for line in self._segment_lines(segment, left, stride, block, ld)]
        rows = self._integer(self._rows()[-1].extent)
        return [f"if (({rows}) <= {GEMV_ROWS}) {{", *("  " + x for x in gemv), "} else {", f"  {packed}", "}"]

    def _by_panels(self, left: str, right: str, depth: str, result: str) -> str:
        return f"SMELT_PRODUCT({left}, {right}, {depth}, {result});"

    def _from_unpacked(self, left: str, there: str, steps: tuple[str, str], depth: str, result: str) -> str:
        down, across = steps
        return f"SMELT_GEMV({left}, {there} + c0 * ({across}), {down}, {across}, {depth}, c1 - c0, {result});"

    def _segment_lines(self, segment: Segment, left: str, stride: str, block: str, ld: str) -> list[str]:
        """A GEMV with one segment of the operand; the last who reads it copies it to where it belongs."""
        made, column, text = self.batched, self.nest.vector, self.integers.text
        assert made.unpacked is not None and column is not None
        none: dict[Atom, Ix] = {made.depth: ix(0), column: ix(0)}
        whole = Operand(made.unpacked.buffer, segment.there)
        source = segment.source or whole
        there, here = (f"{self._buffer(o.buffer)} + {text(substitute(o.offset, none))}" for o in (whole, source))
        down, across = (_step(source, v) for v in (made.depth, column))
        start, extent = self._integer(segment.start), self._integer(segment.extent)
        if segment.along == column:
            sizes, a, to, add = f"{self._integer(made.depth.extent)}, {extent}", left, f"{block} + {start}", 0
        else:
            sizes, a, to, add = f"{extent}, c1 - c0", f"{left} + {start}", block, int(segment is not made.segments[0])
        lines = [f"SMELT_GEMV({a}, {stride}, {here}, {text(down)}, {text(across)}, {sizes}, {to}, {ld}, count, {add});"]
        if segment.source is None:
            return lines
        width = made.depth.extent if segment.along == column else column.extent
        step, step_here = (text(_step(o, segment.along)) for o in (whole, source))
        copy = f"SMELT_MOVE({there}, {step}, {here}, {step_here}, {extent}, {self._integer(width)});"
        return [*lines, f"if ((at + 1) % t->group == 0) {copy}"]

    def _block_lines(self, rows: str, columns: str) -> list[str]:
        """The task's share: `count` rows from `first` on, columns c0..c1-1 in whole panels."""
        held = f"{len(self.nest.products)} * size * 4"
        size = "const int64_t size = t->block_rows * width * 16;"
        return [*self._share_lines(rows, columns), *self._place_lines(), size, *self._row_lines(held)]

    def _place_lines(self) -> list[str]:
        """The block, and the row buffers behind it."""
        copies, extra = len(self.nest.products), self._integer(self.extra_bytes())
        return [
            f"const int64_t slot = SMELT_SLOT(t->block_rows, width * {copies}, {extra});",
            "char *local = t->memory ? smelt_claim(t) : __builtin_alloca_with_align((size_t)slot, 512);",
            f"float *block = (float *)SMELT_FENCED(local, t->block_rows * width * {copies * 64});",
        ]

    def _share_lines(self, rows: str, columns: str) -> list[str]:
        return [
            f"const int64_t count = smelt_min(t->block_rows, ({rows}) - first);",
            f"const int64_t p1 = smelt_min(p0 + width, (({columns}) + 15) / 16);",
            f"const int64_t c0 = p0 * 16, c1 = smelt_min(p1 * 16, {columns});",
            "const int64_t ld = (p1 - p0) * 16;",
        ]

    def _row_lines(self, held: str) -> list[str]:
        """The rows of the epilogue; its row buffers lie behind what the task holds."""
        return ["int64_t u = first;", "const int64_t stop = first + count;", *self._row_buffer_lines(held)]

    def _row_buffer_lines(self, held: str) -> list[str]:
        lines = [f"char *row = local + {held};"] if self.phases.row_buffers else []
        for buffer in self.phases.row_buffers:
            kind, bytes_ = C_TYPE[buffer.dtype], f"({self._integer(buffer.elements)}) * {E.SIZE_BYTES[buffer.dtype]}"
            lines.append(f"{kind} *{self._buffer(buffer)} = ({kind} *)SMELT_FENCED(row, {bytes_});")
            lines.append(f"row += ({bytes_} + 63) & ~(int64_t)63;")
        return lines


def _step(operand: Operand, var: Var) -> Ix:
    step = coefficient(operand.offset, var)
    assert step is not None
    return step[0]


def suffix(made: Tensor) -> str:
    """What the functions of a product with constant weights end in, by how these are stored."""
    definition = made.definition
    return f"_{definition.narrow}" if isinstance(definition, PackedContraction) and definition.narrow else ""


def product_call(made: Tensor, arguments: str, after: str) -> str:
    """The product that is followed by what `after` says."""
    if suffix(made):
        return f"SMELT_PRODUCT{suffix(made)}({arguments});"
    return f"SMELT_PRODUCT_PREFETCH({arguments}, {after});"


def epilogue_call(made: Tensor, arguments: str, after: str) -> str:
    """The same with a register epilogue."""
    if suffix(made):
        return f"SMELT_PRODUCT_EPILOGUE{suffix(made)}({arguments});"
    return f"SMELT_PRODUCT_EPILOGUE({arguments}, {after});"


def panels_of_product(made: Tensor) -> Buffer:
    assert isinstance(made.definition, PackedContraction) and isinstance(made.definition.b.definition, Stored)
    return made.definition.b.definition.buffer
