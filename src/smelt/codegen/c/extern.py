"""A call of a function written in C, as the region's other kernels are described and launched.

Input: an `Extern`. Output: a `Kernel` without text; the lines that call it; the unit that defines it. Invariant: a
function's name is an identifier of smelt's or of a plug-in's, never a string of a model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final

from smelt.codegen.cluster import Extern
from smelt.ir.kernel import Buffer, Ix, Sym, ix
from smelt.ir.kernel import expr as E
from smelt.ir.records import Unit

from .emit import Kernel
from .names import constant
from .tasks import FUNCTION

_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]*\Z")


def write_extern(call: Extern) -> Kernel:
    """`units` is 1: the function itself cuts its work."""
    function = call.function
    assert _IDENTIFIER.match(function.name), f"{function.name!r} is no name for a function"
    buffers = tuple(b for b in call.arguments if b is not None)
    written = [b for b in (*call.results, call.scratch, call.found) if b is not None]
    symbols = dict.fromkeys(s for n in function.numbers for s in sorted(n.syms, key=_by_name))
    return Kernel(
        name=function.name,
        text="",
        task=FUNCTION,
        buffers=buffers,
        symbols=tuple(symbols),
        units=ix(1),
        chunked=None,
        unit_cost=function.flops,
        row_bytes=ix(0),
        product=None,
        flops=function.flops,
        moved_bytes=_bytes(b for b in (*call.operands, *call.results) if b is not None),
        data_extents=(),
        whole_rows=True,
        written=frozenset(b.uid for b in written),
        extern=call,
        links=frozenset(function.links),
    )


def _by_name(symbol: Sym) -> str:
    return symbol.name


def _bytes(buffers: Iterable[Buffer]) -> Ix:
    total = ix(0)
    for buffer in buffers:
        total = total + buffer.elements * E.SIZE_BYTES[buffer.dtype]
    return total


def call_lines(call: Extern, place: int, pointer: Callable[[Buffer], str], number: Callable[[Ix], str]) -> list[str]:
    """A block of its own within the launch; the names end in the kernel's place in its group."""
    function = call.function
    pointers = ", ".join("NULL" if b is None else pointer(b) for b in call.arguments)
    numbers = ", ".join(number(n) for n in function.numbers) or "0"
    factors = ", ".join(constant(f, "f64") for f in function.factors) or "0"
    return [
        f"void *buffers{place}[] = {{{pointers}}};",
        f"const int64_t sizes{place}[] = {{{numbers}}};",
        f"const double factors{place}[] = {{{factors}}};",
        FUNCTION.declared(place, f=f"factors{place}"),
        f"if (SMELT_NAME({function.name})(&task{place})) return env->code;",
    ]


def declarations(kernels: Iterable[Kernel]) -> str:
    names = dict.fromkeys(k.name for k in kernels if k.extern is not None)
    return "".join(f"int32_t SMELT_NAME({name})(smelt_task *task);\n" for name in names)


def units(kernels: Iterable[Kernel]) -> list[Unit]:
    """The units that define the functions. Named after their text: one that no model changes is compiled once."""
    names: dict[str, dict[str, None]] = {}
    for kernel in kernels:
        if kernel.extern is not None:
            names.setdefault(kernel.extern.function.text, {})[kernel.name] = None
    return [function_unit(text, *every) for text, every in names.items()]


def function_unit(text: str, *kernels: str) -> Unit:
    return Unit(f"extern_{hashlib.sha256(text.encode()).hexdigest()[:8]}", text, kernels=kernels)
