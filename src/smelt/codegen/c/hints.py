"""What a region believes of the file, and what of it is certain.

Input: facts with hints and those without. Output: whether a size that is known with hints holds in every run.
Invariant: what is called certain follows from the ops' own rules and from what the region's symbols were read from.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.ir.kernel import Ix, Sym, of
from smelt.ir.kernel.index import Atom, substitute
from smelt.ops import Facts


class Hints:
    """Follows where symbols come from, and compares what is known with hints to what is known without."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._general = facts.general
        self._without: dict[Atom, Ix] = {}

    def read_from_axis(self, symbol: Sym, value: ir.Value, axis: int, size: Ix) -> None:
        """The symbol was learned from an axis whose size is `size`."""
        known = self._general.by_value.get(value) if self._general is not None else None
        if known is not None and size == of(symbol):
            self._without[symbol] = known.shape[axis]

    def read_from_data(self, symbol: Sym, value: ir.Value, element: int) -> None:
        if self._general is not None:
            self._without[symbol] = of(Sym(f"{self._general.name(value)}[{element}]", nonneg=False))

    def certain_axis(self, value: ir.Value, axis: int, size: Ix) -> bool:
        if self._general is None:
            return True
        known = self._general.by_value.get(value)
        return known is not None and self._certain(size, known.shape[axis])

    def certain_contents(self, value: ir.Value) -> bool:
        contents = self._facts.by_value[value].contents
        if self._general is None or contents is None:
            return True
        known = self._general.by_value.get(value)
        return known is not None and known.contents is not None and all(map(self._certain, contents, known.contents))

    def _certain(self, size: Ix, without: Ix) -> bool:
        if any(s not in self._without for s in size.syms):
            return size.const is not None and size == without
        return substitute(size, self._without) == without
