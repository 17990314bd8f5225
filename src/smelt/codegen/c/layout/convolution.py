"""Which kernel a convolution is: the table of its forms.

Input: the operands of a convolution in the model's order. Output: a tensor in NHWC, seen in the model's order.
Invariant: the first form of the table that fits is taken; each says when it fits, what it costs and why it is there.
Weights that are constant are packed ahead of time, others when they come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from smelt.codegen.kernel_forms import PackedContraction, WindowForm, WindowKernel
from smelt.ir.kernel import Geometry, Ix, Stored, Tensor, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.in_loops import convolution_in_loops
from smelt.ir.kernel.layout import Index
from smelt.ir.kernel.window import numbers

from .arrangement import PANEL
from .half_panels import REASON, half_panels
from .run_time_panels import panels
from .window_sizes import (
    LEAST_CHANNELS,
    LEAST_PIXELS,
    LINES_DEPTH,
    LINES_WINDOWS,
    MOST_AXES,
    MOST_TAPS,
    is_square,
    lines_fit,
    side_by_side,
)

if TYPE_CHECKING:
    from .builder import CpuBuilder

MOST_NCHW_CHANNELS: Final = 4
MOST_WEIGHTS: Final = 1 << 18  # that are transformed ahead of time: 24 / 9 as large, more cost memory and are no faster
MOST_NCHW_DEPTH: Final = 384  # elements of an im2col row
MOST_DOTS: Final = 8  # columns of a group whose windows are summed up along their elements
DOTS_COST: Final = 3  # vectors that the sum over lanes of one column is worth
DOTS_FACTOR: Final = 1.5  # what a vector of such a sum costs, in vectors of the usual one
WINOGRAD_SHARE: Final = 24 / 72  # of the multiply-adds of a tile of 2 x 4 results


@dataclass(frozen=True)
class Case:
    """One convolution: `each` are the columns of a group, `depth` its channels."""

    k: CpuBuilder
    x: Tensor
    weights: Tensor
    geometry: Geometry
    groups: int
    columns: int
    depth: int

    @property
    def each(self) -> int:
        return self.columns // self.groups

    @property
    def channels(self) -> int:
        """Of the image; 0 where they are known only at run time."""
        return self.x.shape[1].const or 0

    @property
    def dense_cost(self) -> float:
        return self.groups * self.geometry.taps * self.depth * math.ceil(self.each / PANEL)


@dataclass(frozen=True)
class Form:
    """`cost` counts multiply-adds of 16 lanes for one pixel of the result. `make` gives None where weights that come at
    run time cannot be had in the form's layout."""

    name: str
    reason: str
    fits: Callable[[Case], bool]
    cost: Callable[[Case], float]
    make: Callable[[Case, str], Tensor | None]


def convolution(case: Case, bias: Tensor | None) -> Tensor:
    """By the first form that fits; the last one fits all."""
    for form in FORMS:
        made = form.make(case, form.reason) if form.fits(case) else None
        if made is None:
            continue
        if form is IN_LOOPS:
            return made if bias is None else case.k.add_to_channels(made, bias)
        return case.k.from_nhwc(_with_bias(case, form, made, bias))
    raise AssertionError("the last form fits all")


def _with_bias(case: Case, form: Form, made: Tensor, bias: Tensor | None) -> Tensor:
    k = case.k
    if form is STAMP:
        repeated = None if bias is None else k.view(bias, made.shape[-1:], lambda w: [w[0] % case.columns])
        return _stamped_back(case, made if repeated is None else k.map(_add, made, repeated))
    return made if bias is None else k.map(_add, made, bias)


def _add(a: E.Expr, b: E.Expr) -> E.Expr:
    return E.op("add", a, b)


# when a form fits


def _has_no_kernel(case: Case) -> bool:
    return case.x.dtype != "f32" or case.geometry.rank > MOST_AXES


def _stamps(case: Case) -> bool:
    """Windows of a transposed convolution do not overlap: every pixel comes from one pixel and one tap."""
    g = case.geometry
    plain = all(d == 1 for d in g.dilation) and all(p.const == 0 for p in (*g.before, *g.after))
    covered = all(out == size * step for out, size, step in zip(g.out, g.sizes, g.stride, strict=True))
    return case.groups == 1 and g.spread and plain and covered and g.kernel == g.stride


