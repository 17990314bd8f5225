"""A loop nest as C: one function over vec.h's vocabulary.

Input: a `Nest`. Output: a `Kernel`: its text, and the buffers and sizes it expects in `smelt_task`. Invariant: names
are generated; equal nests give equal text, so that kernels can be shared between regions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Ix, MatMul, Stored, Sym, Tensor, Var, ix, product
from smelt.ir.kernel import expr as E

from .measure import data_extents, flops, moved_bytes
from .names import C_TYPE
from .rows import RowWriter

CHUNK_COST = 6000


@dataclass(frozen=True)
class Kernel:
    """`units` and `unit_cost` are size expressions; `row_bytes` is the row buffer that one task needs."""

    name: str
    text: str
    buffers: tuple[Buffer, ...]
    symbols: tuple[Sym, ...]
    units: Ix
    chunked: tuple[Ix, int] | None
    unit_cost: Ix
    row_bytes: Ix
    matmul: MatMul | None
    flops: Ix
    moved_bytes: Ix
    data_extents: tuple[Ix, ...]
    whole_rows: bool


def write_kernel(nest: Nest) -> Kernel:
    return _KernelWriter(nest).kernel()


class _KernelWriter(RowWriter):
    """Cuts the nest into units of work around its rows."""

    def kernel(self) -> Kernel:
        body = self._matmul_body() if self.nest.matmul is not None else self._units_body()
        cost = self._unit_cost()
        arguments = [
            f"{C_TYPE[b.dtype]} *b{place} = t->b[{place}];"
            if b.uid in self.written
            else f"const {C_TYPE[b.dtype]} *restrict b{place} = t->b[{place}];"
            for place, b in self.buffers.values()
        ]
        arguments += [f"const int64_t s{place} = t->s[{place}];" for place in self.symbols.values()]
        text = "\n".join(["  " + line for line in arguments + body])
        name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        whole = f"static void SMELT_NAME({name})(void *p, int64_t task) {{\n  const smelt_task *t = p;\n{text}\n}}\n"
        return Kernel(
            name=name,
            text=whole,
            buffers=tuple(b for _, b in self.buffers.values()),
            symbols=tuple(self.symbols),
            units=self._units(),
            chunked=self._chunks(),
            unit_cost=cost,
            row_bytes=self._row_bytes(),
            matmul=self._matmul_definition(),
            flops=flops(self.nest, sum(self.phases.cost)),
            moved_bytes=moved_bytes(self.nest),
            data_extents=data_extents(self.nest),
            whole_rows=bool(self.nest.inner),
        )

    def _matmul_definition(self) -> MatMul | None:
        definition = self.nest.matmul.definition if self.nest.matmul is not None else None
        return definition if isinstance(definition, MatMul) else None

    def _rows(self) -> list[Var]:
        return [v for v in self.nest.outer if v != self.nest.vector]

    def _units(self) -> Ix:
        return product(v.extent for v in self._rows())

    def _chunk(self) -> int:
        """Elements of the vectorized loop that one unit takes."""
        cost = max(1, sum(self.phases.cost) or 1)
        return max(256, (CHUNK_COST // cost) // 64 * 64)

    def _chunks(self) -> tuple[Ix, int] | None:
        if not self.nest.columns or self.nest.vector is None or self.nest.matmul is not None:
            return None
        return self.nest.vector.extent, self._chunk()

    def _inner_elements(self) -> Ix:
        return product(v.extent for v in self.nest.inner)

    def _unit_cost(self) -> Ix:
        per_point = ix(max(1, sum(self.phases.cost) // 2))
        if self.nest.columns:
            return per_point * self._inner_elements()
        return per_point * self._inner_elements() + 4

    def _row_bytes(self) -> Ix:
        total = ix(0)
        for buffer in self.phases.row_buffers:
            total = total + (buffer.elements * E.SIZE_BYTES[buffer.dtype] + 64)
        return total

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
        return [*scope.lines, *head, *decode, "for (; u < stop; u++) {", *("  " + x for x in unit.lines + step), "}"]

    def _row_pointers(self) -> list[str]:
        """Row buffers on the stack when they are small, else this task's slot."""
        if not self.phases.row_buffers:
            return []
        lines = [
            "char *row = t->rows ? t->rows + task * t->row_bytes",
            "                    : __builtin_alloca_with_align((size_t)t->row_bytes, 512);",
        ]
        for place, buffer in enumerate(self.phases.row_buffers):
            name = self._buffer(buffer)
            kind = C_TYPE[buffer.dtype]
            lines.append(f"{kind} *{name} = ({kind} *)row;")
            if place + 1 < len(self.phases.row_buffers):
                size = self._integer(buffer.elements)
                lines.append(f"row += (({size}) * {E.SIZE_BYTES[buffer.dtype]} + 63) & ~(int64_t)63;")
        return lines

    def _columns(self, chunk: int) -> None:
        lines = self.scopes[-1].lines
        where = "part" if self._rows() else "u"
        lines.append(f"int64_t v = {where} * {chunk};")
        lines.append(f"const int64_t last = smelt_min(v + {chunk}, wide);")
        self._column_loops("last")

    def _column_loops(self, stop: str) -> None:
        """Whole vectors from v to `stop`, several at a time where there are no inner loops, then the tail."""
        block: list[str] = []
        copies = self._column_copies()
        if copies > 1:
            block.append(f"for (; v + {copies} * SMELT_L <= {stop}; v += {copies} * SMELT_L) {{")
            block += self._interleaved(copies, lambda _: self._row())
            block.append("}")
        block += self._collected_row(f"for (; v + SMELT_L <= {stop}; v += SMELT_L) {{", "}")
        self.tail = True
        block += self._collected_row(f"if (v < {stop}) {{ const int64_t n = {stop} - v;", "}")
        self.tail = False
        self.scopes[-1].lines += block

    def _column_copies(self) -> int:
        """Chains of costly functions wait for themselves; a second and a fourth vector fill the gaps."""
        cost = sum(self.phases.cost)
        if self.nest.inner or self.nest.scan is not None or cost < 8:
            return 1
        return 4 if cost <= 200 else 2

    def _collected_row(self, head: str, tail: str) -> list[str]:
        self._open()
        self._row()
        scope = self.scopes.pop()
        return [head, *("  " + line for line in scope.lines), tail]

    def _decode(self, rows: Sequence[Var], extents: Sequence[str], parted: bool) -> list[str]:
        if not rows:
            return []
        lines = ["int64_t rest = u;"]
        if parted:
            lines += ["int64_t part = parts ? rest % parts : 0;", "rest = parts ? rest / parts : 0;"]
        for place in range(len(rows) - 1, 0, -1):
            name = self.var_names[rows[place]]
            lines.append(f"int64_t {name} = rest % ({extents[place]}); rest /= ({extents[place]});")
        lines.append(f"int64_t {self.var_names[rows[0]]} = rest;")
        return lines

    def _advance(self, rows: Sequence[Var], extents: Sequence[str], parted: bool) -> list[str]:
        if not rows:
            return []
        lines = ["if (++part < parts) continue;", "part = 0;"] if parted else []
        for place in range(len(rows) - 1, 0, -1):
            name = self.var_names[rows[place]]
            lines += [f"if (++{name} < {extents[place]}) continue;", f"{name} = 0;"]
        lines.append(f"++{self.var_names[rows[0]]};")
        return lines

    def _matmul_body(self) -> list[str]:
        """A block of rows: the product into a local block, then the epilogue row by row."""
        nest = self.nest
        assert nest.matmul is not None and nest.lhs is not None and isinstance(nest.matmul.definition, MatMul)
        a, b = self._buffer(nest.lhs), self._buffer(_buffer_of(nest.matmul.definition.b))
        depth = self._integer(nest.matmul.definition.a.shape[-1])
        columns = self._integer(nest.matmul.shape[-1])
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        head = [
            "const int64_t first = (task % t->units) * t->step;",
            f"const int64_t count = smelt_min(t->step, ({' * '.join(f'({e})' for e in extents) or '1'}) - first);",
            "const int64_t width = t->row_bytes, p0 = task / t->units * width;",
            f"const int64_t p1 = smelt_min(p0 + width, (({columns}) + 15) / 16);",
            f"const int64_t c0 = p0 * 16, c1 = smelt_min(p1 * 16, {columns}), ld = (p1 - p0) * 16;",
            "float *block = (float *)(t->rows + task * ((t->step * width * 16 * 4 + 63) & ~(int64_t)63));",
            f"SMELT_PRODUCT({a} + first * ({depth}), {depth}, {b}, {depth}, block, ld, count, p0, p1, p1 * 16);",
            "int64_t u = first;",
            "const int64_t stop = first + count;",
        ]
        self._open()
        self.scopes[-1].lines.append("const float *acc = block + (u - first) * ld;")
        if nest.columns:
            self._matmul_columns()
        else:
            self.scopes[-1].lines.append("(void)c1;")
            self._row()
        unit = self.scopes.pop()
        decode = self._decode(rows, extents, False)
        step = self._advance(rows, extents, False)
        return [*self.scopes[0].lines, *head, *self._row_pointers_stack(), *decode,
                "for (; u < stop; u++) {", *("  " + x for x in unit.lines + step), "}"]  # fmt: skip

    def _row_pointers_stack(self) -> list[str]:
        lines: list[str] = []
        for buffer in self.phases.row_buffers:
            name, size = self._buffer(buffer), self._integer(buffer.elements)
            kind = C_TYPE[buffer.dtype]
            lines.append(
                f"{kind} *{name} = __builtin_alloca_with_align((size_t)({size}) * {E.SIZE_BYTES[buffer.dtype]}, 512);"
            )
        return lines

    def _matmul_columns(self) -> None:
        self.scopes[-1].lines.append("int64_t v = c0;")
        self._column_loops("c1")


def _buffer_of(tensor: Tensor) -> Buffer:
    assert isinstance(tensor.definition, Stored)
    return tensor.definition.buffer
