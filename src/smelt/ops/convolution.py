"""Convolutions: windows times weights.

Input: a node. Output: a product of windows, channels last, seen in the model's order. Invariant: weights that are
constant are packed ahead of time, others when they come; what no window kernel takes is a reduction in plain loops.
"""

from __future__ import annotations

from smelt.ir.kernel import Builder, Expr, Geometry, Ix, Refusal, Tensor, fn, ix, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.panels import PANEL, arranged_shape, panel_shape
from smelt.ir.kernel.tensor import Stored, View
from smelt.ir.kernel.window import LEAST_CHANNELS, LEAST_PIXELS, MOST_TAPS, numbers
from smelt.ops.registry import Call, op
from smelt.ops.window import geometry_of, has_kernels, im2col, kernel_of, spread_geometry

Index = tuple[Ix, ...]
MOST_NCHW_CHANNELS = 4
MOST_WEIGHTS = 1 << 18  # that are transformed ahead of time: 24 / 9 as large, more cost memory and are no faster
MOST_NCHW_DEPTH = 384  # elements of an im2col row
MOST_DOTS = 8  # columns of a group whose windows are summed up along their elements
DOTS_COST = 3  # vectors that the sum over lanes of one column is worth


def _groups(call: Call, x: Tensor, per_group: Ix) -> int:
    groups = call.int("group", 1)
    if groups < 1:
        raise Refusal(f"{groups} groups")
    call.k.require_equal(x.shape[1], per_group * groups, "the channels of the input and of the weights must agree")
    return groups


def _operands(call: Call) -> tuple[Tensor, Tensor]:
    x, weights = call.x(0), call.x(1)
    if x.rank < 3 or weights.rank != x.rank or x.dtype not in E.FLOATS or weights.dtype != x.dtype:
        raise Refusal(f"an input of rank {x.rank} and weights of rank {weights.rank}")
    return x, weights


@op("Conv", kind="product")
def conv(call: Call) -> Tensor:
    x, weights = _operands(call)
    groups = _groups(call, x, weights.shape[1])
    geometry = geometry_of(call, x, kernel_of(call, weights))
    columns = weights.shape[0].const
    if columns is None or weights.shape[1].const is None or columns % groups:
        raise Refusal("the weights' channels are known only at run time, or do not divide into groups")
    if not has_kernels(x, geometry):
        return _with_bias(call, _conv_in_loops(call.k, x, weights, geometry, groups), last=False)
    out = _from_nchw(call, x, geometry, groups, columns)
    if out is None:
        out = _convolved(call, call.k.to_nhwc(x), geometry, groups, columns)
    return call.k.channels_first(_with_bias(call, out, last=True))


def _from_nchw(call: Call, x: Tensor, g: Geometry, groups: int, columns: int) -> Tensor | None:
    """An image of a few planes that comes from outside is read as it lies: to turn it costs as much as to use it."""
    channels = x.shape[1].const
    if not isinstance(x.definition, Stored) or groups != 1 or channels is None or channels * g.taps > MOST_NCHW_DEPTH:
        return None
    if channels > MOST_NCHW_CHANNELS or g.pointwise:
        return None
    return call.k.window("dense", x, panels(call, "nchw"), g, columns, nchw=True)


