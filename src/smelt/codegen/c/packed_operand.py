"""Packing a run-time right operand into panels, as a kernel of its own.

Input: a `Pack`. Output: a `Kernel` whose units are panels. Invariant: panels are independent, so any cut into tasks
gives the same bytes.
"""

from __future__ import annotations

import hashlib

from smelt.codegen.cluster import Pack
from smelt.codegen.settings import GEMM_UNIT
from smelt.codegen.shared_panels import GEMV_ROWS
from smelt.ir.kernel import Ix, Sym, Var, flat, fn, ix, of, product
from smelt.ir.kernel.index import coefficient, substitute

from .emit import Kernel
from .headers import PRODUCT
from .names import Integers
from .row_access import RowIndex, is_own
from .tasks import PACK

NOTE = "__atomic_store_n(&t->work->unusual, 1, __ATOMIC_RELAXED);"


def write_pack(pack: Pack) -> Kernel:
    """One unit is one panel of one batch index. Where the source is made row by row, a task may take rows instead."""
    return _PackWriter(pack).kernel()


class _PackWriter:
    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.symbols: dict[Sym, int] = {}
        self.names: dict[Var, str] = {v: f"o{place}" for place, v in enumerate(pack.batch)}
        self.integers = Integers(lambda s: f"s{self.symbols.setdefault(s, len(self.symbols))}", lambda v: self.names[v])
        k_step, n_step = (coefficient(pack.source.offset, v) for v in (pack.depth, pack.column))
        assert k_step is not None and n_step is not None
        self.steps = self._text(k_step[0]), self._text(n_step[0])
        self.source = self._text(substitute(pack.source.offset, {pack.depth: ix(0), pack.column: ix(0)}))
        target = flat((*(of(v) for v in pack.batch), ix(0), ix(0), ix(0)), pack.target.shape)
        self.target = f"(float *)t->b[1] + {self._text(target)}"
        self.depth, self.columns = self._text(pack.depth.extent), self._text(pack.column.extent)
        self.panels = self._text(pack.target.shape[-3])

    def kernel(self) -> Kernel:
        pack, rows = self.pack, _rows_of(self.pack)
        body = [*(self._by_rows(rows) if rows is not None else []), *self._by_panels()]
        head = [f"  const int64_t s{place} = t->s[{place}];" for place in self.symbols.values()]
        text = "\n".join([*head, *body])
        name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        whole = f"void SMELT_NAME({name})(void *p_, int64_t task) {{\n  const {PACK.name} *t = p_;\n{text}\n}}\n"
        return Kernel(
            name=name,
            text=whole,
            task=PACK,
            buffers=(pack.source.buffer, pack.target),
            symbols=tuple(self.symbols),
            units=product(v.extent for v in pack.batch) * pack.target.shape[-3] * _wanted(pack),
            chunked=None,
            unit_cost=pack.depth.extent * 16,
            row_bytes=ix(0),
            product=None,
            flops=ix(0),
            moved_bytes=product(pack.target.shape) * 8,
            data_extents=(),
            whole_rows=False,
            written=frozenset((pack.target.uid,)),
            row_affine=frozenset() if rows is None else frozenset((pack.source.buffer.uid,)),
            row_sizes=None if rows is None else rows.sizes,
            headers=frozenset((PRODUCT,)),
            links=frozenset((GEMM_UNIT,)),
        )

    def _text(self, size: Ix) -> str:
        return self.integers.text(size)

    def _note(self, panel: str, deep: str) -> list[str]:
        return [f"if (!SMELT_MODEST({panel}, ({deep}) * 16)) {NOTE}"] if self.pack.watched else []

    def _by_panels(self) -> list[str]:
        decode: list[str] = []
        for var in reversed(self.pack.batch):
            extent = self._text(var.extent)
            decode.append(f"    const int64_t {self.names[var]} = rest % ({extent}); rest /= ({extent});")
        return [
            "  for (int64_t u = task * t->step, stop = smelt_min(u + t->step, t->units); u < stop; u++) {",
            f"    const int64_t p = u % ({self.panels});",
            f"    int64_t rest = u / ({self.panels}); (void)rest;",
            *decode,
            f"    {self._panel()}",
            *("    " + x for x in self._note(f"{self.target} + p * ({self.depth}) * 16", self.depth)),
            "  }",
        ]

    def _panel(self) -> str:
        start = f"(const float *)t->b[0] + {self.source}"
        return f"SMELT_PACK({start}, {', '.join(self.steps)}, {self.depth}, {self.columns}, {self.target}, p, p + 1);"

    def _by_rows(self, rows: RowIndex) -> list[str]:
        """Rows `at` to `at + count` of one batch index, which are whole panels of columns or a part of each panel."""
        extents = [self._text(v.extent) for v in rows.batch]
        total = " * ".join(f"({e})" for e in [*extents, self._text(rows.row.extent)])
        lines = [
            f"const int64_t first = task * t->block_rows, count = smelt_min(t->block_rows, {total} - first);",
            f"const int64_t at = first % ({self._text(rows.row.extent)});",
            f"int64_t rest = first / ({self._text(rows.row.extent)}); (void)rest;",
        ]
        for var, extent in zip(reversed(rows.batch), reversed(extents), strict=True):
            lines.append(f"const int64_t {self.names[var]} = rest % ({extent}); rest /= ({extent});")
        for var in rows.others:
            name = self.names[var]
            lines.append(f"for (int64_t {name} = 0; {name} < {self._text(var.extent)}; {name}++)")
        lines += self._columns_of_rows() if rows.row == self.pack.column else self._parts_of_panels()
        return ["  if (t->blocks.rows) {", *("    " + x for x in lines), "    return;", "  }"]

    def _columns_of_rows(self) -> list[str]:
        note = self._note(f"{self.target} + p * ({self.depth}) * 16", self.depth)
        return ["for (int64_t p = at / 16; p * 16 < at + count; p++) {", f"  {self._panel()}", *note, "}"]

    def _parts_of_panels(self) -> list[str]:
        k_step, n_step = self.steps
        here = f"(const float *)t->b[0] + {self.source} + at * ({k_step}) + p * 16 * ({n_step})"
        there = f"{self.target} + (p * ({self.depth}) + at) * 16"
        packed = f"SMELT_PACK({here}, {k_step}, {n_step}, count, ({self.columns}) - p * 16, {there}, 0, 1);"
        return [f"for (int64_t p = 0; p < {self.panels}; p++) {{", f"  {packed}", *self._note(there, "count"), "}"]


def _rows_of(pack: Pack) -> RowIndex | None:
    """How the rows of the source, made row by row, are counted by the operand's own indices."""
    buffer, offset = pack.source.buffer, pack.source.offset
    for row in (pack.column, pack.depth):
        for count in range(len(pack.batch) + 1):
            index = RowIndex(tuple(pack.batch[:count]), row, tuple(pack.batch[count:]))
            if is_own(buffer, offset, index.vars):
                return index
    return None


def _wanted(pack: Pack) -> Ix:
    """0 where the product is a GEMV, which reads no panels."""
    return ix(1) if pack.rows is None else fn("lt", GEMV_ROWS, pack.rows)
