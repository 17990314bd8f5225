"""Pools: the largest, mean or norm of what a window sees.

Input: a node. Output: a pool, or a reduction over whole images. Invariant: padding takes no part, except in a mean
that is requested to count it, and in the maximum of a window that sees nothing else; a NaN in a window makes its
maximum NaN.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.ir.kernel import Builder, Geometry, Tensor, Unsupported, ix, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.in_loops import LEAST, require_pixels, seen_taps
from smelt.ops.pooling_places import LOWEST, maxima_with_places
from smelt.ops.registry import Call, Cost, op
from smelt.ops.window import geometry_of, kernel_of
from smelt.ops.work import pool_work, read_work


def geometry_of_pool(call: Call, x: Tensor) -> Geometry:
    round_up = call.opset >= 10 and call.int("ceil_mode", 0) != 0
    g = geometry_of(call, x, kernel_of(call, None), pool=True, round_up=round_up)
    require_pixels(call.k, x, g)
    return g


def _cost_of_maxima(node: ir.Node) -> Cost:
    """Where the places are asked for too, ONNX Runtime goes pixel by pixel."""
    return "heavy" if len(node.outputs) > 1 else "cheap"


@op("MaxPool", kind="window", makes="pool", cost=_cost_of_maxima, work=pool_work)
def max_pool(call: Call) -> Tensor | list[Tensor]:
    x = call.x()
    if x.dtype not in LEAST:
        raise Unsupported(f"maxima of {x.dtype}")
    g = geometry_of_pool(call, x)
    if call.n_outputs > 1:
        return maxima_with_places(call, x, g)
    return _of_padding(call.k, x, g, call.k.pool("max", x, g))


def _of_padding(k: Builder, x: Tensor, g: Geometry, maxima: Tensor) -> Tensor:
    """The maxima, and the least finite number where a window sees padding alone, as in stock: from -inf a convolution
    behind it would make NaN. Only a dilated window that begins in the padding may step over an image."""
    begins_outside = any(d != 1 and b != ix(0) for d, b in zip(g.dilation, g.before, strict=True))
    if x.dtype not in LOWEST or not begins_outside:
        return maxima
    least, none = E.const(LOWEST[x.dtype], x.dtype), E.const(0, x.dtype)
    count = seen_taps(k, g, x.dtype, counted=False)
    return k.map(lambda m, c: E.select(E.op("eq", c, none), least, m), maxima, count)


@op("AveragePool", kind="window", makes="pool", work=pool_work)
def average_pool(call: Call) -> Tensor:
    x = call.x()
    if x.dtype not in E.FLOATS:
        raise Unsupported(f"means of {x.dtype}")
    g, counted = geometry_of_pool(call, x), call.int("count_include_pad", 0) != 0
    gaps = any(d != 1 and (b != ix(0) or a != ix(0)) for d, b, a in zip(g.dilation, g.before, g.after, strict=True))
    if gaps and not counted:
        raise Unsupported(
            "a mean over windows with gaps, which may see nothing but padding: stock gives 0 or NaN there"
        )
    return call.k.pool("mean", x, g, counted=counted)


@op("LpPool", since=2, kind="window", makes="pool", work=pool_work)
def lp_pool(call: Call) -> Tensor:
    x, k, p = call.x(), call.k, call.int("p", 2)
    if x.dtype not in E.FLOATS or p < 1:
        raise Unsupported(f"the norm of order {p} of {x.dtype}")
    g, powers = geometry_of_pool(call, x), _power(k, x, p)
    return _root(k, k.pool("sum", powers, g), p)


def _power(k: Builder, x: Tensor, p: int) -> Tensor:
    order = E.const(p, x.dtype)
    if p == 1:
        return k.map(lambda e: E.op("abs", e), x)
    if p == 2:
        return k.map(lambda e: E.op("mul", e, e), x)
    return k.map(lambda e: E.op("pow", E.op("abs", e), order), x)


def _root(k: Builder, x: Tensor, p: int) -> Tensor:
    if p == 1:
        return x
    inverse = E.const(1 / p, x.dtype)
    return k.map(lambda e: E.op("sqrt", e) if p == 2 else E.op("pow", e, inverse), x)


# over whole images


def _spatial(call: Call) -> list[int]:
    x = call.x()
    if x.rank < 3 or x.dtype not in E.FLOATS:
        raise Unsupported(f"a whole image of rank {x.rank} and type {x.dtype}")
    return list(range(2, x.rank))


@op("GlobalAveragePool", kind="window", work=read_work)
def global_average_pool(call: Call) -> Tensor:
    k, x, axes = call.k, call.x(), _spatial(call)
    count = E.cast(E.index(product(x.shape[2:])), x.dtype)
    return k.map(lambda e: E.op("div", e, count), k.reduce("sum", x, axes))


@op("GlobalMaxPool", kind="window", work=read_work)
def global_max_pool(call: Call) -> Tensor:
    return call.k.reduce("max", call.x(), _spatial(call))


@op("GlobalLpPool", since=2, kind="window")
def global_lp_pool(call: Call) -> Tensor:
    k, p = call.k, call.int("p", 2)
    if p < 1:
        raise Unsupported(f"the norm of order {p}")
    return _root(k, k.reduce("sum", _power(k, call.x(), p), _spatial(call)), p)
