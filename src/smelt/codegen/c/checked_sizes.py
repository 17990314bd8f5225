"""Sizes that a region computes before it touches memory, each once.

Input: shapes of buffers and inputs, and how a size is written in C. Output: names and lines of C. Invariant: a product
that overflows sets `bad`; inputs of known shapes are compared with one table, which costs the compiler less than a
condition for each of their axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from smelt.ir.kernel import Ix

_MOST: Final = 1 << 62


@dataclass(frozen=True)
class Check:
    """What fails a call, or hands it to the general function: a condition, and the error in C."""

    condition: str
    failure: str

    def text(self, otherwise: str | None) -> str:
        return f"if ({self.condition}) return {otherwise or self.failure};"


class Products:
    """Checked products of sizes by what they multiply."""

    def __init__(self, text: Callable[[Ix], str]) -> None:
        self._text = text
        self._names: dict[str, str] = {}

    def name(self, shape: Sequence[Ix], each: int) -> tuple[str, list[str]]:
        """The name of a product, and the line that computes it where it is new."""
        known, free = _known(shape, each), [self._text(size) for size in shape if size.const is None]
        key = " * ".join((*known, *sorted(free)))
        if key in self._names:
            return self._names[key], []
        name = self._names[key] = f"n{len(self._names)}"
        text = known[0]
        for factor in (*known[1:], *free):
            text = f"smelt_size_mul({text}, {factor}, &bad)"
        return name, [f"const int64_t {name} = {text};"]


def _known(shape: Sequence[Ix], each: int) -> list[str]:
    """The product of what is known, or its factors where nothing holds it."""
    factors = [each, *(int(size.const) for size in shape if size.const is not None)]
    return [str(prod(factors))] if prod(factors) < _MOST else [str(factor) for factor in factors]


def known_shapes(shapes: Mapping[int, Sequence[Ix]]) -> list[str]:
    """The table of inputs, by their places, and the entry of the first one that has another shape."""
    rows = [(place, len(shape), *(size.const for size in shape)) for place, shape in shapes.items()]
    table = ", ".join(str(number) for row in rows for number in row)
    return [
        f"static const int64_t known[] = {{{table}}};",
        f"const int64_t *unlike = smelt_unlike(env, known, {len(rows)});",
    ]


def arena_lines(slots: Sequence[Sequence[str]], sizes: Mapping[str, str], first: int) -> list[str]:
    """One block for buffers by their slots, which are numbered from `first` on. `sizes` name the size of each."""
    lines: list[str] = []
    for place, held in enumerate(slots, first):
        size, *others = dict.fromkeys(sizes[name] for name in held)
        for other in others:
            size = f"smelt_max({size}, {other})"
        lines.append(f"const int64_t slot{place} = ({size} + 63) & ~(int64_t)63;")
    total = " + ".join(f"slot{place}" for place in range(first, first + len(slots)))
    lines.append(f"char *at{first} = env->scratch(env, {total});")
    lines.append(f"if (!at{first}) return smelt_fail(env, SMELT_E_MEMORY, -1, {total}, 0, 0);")
    for place, held in enumerate(slots, first):
        if place > first:
            lines.append(f"char *at{place} = at{place - 1} + slot{place - 1};")
        lines += [f"void *{name} = SMELT_FENCED_SLOT(env, at{place}, {sizes[name]});" for name in held]
    return lines