def _convolved(call: Call, image: Tensor, geometry: Geometry, groups: int, columns: int) -> Tensor:
    k = call.k
    if 1 < groups == image.shape[-1].const and geometry.taps <= MOST_TAPS:
        image = _repeated(k, image, columns // groups)
        return k.window("depthwise", image, panels(call, "depthwise"), geometry, columns)
    if groups == 1 and _winograd_pays(image, geometry, columns):
        transformed = call.pack(1, "winograd")
        if transformed is not None:
            return k.window("winograd", image, transformed, geometry, columns)
    if groups > 1 and _is_narrow(image, geometry, groups, columns):
        side_by_side = call.pack(1, "narrow")
        if side_by_side is not None:
            return k.window("narrow", image, side_by_side, geometry, columns, groups=groups)
    if _dots_pay(geometry, (call.x(1).shape[1].const or 0), columns // groups):
        lines = call.pack(1, f"dots:{groups}")
        if lines is not None:
            return k.window("dots", image, lines, geometry, columns, groups=groups)
    return k.window("dense", image, panels(call, f"window:{groups}"), geometry, columns, groups=groups)


def _repeated(k: Builder, image: Tensor, times: int) -> Tensor:
    """Every channel as many times as it has filters of its own."""
    if times == 1:
        return image
    shape = (*image.shape[:-1], image.shape[-1] * times)
    return k.view(image, shape, lambda w: [*w[:-1], w[-1] // times])


def _is_narrow(image: Tensor, g: Geometry, groups: int, columns: int) -> bool:
    """As many columns as channels in a group, several groups to 16 of them."""
    each = columns // groups
    same = image.shape[-1].const == columns and each in (2, 4, 8)
    return same and g.side_by_side and g.lines_fit(PANEL) > 0


def _dots_pay(g: Geometry, depth: int, columns: int) -> bool:
    """Few columns, which would leave most of a panel empty, and lines of taps that fill vectors."""
    line = g.kernel[-1] * depth
    if columns > MOST_DOTS or not g.side_by_side or not line or not (g.pointwise or g.lines_fit(depth)):
        return False
    vectors = g.taps // g.kernel[-1] * -(-line // PANEL)
    return 1.5 * columns * (vectors + DOTS_COST) < g.taps * depth


def _winograd_pays(image: Tensor, g: Geometry, columns: int) -> bool:
    """Few weights over enough pixels: larger ones are transformed as they are used."""
    out, channels = numbers(g.out), image.shape[-1].const
    if out is None or channels is None or not g.square or 9 * channels * columns > MOST_WEIGHTS:
        return False
    return out[0] * out[1] >= LEAST_PIXELS and min(channels, columns) >= LEAST_CHANNELS


def _with_bias(call: Call, out: Tensor, *, last: bool) -> Tensor:
    bias, k = call.maybe(2), call.k
    if bias is None:
        return out
    channels = out.shape[-1 if last else 1]
    if bias.rank != 1:
        raise Refusal(f"a bias of rank {bias.rank}")
    k.require_equal(bias.shape[0], channels, "one bias for each channel")
    along = bias if last else k.unsqueeze(bias, range(1, out.rank - 1))
    return k.map(lambda e, b: E.op("add", e, b), out, along)


def _conv_in_loops(k: Builder, x: Tensor, weights: Tensor, g: Geometry, groups: int) -> Tensor:
    """(N, M, *out, C, *kernel) summed over the last axes."""
    images, rank = im2col(k, x, g, 0), g.rank
    each = (weights.shape[0].const or 0) // groups
    inner = weights.shape[1]
    shape = (x.shape[0], weights.shape[0], *g.out, inner, *g.kernel)

    def image_at(w: Index) -> tuple[Ix, ...]:
        channel = w[2 + rank] if groups == 1 else (w[1] // each) * inner + w[2 + rank]
        return (w[0], channel, *w[2 : 2 + rank], *w[3 + rank :])

    seen = k.view(images, shape, image_at)
    factors = k.view(weights, shape, lambda w: (w[1], w[2 + rank], *w[3 + rank :]))
    return _summed(k, seen, factors, rank)


def _summed(k: Builder, seen: Tensor, factors: Tensor, rank: int) -> Tensor:
    products = k.map(lambda a, b: E.op("mul", a, b), seen, factors)
    inner = range(2 + rank, products.rank)
    return k.squeeze(k.reduce("sum", products, list(inner)), list(inner))


# weights


def panels(call: Call, layout: str) -> Tensor:
    """The weights in panels of 16 columns: packed ahead of time when they are constant."""
    found = call.pack(1, layout)
    if found is not None:
        return found
    weights, k = call.x(1), call.k
    shape = arranged_shape(weights.shape, layout)
    if shape is None:
        raise Refusal("the weights' sizes are known only at run time")
    return _paneled(k, _arranged(k, weights, layout), shape)


def _arranged(k: Builder, weights: Tensor, layout: str) -> Tensor:
    """As panels.arranged does with constants."""
    kind, _, number = layout.partition(":")
    groups, taps = int(number or 1), product(weights.shape[2:])
    rows, columns = weights.shape[:2]
    if kind in ("depthwise", "nchw"):
        return k.transpose(k.reshape(weights, (rows, columns * taps)), (1, 0))
    each = rows // groups
    stack = k.reshape(weights, (groups, each, columns, taps))
    if kind == "window":
        transposed, shape = k.transpose(stack, (0, 3, 2, 1)), (taps * columns, each)
    elif kind == "spread":
        transposed, shape = k.transpose(stack, (0, 3, 1, 2)), (taps * each, columns)
    else:
        transposed, shape = k.transpose(stack, (0, 1, 3, 2)), (rows, taps * columns)
    return k.reshape(transposed, shape if groups == 1 else (groups, *shape))


def _paneled(k: Builder, matrices: Tensor, shape: Index) -> Tensor:
    """Columns in panels, zeros beyond the last one."""
    columns, zero = shape[-1], E.const(0, "f32")

    def at(w: Index) -> Expr:
        *outer, panel, depth, lane = w
        column = panel * PANEL + lane
        kept = fn("min", column, columns - 1)
        element = matrices.at((*outer, depth, kept))
        inside = E.op("eq", E.index(column), E.index(kept))
        return element if (columns.const or 1) % PANEL == 0 else E.select(inside, element, zero)

    return k.make(panel_shape(shape), "f32", View(at, matrices))


# transposed


@op("ConvTranspose", kind="product")
def conv_transpose(call: Call) -> Tensor:
    x, weights = _operands(call)
    geometry = spread_geometry(call, x, kernel_of(call, weights))
    each, rows = weights.shape[1].const, weights.shape[0].const
    if each is None or rows is None:
        raise Refusal("the weights' channels are known only at run time")
    groups = call.int("group", 1)
    if groups < 1 or rows % groups:
        raise Refusal(f"{rows} channels do not divide into {groups} groups")
    call.k.require_equal(x.shape[1], rows, "the channels of the input and of the weights must agree")
    if not has_kernels(x, geometry):
        return _with_bias(call, _spread_in_loops(call.k, x, weights, geometry, groups), last=False)
    image = call.k.to_nhwc(x)
    if groups == 1 and _stamps(geometry) and call.pack(1, "stamp") is not None:
        return call.k.channels_first(_stamped(call, image, geometry, each))
    made = call.k.window("dense", image, panels(call, f"spread:{groups}"), geometry, each * groups, groups=groups)
    return call.k.channels_first(_with_bias(call, made, last=True))


def _stamps(g: Geometry) -> bool:
    """Windows lie side by side: every pixel of the result comes from one pixel and one tap."""
    plain = all(d == 1 for d in g.dilation) and all(p.const == 0 for p in (*g.before, *g.after))
    covered = all(out == size * step for out, size, step in zip(g.out, g.sizes, g.stride, strict=True))
    return plain and covered and g.kernel == g.stride


def _stamped(call: Call, image: Tensor, g: Geometry, columns: int) -> Tensor:
    """One product gives all taps of a pixel; where they belong is an index map."""
    k, packed = call.k, call.pack(1, "stamp")
    assert packed is not None
    made = k.matmul_packed(image, packed, ix(g.taps * columns))
    bias = call.maybe(2)
    if bias is not None:
        made = k.map(
            lambda e, b: E.op("add", e, b), made, k.view(bias, (g.taps * columns,), lambda w: [w[0] % columns])
        )

    def back(w: Index) -> list[Ix]:
        tap = ix(0)
        for o, s in zip(w[1:-1], g.stride, strict=True):
            tap = tap * s + o % s
        return [w[0], *(o // s for o, s in zip(w[1:-1], g.stride, strict=True)), tap * columns + w[-1]]

    return k.view(made, (image.shape[0], *g.out, columns), back)


def _spread_in_loops(k: Builder, x: Tensor, weights: Tensor, g: Geometry, groups: int) -> Tensor:
    images, rank = im2col(k, x, g, 0), g.rank
    each, inner = weights.shape[1], (weights.shape[0].const or 0) // groups
    shape = (x.shape[0], each * groups, *g.out, inner, *g.kernel)

    def channel(w: Index) -> Ix:
        return w[2 + rank] if groups == 1 else (w[1] // each) * inner + w[2 + rank]

    seen = k.view(images, shape, lambda w: (w[0], channel(w), *w[2 : 2 + rank], *w[3 + rank :]))
    factors = k.view(weights, shape, lambda w: (channel(w), w[1] if groups == 1 else w[1] % each, *w[3 + rank :]))
    return _summed(k, seen, factors, rank)
