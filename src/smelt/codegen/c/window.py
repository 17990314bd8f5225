"""Windows over images as C: a block of windows, then its epilogue row by row, as with products.

Input: a nest whose product is a `WindowKernel`. Output: the head of its kernel; the sizes that its launch needs.
Invariant: the geometry is the only thing that the text says about the window; the kernels that read it are in
window_unit.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.codegen.cluster import Loops, WindowGemm
from smelt.codegen.kernel_forms import WindowForm, WindowKernel
from smelt.ir.kernel import Buffer, Ix, Var, flat, ix, of, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.window import numbers

from .layout.arrangement import PANEL
from .layout.window_sizes import depthwise_unit, filled
from .product import ProductWriter
from .register_epilogue import RegisterEpilogue, find_register_epilogue

_FORMS: dict[str, str] = {
    "pointwise": "SMELT_BY_PIXELS", "depthwise": "SMELT_BY_CHANNELS", "im2col": "SMELT_BY_IM2COL",
    "nchw": "SMELT_BY_LINES", "lines": "SMELT_BY_LINES", "dots": "SMELT_BY_LINES",
    "narrow": "SMELT_BY_GROUPS",
}  # fmt: skip
_PACKED = {"dots": "SMELT_DOTS", "narrow": "SMELT_NARROW"}
_FILLED_BY = {"dots": "convolve_dots", "narrow": "convolve_narrow"}  # the unit; its function has its name
HALF_WINDOW_UNIT = "half_window"
WINDOW_UNIT = "window"
_CONVOLVE = "SMELT_CONVOLVE"
_BY_LINES = ("winograd", "square")
_POOLS = {"max": "SMELT_POOL_MAX", "mean": "SMELT_POOL_MEAN", "sum": "SMELT_POOL_SUM"}


@dataclass(frozen=True)
class TileGeometry:
    """Lines of a kernel of known sizes: what it reads (`image`) and, where it is all that it makes, its dense `result`.

    A window reaches over `extent` lines of the image; both are uids of buffers.
    """

    image: int
    result: int | None
    in_lines: int
    lines: int
    line: int
    columns: int
    stride: int
    before: int
    extent: int

    @property
    def line_bytes(self) -> int:
        return self.line * self.columns * 4


@dataclass(frozen=True)
class WindowSizes:
    """`rows` windows of `columns` results of `depth` multiply-adds, `height` lines of `line` side by side; tasks share
    columns in whole units. Winograd's `form` has tasks of whole lines; its `depth`, and that of `square`, which chooses
    between that and gathering when sizes are known, are the channels."""

    rows: Ix
    columns: Ix
    unit: int
    depth: Ix
    taps: int
    extra_bytes: Ix
    height: Ix
    line: Ix
    form: WindowForm
    whole_rows: bool
    tile: TileGeometry | None = None

    @property
    def launch(self) -> str:
        return f"smelt_launch_{self.form if self.form in _BY_LINES else 'window'}"

    @property
    def numbers(self) -> tuple[Ix, ...]:
        if self.form == "winograd":
            return self.rows // self.line, self.height, self.line, self.columns, self.depth, self.extra_bytes, ix(1)
        if self.form == "square":
            return self.rows, self.height, self.line, self.columns, self.depth, self.extra_bytes
        return self.rows, self.columns, ix(self.unit), self.depth, ix(self.taps), self.line, self.extra_bytes

    @property
    def wants(self) -> tuple[str, ...]:
        """What the launch is to know about the kernel and its epilogue."""
        whole = str(int(self.whole_rows))
        return (whole,) if self.form in _BY_LINES else (_FORMS[self.form], whole)


class WindowWriter(ProductWriter):
    """Adds convolutions and pools."""

    def _window(self) -> WindowKernel | None:
        definition = self.nest.work.made.definition if isinstance(self.nest.work, WindowGemm) else None
        return definition if isinstance(definition, WindowKernel) else None

    def _image(self) -> Buffer:
        assert isinstance(self.nest.work, WindowGemm)
        return self.nest.work.image.buffer

    def _window_sizes(self) -> WindowSizes | None:
        window = self._window()
        if window is None:
            return None
        rows = product(v.extent for v in self._rows())
        geometry, form = window.geometry, window.form
        depth = ix(geometry.taps)
        if form in _BY_LINES:
            depth = self._channels(window)
        elif not window.pool and form != "depthwise":
            depth = depth * (self._channels(window) // window.groups)
        height, line, taps = (ix(1), *geometry.out)[-2], geometry.out[-1], geometry.taps
        if window.by_channel:  # a window is a line of the result: what its columns share is not computed twice
            height, line, taps = ix(1), height, 1
        return WindowSizes(
            rows, self._columns_of(), self._unit(window), depth, taps, self.extra_bytes(), height, line, form,
            bool(self.nest.inner), self._tile_geometry(window),
        )  # fmt: skip

    def _over(self) -> frozenset[int]:
        """What is read where the one result is written, and nowhere else: a residual of a convolution's epilogue, an
        operand of element-wise loops."""
        nest, window = self.nest, self._window()
        if (window is None and not isinstance(nest.work, Loops)) or len(nest.stores) != 1:
            return frozenset()
        (store,) = nest.stores
        if nest.reductions or nest.inner or (window is None and isinstance(store.value.kind, E.Load)):
            return frozenset()
        loads = [e.kind for e in E.walk(store.value) if isinstance(e.kind, E.Load)]
        alike = {
            load.buffer.uid
            for load in loads
            if load.buffer.dtype == store.buffer.dtype and load.buffer.elements == store.buffer.elements
        }
        image = frozenset(() if window is None else (self._image().uid,))
        return frozenset(alike - image - {load.buffer.uid for load in loads if load.offset != store.offset})

    def _tile_geometry(self, window: WindowKernel) -> TileGeometry | None:
        """Two known axes and an epilogue that needs no memory of its own, nor the image again."""
        g, columns = window.geometry, self._columns_of().const
        sizes = numbers((*g.sizes, *g.out, *g.before))
        if sizes is None or g.rank != 2 or g.spread or columns is None or self.phases.row_buffers or window.by_channel:
            return None
        image = self._image().uid
        if image in self._loaded() or window.groups not in (1, columns):
            return None
        extent = (g.kernel[0] - 1) * g.dilation[0] + 1
        result = self._dense_result()
        return TileGeometry(image, result, sizes[0], sizes[2], sizes[3], columns, g.stride[0], sizes[4], extent)

    def _loaded(self) -> set[int]:
        roots = (*(s.value for s in self.nest.stores), *(r.value for r in self.nest.reductions))
        return {node.kind.buffer.uid for node in E.walk(*roots) if isinstance(node.kind, E.Load)}

    def _dense_result(self) -> int | None:
        """The only buffer that is stored, when that happens window by window in their order."""
        nest = self.nest
        if nest.inner or nest.reductions or len(nest.stores) != 1 or nest.stores[0].buffer.dtype != "f32":
            return None
        whole = flat(tuple(of(v) for v in nest.outer), tuple(v.extent for v in nest.outer))
        return nest.stores[0].buffer.uid if nest.stores[0].offset == whole else None

    def _unit(self, window: WindowKernel) -> int:
        """Columns that no task shares: a panel, or all of a group's."""
        columns = self._columns_of().const
        return PANEL if window.groups == 1 or columns is None or window.form == "narrow" else columns // window.groups

    def _product_body(self) -> list[str]:
        """Kernels with a register epilogue, and pools that nothing follows, leave nothing to loop over."""
        window = self._window()
        epilogue = self._window_epilogue(window) if window is not None else None
        if window is None or (epilogue is None and not self._is_plain(window)):
            return super()._product_body()
        extents = [self._integer(v.extent) for v in self._rows()]
        if epilogue is not None:
            part = [
                self._epilogue_text(epilogue, self._integer(self._columns_of())),
                self._fill(window, in_registers=True),
            ]
        else:
            part = [self._fill(window, in_registers=True)]
        lines = self._window_lines(window, extents, self._integer(self._columns_of()), part)
        return [*lines, "if (t->memory) smelt_release(t, local);"]

    def _product_lines(self, rows: list[Var], extents: list[str], columns: str, loop: list[str]) -> list[str]:
        window = self._window()
        if window is None:
            return super()._product_lines(rows, extents, columns, loop)
        part = [
            "const int64_t stop = first + count;",
            "int64_t u = first;",
            self._fill(window),
            *self._decode(rows, extents, False),
            *loop,
        ]
        return self._window_lines(window, extents, columns, part)

    def _window_lines(self, window: WindowKernel, extents: list[str], columns: str, part: list[str]) -> list[str]:
        """The task's windows and columns, a part at a time: its epilogue finds it in L1."""
        total = " * ".join(f"({e})" for e in extents) or "1"
        lines = [*self._window_part_lines(self._unit(window)), *part]
        return [
            *self._window_task_lines(total, columns, self._unit(window)),
            f"const smelt_window w = {self._geometry(window)};",
            "for (int64_t first = from; first < until; first += t->part_rows)",
            "for (int64_t p0 = unit; p0 < last_unit; p0 += t->part_wide) {",
            *("  " + x for x in lines),
            "}",
        ]

    def _window_task_lines(self, rows: str, columns: str, unit: int) -> list[str]:
        """The task's share: windows from..until-1, columns in units unit..last_unit-1; memory for a part of it."""
        wide = "t->part_wide" if unit == PANEL else f"((t->part_wide * {unit} + 15) / 16)"
        return [
            "const int64_t from = t->start + (task % t->row_blocks) * t->block_rows;",
            "const int64_t unit = task / t->row_blocks * t->block_wide;",
            f"const int64_t until = smelt_min(from + t->block_rows, {rows}), columns = {columns};",
            f"const int64_t last_unit = smelt_min(unit + t->block_wide, (columns + {unit - 1}) / {unit});",
            f"const int64_t slot = SMELT_SLOT(t->part_rows, {wide}, {self._integer(self.extra_bytes())});",
            "char *local = t->memory ? smelt_claim(t) : __builtin_alloca_with_align((size_t)slot, 512);",
            f"float *block = (float *)SMELT_FENCED(local, t->part_rows * {wide} * 64);",
            *self._row_buffer_lines(f"t->part_rows * {wide} * 64"),
        ]

    def _window_part_lines(self, unit: int) -> list[str]:
        return [
            "const int64_t count = smelt_min(t->part_rows, until - first);",
            "const int64_t p1 = smelt_min(p0 + t->part_wide, last_unit);",
            f"const int64_t c0 = p0 * {unit}, c1 = smelt_min(p1 * {unit}, columns);",
            f"const int64_t ld = (p1 - p0) * {unit}{'' if unit % 16 == 0 else ' + 15 & ~(int64_t)15'};",
        ]

    def _window_epilogue(self, window: WindowKernel) -> RegisterEpilogue | None:
        """The epilogue as something that kernels do to their sums before they store them."""
        result, nest = self._dense_result(), self.nest
        if result is None or window.pool or window.form in _BY_LINES:
            return None
        return find_register_epilogue(nest.stores[0], self._columns_of(), nest.outer[-1])

    def _is_plain(self, window: WindowKernel) -> bool:
        """A pool whose results are stored as they are."""
        nest = self.nest
        if not window.pool or self._dense_result() is None:
            return False
        return isinstance(nest.stores[0].value.kind, E.Ref)

    def _geometry(self, window: WindowKernel) -> str:
        axes = [", ".join(self._integer(i) for i in values) for values in filled(window.geometry)]
        tail = (
            self._integer(self._channels(window)), str(window.groups), self._integer(self._columns_of()),
            str(int(window.geometry.spread)), str(int(window.counted)), str(int(window.nchw)),
            _PACKED.get(window.form, "SMELT_PANELS"),
        )  # fmt: skip
        return "{" + ", ".join([*(f"{{{a}}}" for a in axes), *tail]) + "}"

    def _channels(self, window: WindowKernel) -> Ix:
        if window.by_channel:
            return ix(1)
        return window.a.shape[1 if window.nchw else -1]

    def _columns_of(self) -> Ix:
        return self.nest.products[0].shape[-1]

    def _fill(self, window: WindowKernel, in_registers: bool = False) -> str:
        nest, image = self.nest, self._buffer(self._image())
        if window.pool:
            to = (
                f"{self._buffer(nest.stores[0].buffer)} + first * columns + c0, columns"
                if in_registers
                else "block, ld"
            )
            name = "SMELT_POOL_NCHW" if window.nchw else "SMELT_POOL"
            return f"{name}(&w, {image}, {_POOLS[window.pool]}, first, count, c0, c1, {to});"
        assert isinstance(nest.work, WindowGemm) and nest.work.weights is not None
        panels, form, task = self._buffer(nest.work.weights), window.form, "first, count, c0, c1, block, ld"
        name = _filled_by(window)
        plain = f"{name}(&w, {image}, {panels}, {task}, {'&epilogue' if in_registers else 'NULL'});"
        if form not in _BY_LINES:
            return plain
        used = f"SMELT_SLOT(t->part_rows, t->part_wide, {self._integer(self.extra_bytes())})"
        transformed = int(form == "winograd")
        fast = f"SMELT_WINOGRAD(&w, {image}, {panels}, {transformed}, {task}, (float *)(local + {used}));"
        return fast if transformed else f"if (t->winograd) {fast}\nelse {plain}"


def window_units(window: WindowKernel) -> tuple[str, ...]:
    """The units of the library whose functions fill its blocks, as `_fill` calls them."""
    if window.pool:
        return ("pool",)
    if window.form == "winograd":
        return ("winograd",)
    if window.narrow:
        return (HALF_WINDOW_UNIT,)
    unit = _unit_of(window)
    return (unit, "winograd") if window.form in _BY_LINES else (unit,)


def _filled_by(window: WindowKernel) -> str:
    """The function that fills its blocks."""
    if window.narrow:
        return f"{_CONVOLVE}_{window.narrow}"
    unit = _unit_of(window)
    return _CONVOLVE if unit == WINDOW_UNIT else f"SMELT_{unit.upper()}"


def _unit_of(window: WindowKernel) -> str:
    geometry = window.geometry
    if window.form == "depthwise":
        return depthwise_unit(geometry.kernel, geometry.stride[-1], geometry.dilation[-1])
    return _FILLED_BY.get(window.form, WINDOW_UNIT)