def _is_nchw_of_few_channels(case: Case) -> bool:
    g = case.geometry
    if g.spread or not isinstance(case.x.definition, Stored) or case.groups != 1 or g.pointwise:
        return False
    return case.channels <= MOST_NCHW_CHANNELS and case.channels * g.taps <= MOST_NCHW_DEPTH


def _is_depthwise(case: Case) -> bool:
    return 1 < case.groups == case.channels and case.geometry.taps <= MOST_TAPS and not case.geometry.spread


def _winograd_pays(case: Case) -> bool:
    """Few weights over enough pixels: larger ones are transformed as they are used."""
    out = numbers(case.geometry.out)
    if case.groups != 1 or out is None or not is_square(case.geometry):
        return False
    few = 9 * case.channels * case.columns <= MOST_WEIGHTS
    return few and out[0] * out[1] >= LEAST_PIXELS and min(case.channels, case.columns) >= LEAST_CHANNELS


def _is_narrow(case: Case) -> bool:
    """As many columns as channels in a group, several groups to 16 of them."""
    same = case.groups > 1 and case.channels == case.columns and case.each in (2, 4, 8, 16)
    return same and side_by_side(case.geometry) and lines_fit(case.geometry, PANEL) > 0


def _dots_pay(case: Case) -> bool:
    """Few columns, which would leave most of a panel empty, and lines of taps that fill vectors."""
    g = case.geometry
    if case.each > MOST_DOTS or not side_by_side(g) or not case.depth or not (g.pointwise or lines_fit(g, case.depth)):
        return False
    return _dots_cost(case) < case.dense_cost


def _may_be_transformed(case: Case) -> bool:
    """Whether Winograd's form may win, unless the sizes are known to be too small."""
    if case.groups != 1 or not is_square(case.geometry):
        return False
    out, columns = numbers(case.geometry.out), math.ceil(case.each / PANEL) * PANEL
    return min(case.depth, columns) >= LEAST_CHANNELS and (out is None or out[0] * out[1] >= LEAST_PIXELS)


def _by_lines(case: Case) -> bool:
    """As smelt_by_lines() decides, the size of the image aside."""
    g = case.geometry
    return g.taps > 1 and side_by_side(g) and case.depth <= LINES_DEPTH and lines_fit(g, case.depth) >= LINES_WINDOWS


# what a form costs


def _depthwise_cost(case: Case) -> float:
    return case.geometry.taps * math.ceil(case.columns / PANEL)


def _narrow_cost(case: Case) -> float:
    return case.geometry.taps * case.each * math.ceil(case.columns / PANEL)


def _dots_cost(case: Case) -> float:
    line = case.geometry.kernel[-1]
    vectors = case.geometry.taps // line * math.ceil(line * case.depth / PANEL)
    return DOTS_FACTOR * case.columns * (vectors + DOTS_COST)


# how a form is made


def _in_loops(case: Case, reason: str) -> Tensor:
    del reason
    return convolution_in_loops(case.k, case.x, case.weights, case.geometry, case.groups)


def _kernel(case: Case, form: WindowForm, a: Tensor, b: Tensor, reason: str, groups: int = 1) -> Tensor:
    shape = (a.shape[0], *case.geometry.out, ix(case.columns))
    return case.k.make(shape, a.dtype, WindowKernel(form, a, b, case.geometry, groups, reason=reason))


def _stamped(case: Case, reason: str) -> Tensor | None:
    """One product gives all taps of a pixel; where they belong is an index map."""
    packed = case.k.pack(case.weights, "stamp")
    if packed is None:
        return None
    image, columns = case.k.to_nhwc(case.x), ix(case.geometry.taps * case.columns)
    return case.k.make((*image.shape[:-1], columns), image.dtype, PackedContraction(image, packed, columns, reason))


