"""Two rows of a nest side by side.

Input: a nest that reduces its rows. Output: a loop that takes two rows at a time, phase by phase. Invariant: each row
is computed by the same operations in the same order as alone, so that its bits do not depend on its neighbour.

A phase ends in a chain of dependent shuffles, and the next one waits for it; a row of a few hundred elements spends as
long on the chains as on its elements. The other row fills the gap.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from smelt.ir.kernel import Ix, Var, product

from .rows import RowWriter

SHORT_ROW = 512
MOST_COST = 400
PAIRED = "b"


class RowPairWriter(RowWriter):
    """Adds the loop over pairs to the writer of single rows."""

    def _inner_elements(self) -> Ix:
        return product(v.extent for v in self.nest.inner)

    def _paired(self) -> bool:
        nest, kinds = self.nest, [r.kind for r in self.nest.reductions]
        if nest.scan is not None or nest.products or nest.columns or nest.vector not in nest.inner:
            return False
        if not self._rows() or self.phases.count < 2 or any(kind.startswith("arg") for kind in kinds):
            return False
        length = self._inner_elements().const
        return bool(kinds) and sum(self.phases.cost) <= MOST_COST and (length is None or length <= SHORT_ROW)

    def _pair_loop(self, rows: Sequence[Var], extents: Sequence[str], advance: Sequence[str]) -> list[str]:
        """While two rows are left: both, then on by two. Rows too long for two of them in L1 are left to the loop
        that follows."""
        length = self._integer(self._inner_elements())
        halves = [self._row_pieces()]
        with self._as_pair(rows):
            halves.append(self._row_pieces())
        both = [line for pieces in zip(*halves, strict=True) for piece in pieces for line in piece]
        names = [self.var_names[v] for v in rows]
        back = " ".join(f"{name} = {name}{PAIRED};" for name in names)
        body = [*_next_row(names, extents), *both, back, *advance]
        return [f"for (; {length} <= {SHORT_ROW} && u + 2 <= stop; u += 2) {{", *("  " + x for x in body), "}"]

    def _row_pieces(self) -> list[list[str]]:
        """The lines of one row, cut where another row may come between."""
        kept = dict(self.results)
        self.extent_names = {}
        pieces: list[list[str]] = []
        self._open()
        for step in self._steps():
            step()
            pieces.append(list(self.scopes[-1].lines))
            self.scopes[-1].lines.clear()
        self.scopes.pop()
        self.results = kept
        return pieces

    @contextmanager
    def _as_pair(self, rows: Sequence[Var]) -> Generator[None]:
        """Names of the second row: its place, its row buffers, its totals."""
        places, buffers = dict(self.var_names), dict(self.row_names)
        self.var_names.update({v: self.var_names[v] + PAIRED for v in rows})
        self.row_names.update({uid: name + PAIRED for uid, name in buffers.items()})
        self.paired = PAIRED
        yield
        self.paired = ""
        self.var_names.update(places)
        self.row_names.update(buffers)


def _next_row(names: Sequence[str], extents: Sequence[str]) -> list[str]:
    """Declares the place after this one, with carries from the last loop to the first."""
    lines = ["int64_t " + ", ".join(f"{name}{PAIRED} = {name}" for name in names) + ";"]
    last_first = [*zip(names, extents, strict=True)][:0:-1]
    lines += [f"if (++{name}{PAIRED} == {extent}) {{ {name}{PAIRED} = 0;" for name, extent in last_first]
    lines.append(f"++{names[0]}{PAIRED};" + " }" * (len(names) - 1))
    return lines
