"""Windows over images as C: a block of windows, then its epilogue row by row, as with products.

Input: a nest whose product is a `Window`. Output: the head of its kernel; the sizes that its launch needs. Invariant:
the geometry is the only thing that the text says about the window; the kernels that read it are in window_unit.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.ir.kernel import Ix, Var, Window, ix, product
from smelt.ir.kernel.panels import PANEL

from .product import ProductWriter

_POOLS = {"max": "SMELT_POOL_MAX", "mean": "SMELT_POOL_MEAN", "sum": "SMELT_POOL_SUM"}


@dataclass(frozen=True)
class WindowSizes:
    """`rows` windows of `columns` results of `depth` multiply-adds; tasks share columns in whole units.

    `line` is set for Winograd's form, whose tasks take whole lines; `depth` are the channels then."""

    rows: Ix
    columns: Ix
    unit: int
    depth: Ix
    taps: int
    extra_bytes: Ix
    whole_rows: bool

    line: Ix | None = None

    @property
    def launch(self) -> str:
        return "smelt_launch_window" if self.line is None else "smelt_launch_winograd"

    @property
    def numbers(self) -> tuple[Ix, ...]:
        if self.line is not None:
            return self.rows // self.line, self.line, self.columns, self.depth, self.extra_bytes
        return self.rows, self.columns, ix(self.unit), self.depth, ix(self.taps), self.extra_bytes


class WindowWriter(ProductWriter):
    """Adds convolutions and pools."""

    def _window(self) -> Window | None:
        tensor = self.nest.matmul
        definition = tensor.definition if tensor is not None else None
        return definition if isinstance(definition, Window) else None

    def _window_sizes(self) -> WindowSizes | None:
        window, tensor = self._window(), self.nest.matmul
        if window is None or tensor is None:
            return None
        rows = product(v.extent for v in self._rows())
        depth = ix(window.geometry.taps)
        line = window.geometry.out[-1] if window.kind == "winograd" else None
        if line is not None:
            depth = self._channels(window)
        if window.kind == "dense":
            depth = depth * (self._channels(window) // window.groups)
        return WindowSizes(
            rows, tensor.shape[-1], self._unit(window), depth, window.geometry.taps, self.extra_bytes(),
            bool(self.nest.inner), line,
        )  # fmt: skip

    def _unit(self, window: Window) -> int:
        """Columns that no task shares: a panel, or all of a group's."""
        assert self.nest.matmul is not None
        columns = self.nest.matmul.shape[-1].const
        return PANEL if window.groups == 1 or columns is None else columns // window.groups

    def _product_head(self, rows: list[Var], extents: list[str], columns: str) -> list[str]:
        window = self._window()
        if window is None:
            return super()._product_head(rows, extents, columns)
        total, unit = " * ".join(f"({e})" for e in extents) or "1", self._unit(window)
        return [
            "const int64_t width = t->row_bytes, first = (task % t->units) * t->step, p0 = task / t->units * width;",
            *self._block_lines(total, columns, unit),
            f"const smelt_window w = {self._geometry(window)};",
            self._fill(window),
            *self._decode(rows, extents, False),
        ]

    def _geometry(self, window: Window) -> str:
        axes = [", ".join(self._integer(i) for i in values) for values in window.geometry.filled()]
        tail = (
            self._integer(self._channels(window)), str(window.groups), self._integer(self._columns_of()),
            str(int(window.geometry.spread)), str(int(window.counted)), str(int(window.planar)),
        )  # fmt: skip
        return "{" + ", ".join([*(f"{{{a}}}" for a in axes), *tail]) + "}"

    def _channels(self, window: Window) -> Ix:
        return window.a.shape[1 if window.planar else -1]

    def _columns_of(self) -> Ix:
        assert self.nest.matmul is not None
        return self.nest.matmul.shape[-1]

    def _fill(self, window: Window) -> str:
        nest = self.nest
        assert nest.lhs is not None
        image = self._buffer(nest.lhs.buffer)
        if window.kind in _POOLS:
            return f"SMELT_POOL(&w, {image}, {_POOLS[window.kind]}, first, count, c0, c1, block, ld);"
        assert nest.panels is not None
        if window.kind == "winograd":
            used = f"SMELT_SLOT(t->step, width, {self._integer(self.extra_bytes())})"
            panels = self._buffer(nest.panels)
            return f"SMELT_WINOGRAD(&w, {image}, {panels}, first, count, c0, c1, block, ld, (float *)(local + {used}));"
        name = "SMELT_CONVOLVE" if window.kind == "dense" else "SMELT_CHANNELWISE"
        return f"{name}(&w, {image}, {self._buffer(nest.panels)}, first, count, c0, c1, block, ld);"
