"""Packing a run-time right operand into panels, as a kernel of its own.

Input: a `Pack`. Output: a `Kernel` whose units are panels. Invariant: panels are independent, so any cut into tasks
gives the same bytes.
"""

from __future__ import annotations

import hashlib

from smelt.codegen.cluster import Pack
from smelt.codegen.shared_panels import FEW_ROWS
from smelt.ir.kernel import Ix, Sym, Var, flat, fn, ix, of, product
from smelt.ir.kernel.index import coefficient, substitute

from .emit import Kernel
from .names import Integers

NOTE = "__atomic_store_n(&t->work->unusual, 1, __ATOMIC_RELAXED);"


def write_pack(pack: Pack) -> Kernel:
    """One unit is one panel of one batch index."""
    symbols: dict[Sym, int] = {}
    names: dict[Var, str] = {v: f"o{place}" for place, v in enumerate(pack.batch)}
    integers = Integers(lambda s: f"s{symbols.setdefault(s, len(symbols))}", lambda v: names[v])
    k_step, n_step = (coefficient(pack.source.offset, v) for v in (pack.depth, pack.column))
    assert k_step is not None and n_step is not None
    start = substitute(pack.source.offset, {pack.depth: ix(0), pack.column: ix(0)})
    shape = pack.target.shape
    target = flat((*(of(v) for v in pack.batch), ix(0), ix(0), ix(0)), shape)
    depth, columns, panels = (integers.text(s) for s in (pack.depth.extent, pack.column.extent, shape[-3]))
    panel = f"(float *)t->b[1] + {integers.text(target)} + p * ({depth}) * 16"
    decode: list[str] = []
    for var in reversed(pack.batch):
        extent = integers.text(var.extent)
        decode.append(f"    const int64_t {names[var]} = rest % ({extent}); rest /= ({extent});")
    lines = [
        "  for (int64_t u = task * t->step, stop = smelt_min(u + t->step, t->units); u < stop; u++) {",
        f"    const int64_t p = u % ({panels});",
        f"    int64_t rest = u / ({panels}); (void)rest;",
        *decode,
        f"    SMELT_PACK((const float *)t->b[0] + {integers.text(start)}, {integers.text(k_step[0])}, "
        f"{integers.text(n_step[0])}, {depth}, {columns}, (float *)t->b[1] + {integers.text(target)}, p, p + 1);",
        *([f"    if (!SMELT_MODEST({panel}, ({depth}) * 16)) {NOTE}"] if pack.watched else []),
        "  }",
    ]
    head = [f"  const int64_t s{place} = t->s[{place}];" for place in symbols.values()]
    text = "\n".join([*head, *lines])
    name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    whole = f"void SMELT_NAME({name})(void *p_, int64_t task) {{\n  const smelt_task *t = p_;\n{text}\n}}\n"
    moved = product(shape) * 8
    return Kernel(
        name=name,
        text=whole,
        buffers=(pack.source.buffer, pack.target),
        symbols=tuple(symbols),
        units=product(v.extent for v in pack.batch) * shape[-3] * _wanted(pack),
        chunked=None,
        unit_cost=pack.depth.extent * 16,
        row_bytes=ix(0),
        product=None,
        flops=ix(0),
        moved_bytes=moved,
        data_extents=(),
        whole_rows=False,
        written=frozenset((pack.target.uid,)),
    )


def _wanted(pack: Pack) -> Ix:
    """0 where the product has too few rows to read panels."""
    return ix(1) if pack.rows is None else fn("lt", FEW_ROWS, pack.rows)