def _stamped_back(case: Case, made: Tensor) -> Tensor:
    g = case.geometry

    def back(w: Index) -> list[Ix]:
        tap = ix(0)
        for o, s in zip(w[1:-1], g.stride, strict=True):
            tap = tap * s + o % s
        return [w[0], *(o // s for o, s in zip(w[1:-1], g.stride, strict=True)), tap * case.columns + w[-1]]

    return case.k.view(made, (made.shape[0], *g.out, case.columns), back)


def _from_nchw(case: Case, reason: str) -> Tensor:
    return _kernel(case, "nchw", case.x, panels(case.k, case.weights, "nchw"), reason)


def _depthwise(case: Case, reason: str) -> Tensor:
    image = _repeated(case, case.k.to_nhwc(case.x))
    return _kernel(case, "depthwise", image, panels(case.k, case.weights, "depthwise"), reason)


def _repeated(case: Case, image: Tensor) -> Tensor:
    """Every channel as many times as it has filters of its own."""
    if case.each == 1:
        return image
    shape = (*image.shape[:-1], image.shape[-1] * case.each)
    return case.k.view(image, shape, lambda w: [*w[:-1], w[-1] // case.each])


def _packed(form: WindowForm, layout: str) -> Callable[[Case, str], Tensor | None]:
    """Forms whose weights are constants."""

    def make(case: Case, reason: str) -> Tensor | None:
        weights = case.k.pack(case.weights, layout.format(groups=case.groups))
        if weights is None:
            return None
        return _kernel(case, form, case.k.to_nhwc(case.x), weights, reason, case.groups)

    return make


def _dense(form: WindowForm) -> Callable[[Case, str], Tensor]:
    def make(case: Case, reason: str) -> Tensor:
        half = _half(case, form)
        if half is not None:
            return half
        layout = f"{_arrangement(case)}:{case.groups}"
        image = case.k.to_nhwc(case.x)
        return _kernel(case, form, image, panels(case.k, case.weights, layout), reason, case.groups)

    return make


def _arrangement(case: Case) -> str:
    return "spread" if case.geometry.spread else "window"


def _half(case: Case, form: WindowForm) -> Tensor | None:
    """By weights of 16 bits: bfloat16 ones, which CPUs multiply twice as fast, in any form; others where nothing that
    float32 weights would do is given up."""
    packed = half_panels(case.k, case.x, case.weights, _arrangement(case)) if case.groups == 1 else None
    if packed is None or (packed.narrow != "BF16" and form in ("square", "lines")):
        return None
    image, plain = case.k.to_nhwc(case.x), "pointwise" if form == "pointwise" else "im2col"
    kernel = WindowKernel(
        plain, image, packed.panels, case.geometry, reason=REASON[packed.narrow], narrow=packed.narrow
    )
    return case.k.make((image.shape[0], *case.geometry.out, ix(case.columns)), "f32", kernel)


def _dense_cost(case: Case) -> float:
    return case.dense_cost


def _winograd_cost(case: Case) -> float:
    return case.dense_cost * WINOGRAD_SHARE


IN_LOOPS: Final = Form(
    "loops", "no kernel is for this type, or for more than three axes", _has_no_kernel, _dense_cost, _in_loops
)
STAMP: Final = Form(
    "stamp", "windows that do not overlap are one product and an index map", _stamps, _dense_cost, _stamped
)
FORMS: Final = (
    IN_LOOPS,
    STAMP,
    Form(
        "nchw", "an image of few channels from outside costs as much to transpose as to use",
        _is_nchw_of_few_channels, _dense_cost, _from_nchw,
    ),
    Form("depthwise", "one filter for each channel: lanes are channels", _is_depthwise, _depthwise_cost, _depthwise),
    Form(
        "winograd", "3 x 3 taps over enough pixels take a third of the multiply-adds; the filters are few enough to be "
        "transformed ahead of time", _winograd_pays, _winograd_cost, _packed("winograd", "winograd"),
    ),
    Form(
        "narrow", "narrow groups side by side fill the lanes", _is_narrow, _narrow_cost, _packed("narrow", "narrow")
    ),
    Form(
        "dots", "few columns would leave most of a panel empty", _dots_pay, _dots_cost, _packed("dots", "dots:{groups}")
    ),
    Form(
        "square", "3 x 3 taps: directly or by Winograd's transform, as the sizes of the call tell",
        _may_be_transformed, _winograd_cost, _dense("square"),
    ),
    Form(
        "pointwise", "one tap: a plain product",
        lambda case: case.geometry.pointwise and case.groups == 1, _dense_cost, _dense("pointwise"),
    ),
    Form("lines", "the lines that neighbouring windows share fit L1", _by_lines, _dense_cost, _dense("lines")),
    Form("im2col", "windows are copied to rows of a matrix", lambda _: True, _dense_cost, _dense("im2col")),
)  # fmt: skip
