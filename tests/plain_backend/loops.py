"""The loop nest of each definition of the tensor language.

Input: a computed tensor and the name of its array. Output: lines of C that fill it. Invariant: a sum of floats is taken
in double and rounded once; all else is computed in the type that the tensor states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import (
    Assemble,
    Contraction,
    Convolution,
    Geometry,
    Ix,
    Map,
    Pool,
    Reduce,
    Scan,
    Tensor,
    Unsupported,
    Var,
    flat,
    ix,
    of,
)  # fmt: skip
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.tensor import aligned

from .elements import Elements, Memory, c_type, constant, operation

Lines = list[str]


def variables(shape: Sequence[Ix], prefix: str = "i") -> list[Var]:
    return [Var(f"{prefix}{axis}", extent) for axis, extent in enumerate(shape)]


def nest(memory: Memory, loops: Sequence[Var], body: Lines) -> Lines:
    """`body` for every value of the variables, the first one outermost."""
    for var in reversed(loops):
        extent = Elements(memory).ix(var.extent)
        body = [f"for (int64_t {var.name} = 0; {var.name} < {extent}; ++{var.name}) {{", *indented(body), "}"]
    return body


def indented(lines: Lines) -> Lines:
    return [f"  {line}" for line in lines]


def store(memory: Memory, array: str, tensor: Tensor, index: Sequence[Ix], value: str) -> str:
    return f"{array}[{Elements(memory).ix(flat(tuple(index), tensor.shape))}] = {value};"


def sum_type(dtype: str) -> str:
    return "double" if BY_NAME[dtype].kind == "float" else c_type(dtype)


# element-wise, and what moves data


def write_map(memory: Memory, tensor: Tensor, array: str) -> Lines:
    loops = variables(tensor.shape)
    where, element = [of(v) for v in loops], Elements(memory)
    value = element.text(tensor.expand(where))
    return nest(memory, loops, [*element.lines, store(memory, array, tensor, where, value)])


def write_assemble(memory: Memory, tensor: Tensor, array: str) -> Lines:
    assert isinstance(tensor.definition, Assemble)
    lines: Lines = []
    if tensor.definition.fill is not None:
        loops = variables(tensor.shape)
        fill = constant(tensor.definition.fill, tensor.dtype)
        lines += nest(memory, loops, [store(memory, array, tensor, [of(v) for v in loops], fill)])
    for offset, piece in tensor.definition.pieces:
        loops = variables(piece.shape)
        where, element = [of(v) for v in loops], Elements(memory)
        value = element.text(piece.at(where))
        place = [o + i for o, i in zip(offset, where, strict=True)]
        lines += nest(memory, loops, [*element.lines, store(memory, array, tensor, place, value)])
    return lines


# reductions


def write_reduce(memory: Memory, tensor: Tensor, array: str) -> Lines:
    reduce = tensor.definition
    assert isinstance(reduce, Reduce)
    loops = variables(reduce.src.shape)
    kept = [v for axis, v in enumerate(loops) if axis not in reduce.axes]
    over = [loops[axis] for axis in reduce.axes]
    place = [ix(0) if axis in reduce.axes else of(v) for axis, v in enumerate(loops)]
    element = Elements(memory)
    value = element.text(reduce.src.at([of(v) for v in loops]))
    start, step, result = _reduction(reduce, tensor.dtype, value, over)
    inner = nest(memory, over, [*element.lines, *step])
    return nest(memory, kept, [*start, *inner, store(memory, array, tensor, place, result)])


def _reduction(reduce: Reduce, dtype: str, value: str, over: Sequence[Var]) -> tuple[Lines, Lines, str]:
    """Lines before the reduced axes and in them, and the result."""
    kind, source = reduce.kind, reduce.src.dtype
    if kind.startswith("arg"):
        better = f"PLAIN_{'ABOVE' if kind.startswith('argmax') else 'BELOW'}({value}, best)"
        same = f" || !PLAIN_{'BELOW' if kind.startswith('argmax') else 'ABOVE'}({value}, best)"
        first = f"at < 0 || {better}{same if kind.endswith('_last') else ''}"
        step = [f"if ({first}) best = {value}, at = {over[0].name};"]
        return [f"int64_t at = -1; {c_type(source)} best = 0;"], step, "at < 0 ? 0 : at"
    if kind in ("sum", "prod"):
        sign = "+" if kind == "sum" else "*"
        return [f"{sum_type(dtype)} acc = {int(kind == 'prod')};"], [f"acc = acc {sign} {value};"], "acc"
    rule = "min" if kind == "min" else "max"
    step = [f"acc = {operation(rule, source, source, ['acc', value])};"]
    return [f"{c_type(source)} acc = {neutral(rule, source)};"], step, "acc"


def neutral(rule: str, dtype: str) -> str:
    of_type = BY_NAME[dtype]
    if of_type.kind == "float":
        return "-INFINITY" if rule == "max" else "INFINITY"
    if of_type.kind in ("uint", "bool"):
        top = 1 if of_type.kind == "bool" else 2**of_type.bits - 1
        return constant(0 if rule == "max" else top, dtype)
    half = 2 ** (of_type.bits - 1)
    return constant(-half if rule == "max" else half - 1, dtype)


def write_scan(memory: Memory, tensor: Tensor, array: str) -> Lines:
    scan = tensor.definition
    assert isinstance(scan, Scan)
    loops = variables(tensor.shape)
    along = loops[scan.axis]
    at = along.extent - 1 - of(along) if scan.reverse else of(along)
    where = [at if axis == scan.axis else of(v) for axis, v in enumerate(loops)]
    element = Elements(memory)
    value = element.text(scan.src.at(where))
    total = f"acc = acc {'+' if scan.kind == 'sum' else '*'} {value};"
    kept = store(memory, array, tensor, where, "acc")
    body = [*element.lines, *((kept, total) if scan.exclusive else (total, kept))]
    start = f"{sum_type(tensor.dtype)} acc = {0 if scan.kind == 'sum' else 1};"
    others = [v for axis, v in enumerate(loops) if axis != scan.axis]
    return nest(memory, others, [start, *nest(memory, [along], body)])


# products and windows


def write_contraction(memory: Memory, tensor: Tensor, array: str) -> Lines:
    product = tensor.definition
    assert isinstance(product, Contraction)
    loops, depth = variables(tensor.shape), Var("k", product.a.shape[-1])
    *batch, row, column = [of(v) for v in loops]

    def batch_of(operand: Tensor) -> Sequence[Ix]:
        return aligned(tuple(batch), operand.shape[:-2], tensor.shape[:-2])

    a = product.a.at([*batch_of(product.a), row, of(depth)])
    b = product.b.at([*batch_of(product.b), of(depth), column])

    def inside(body: Lines) -> Lines:
        return nest(memory, [depth], body)

    return _sum_of_products(memory, tensor, array, loops, product.accumulator, inside, a, b)


def _sum_of_products(
    memory: Memory, tensor: Tensor, array: str, loops: Sequence[Var], accumulator: str,
    inside: Callable[[Lines], Lines], a: E.Expr, b: E.Expr,
) -> Lines:  # fmt: skip
    element = Elements(memory)
    kind = sum_type(accumulator)
    term = f"acc += ({kind}){element.text(a)} * ({kind}){element.text(b)};"
    made = store(memory, array, tensor, [of(v) for v in loops], "acc")
    return nest(memory, loops, [f"{kind} acc = 0;", *inside([*element.lines, term]), made])


def write_convolution(memory: Memory, tensor: Tensor, array: str) -> Lines:
    conv = tensor.definition
    assert isinstance(conv, Convolution)
    g, loops = conv.geometry, variables(tensor.shape)
    rows = conv.a.shape[1]
    if rows.const is None or tensor.shape[1].const is None:
        raise Unsupported("a convolution of a free number of channels")
    inner, each = rows.const // conv.groups, tensor.shape[1].const // conv.groups
    image, out = of(loops[0]), of(loops[1])
    c, taps, pixels = Var("c", ix(inner)), variables([ix(k) for k in g.kernel], "k"), variables(g.sizes, "p")
    channel = out // each * inner + of(c)
    a = conv.a.at([image, channel, *(of(p) for p in pixels)])
    filter_at = (channel, out % each) if g.spread else (out, of(c))
    b = conv.b.at([*filter_at, *(of(t) for t in taps)])

    weight, kind = Elements(memory), sum_type(conv.accumulator)
    padding = f"acc += 0 * ({kind}){weight.text(b)};"  # zeros, which an infinite weight makes NaN

    def inside(body: Lines) -> Lines:
        otherwise = None if g.spread else [*weight.lines, padding]
        return nest(memory, [c], window(memory, g, loops[2:], taps, pixels, body, otherwise=otherwise))

    return _sum_of_products(memory, tensor, array, loops, conv.accumulator, inside, a, b)


def write_pool(memory: Memory, tensor: Tensor, array: str) -> Lines:
    pool = tensor.definition
    assert isinstance(pool, Pool)
    g, loops = pool.geometry, variables(tensor.shape)
    taps, pixels, element = variables([ix(k) for k in g.kernel], "k"), variables(g.sizes, "p"), Elements(memory)
    value = element.text(pool.a.at([of(loops[0]), of(loops[1]), *(of(p) for p in pixels)]))
    if pool.kind == "max":
        start = [f"{c_type(tensor.dtype)} acc = {neutral('max', tensor.dtype)};"]
        step = [f"acc = {operation('max', tensor.dtype, tensor.dtype, ['acc', value])};"]
    else:
        start = [f"{sum_type(pool.accumulator)} acc = 0; int64_t seen = 0;"]
        step = [f"acc += {value};", *(() if pool.counted else ("++seen;",))]
    body = [*start, *window(memory, g, loops[2:], taps, pixels, [*element.lines, *step])]
    if pool.kind == "mean" and pool.counted:
        body += window(memory, g, loops[2:], taps, pixels, ["++seen;"], padded=True)
    result = "acc / seen" if pool.kind == "mean" else "acc"
    return nest(memory, loops, [*body, store(memory, array, tensor, [of(v) for v in loops], result)])


def window(
    memory: Memory, g: Geometry, out: Sequence[Var], taps: Sequence[Var], pixels: Sequence[Var], body: Lines, *,
    padded: bool = False, otherwise: Lines | None = None,
) -> Lines:  # fmt: skip
    """`body` for each tap that sees a pixel (or its padding), which the variables `pixels` then name."""
    text, lines, seen = Elements(memory).ix, Lines(), list[str]()
    for axis in range(g.rank):
        at, tap, pixel = of(out[axis]), of(taps[axis]), pixels[axis].name
        low, high = (ix(0) - g.before[axis], g.sizes[axis] + g.after[axis]) if padded else (ix(0), g.sizes[axis])
        if g.spread:
            landed, stride = text(at + g.before[axis] - tap * g.dilation[axis]), g.stride[axis]
            lines.append(f"const int64_t {pixel} = plain_floordiv({landed}, {stride});")
            seen.append(f"plain_mod({landed}, {stride}) == 0")
        else:
            place = at * g.stride[axis] + tap * g.dilation[axis] - g.before[axis]
            lines.append(f"const int64_t {pixel} = {text(place)};")
        seen += [f"{pixel} >= {text(low)}", f"{pixel} < {text(high)}"]
    lines += [f"if ({' && '.join(seen) or '1'}) {{", *indented(body), "}"]
    if otherwise is not None:
        lines += ["else {", *indented(otherwise), "}"]
    return nest(memory, taps, lines)


WRITERS: dict[type[Any], Callable[[Memory, Tensor, str], Lines]] = {
    Map: write_map, Assemble: write_assemble, Reduce: write_reduce, Scan: write_scan, Contraction: write_contraction,
    Convolution: write_convolution, Pool: write_pool,
}  # fmt: skip
