"""Ops that only say where an element comes from: transposes, reshapes, concatenation, tiling, blocks to space.

Input: a node. Output: a view of its operand, or an assembly of several. Invariant: no element is computed here; a
shape that is known only at run time is a size expression, and what must hold then is a requirement.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Ix, Tensor, Unsupported, fn, ix, product
from smelt.ir.kernel.index import exact_div, nonneg
from smelt.ops.axes import axes_of, axis_of
from smelt.ops.registry import Call, op


def require_size(call: Call, value: Ix, what: str) -> Ix:
    """A size must not be negative: refused when it is known, checked at run time when it is not.

    The result shows that it is not, so that a shape made from it needs no second check."""
    if value.const is not None and value.const < 0:
        raise Unsupported(f"{what} is negative: {value.const}")
    if nonneg(value):
        return value
    call.k.require_equal(fn("lt", value, 0), 0, f"{what} must not be negative")
    return fn("max", value, 0)


def values_or_refuse(call: Call, position: int) -> tuple[Ix, ...]:
    found = call.values(position)
    if found is None:
        raise Unsupported(f"input {position} is missing")
    return found


@op("Transpose", since=1, kind="movement")
def transpose(call: Call) -> Tensor:
    x = call.x()
    perm = call.ints("perm", tuple(range(x.rank))[::-1])
    if sorted(perm) != list(range(x.rank)):
        raise Unsupported(f"perm {list(perm)} is not a permutation of {x.rank} axes")
    return call.k.transpose(x, perm)


# Reshape


@op("Reshape", since=5, kind="movement", cost="view")
def reshape(call: Call) -> Tensor:
    x = call.x()
    requested = values_or_refuse(call, 1)
    allow_zero = call.opset >= 14 and call.int("allowzero", 0) != 0
    shape = _reshaped(call, x, requested, allow_zero)
    call.k.require_equal(product(shape), x.elements, "a reshape must keep the number of elements")
    return call.k.reshape(x, shape)


def _reshaped(call: Call, x: Tensor, requested: Sequence[Ix], allow_zero: bool) -> list[Ix]:
    if sum(a.const == -1 for a in requested) > 1:
        raise Unsupported("a reshape may infer one dimension, not several")
    kept = [_kept(call, x, axis, a) if not allow_zero else a for axis, a in enumerate(requested)]
    inferred = [fn("eq", a, -1) if a.const is not None or not nonneg(a) else ix(0) for a in requested]
    known = [fn("sel", i, 1, k) for i, k in zip(inferred, kept, strict=True)]
    rest = _quotient(x.elements, product(known)) if any(i.const != 0 for i in inferred) else ix(1)
    out = [fn("sel", i, rest, k) for i, k in zip(inferred, kept, strict=True)]
    return [require_size(call, size, "a dimension of the new shape") for size in out]


def _kept(call: Call, x: Tensor, axis: int, requested: Ix) -> Ix:
    """0 keeps the operand's dimension, also where it is a size that happens to be 0 at run time."""
    if axis >= x.rank:
        if requested.const == 0:
            raise Unsupported(f"dimension {axis} of the new shape copies one that the input does not have")
        return requested
    chosen = fn("sel", fn("eq", requested, 0), x.shape[axis], requested)
    if requested.const is not None or not nonneg(requested) or not call.k.assuming:
        return requested if exact_div(x.shape[axis], requested) is not None else chosen
    if exact_div(x.shape[axis], requested) is None:
        # Where all of the operand is empty then, another shape than this one would fit at best another 0.
        call.k.assume_equal(
            chosen, requested, "a new dimension is 0", surely=exact_div(x.elements, requested) is not None
        )
    return requested


def _quotient(total: Ix, known: Ix) -> Ix:
    whole = exact_div(total, known)
    return total // known if whole is None else whole


@op("Flatten", since=1, kind="movement", cost="view")
def flatten(call: Call) -> Tensor:
    x = call.x()
    axis = call.int("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise Unsupported(f"axis {axis} is out of range for rank {x.rank}")
    cut = axis + x.rank if axis < 0 else axis
    return call.k.reshape(x, [product(x.shape[:cut]), product(x.shape[cut:])])


# Squeeze and Unsqueeze


@op("Squeeze", since=1, kind="movement", cost="view")
def squeeze(call: Call) -> Tensor:
    x = call.x()
    given = _axes(call)
    if given is None:
        if any(s.const is None for s in x.shape):
            raise Unsupported("squeeze without axes, and which dimensions are 1 is known only at run time")
        given = tuple(ix(d) for d, s in enumerate(x.shape) if s.const == 1)
    fixed = numbers(given)
    if fixed is None:
        return _squeeze_at_run_time(call, x, given)
    axes = axes_of(fixed, x.rank)
    return call.k.squeeze(x, axes) if axes else x


@op("Unsqueeze", since=1, kind="movement", cost="view")
def unsqueeze(call: Call) -> Tensor:
    x = call.x()
    given = _axes(call)
    if given is None:
        raise Unsupported("axes are missing")
    fixed = numbers(given)
    if fixed is None:
        return _unsqueeze_at_run_time(call, x, given)
    axes = axes_of(fixed, x.rank + len(given))
    return call.k.unsqueeze(x, axes) if axes else x


def _axes(call: Call) -> tuple[Ix, ...] | None:
    """An attribute before opset 13, an input from then on."""
    if call.opset < 13:
        return tuple(ix(a) for a in call.ints("axes")) if call.has("axes") else None
    return call.values(1)


def numbers(values: Sequence[Ix]) -> tuple[int, ...] | None:
    """The values as numbers, when all are known at compile time."""
    plain = tuple(v.const for v in values if v.const is not None)
    return plain if len(plain) == len(values) else None


def run_time_axes(call: Call, axes: Sequence[Ix], rank: int) -> list[Ix]:
    """Axes in [0, rank), whatever sign they came with, and each of them once."""
    out: list[Ix] = []
    for axis in axes:
        place = fn("sel", fn("lt", axis, 0), axis + rank, axis)
        call.k.require_equal(fn("min", fn("max", place, 0), rank - 1), place, "an axis is out of range")
        for other in out:
            call.k.require_equal(fn("eq", place, other), 0, "axes name an axis twice")
        out.append(place)
    return out


def _named(axes: Sequence[Ix], axis: int) -> Ix:
    """1 when one of the axes is this one, else 0."""
    return sum((fn("eq", a, axis) for a in axes), ix(0))


def _others_below(axes: Sequence[Ix], axis: int) -> Ix:
    """How many axes before this one are not among the given ones."""
    return axis - sum((fn("lt", a, axis) for a in axes), ix(0))


def _squeeze_at_run_time(call: Call, x: Tensor, given: Sequence[Ix]) -> Tensor:
    """Elements keep their order, so this is a reshape to sizes chosen at run time."""
    axes = run_time_axes(call, given, x.rank)
    if len(axes) > x.rank:
        raise Unsupported(f"{len(axes)} axes for rank {x.rank}")
    for d, size in enumerate(x.shape):
        call.k.require_equal(fn("sel", _named(axes, d), size, 1), 1, "a squeezed dimension must be 1")
    shape: list[Ix] = []
    for place in range(x.rank - len(axes)):
        size = x.shape[place + len(axes)]
        for d in range(place + len(axes) - 1, place - 1, -1):
            here = fn("lt", place, _others_below(axes, d + 1))
            size = fn("sel", here, x.shape[d], size)
        shape.append(size)
    return call.k.reshape(x, shape)


def _unsqueeze_at_run_time(call: Call, x: Tensor, given: Sequence[Ix]) -> Tensor:
    rank = x.rank + len(given)
    axes = run_time_axes(call, given, rank)
    shape: list[Ix] = []
    for d in range(rank):
        size = ix(1)
        for source in range(max(d - len(axes), 0), min(d + 1, x.rank)):
            size = fn("sel", fn("eq", _others_below(axes, d), source), x.shape[source], size)
        shape.append(fn("sel", _named(axes, d), 1, size))
    return call.k.reshape(x, shape)


# Concat and Split


@op("Concat", since=4, kind="movement")
def concat(call: Call) -> Tensor:
    parts = [call.x(i) for i in range(len(call.inputs))]
    if not parts:
        raise Unsupported("nothing to concatenate")
    if any(p.rank != parts[0].rank or p.dtype != parts[0].dtype for p in parts):
        raise Unsupported("concatenated tensors differ in rank or type")
    return call.k.concat(parts, axis_of(call.int("axis"), parts[0].rank))


@op("Split", since=2, kind="movement")
def split(call: Call) -> list[Tensor]:
    x = call.x()
    axis = axis_of(call.int("axis", 0), x.rank)
    size = x.shape[axis]
    parts = _split_sizes(call, size)
    if len(parts) != call.n_outputs:
        raise Unsupported(f"{len(parts)} split sizes for {call.n_outputs} outputs")
    call.k.require_equal(sum(parts, ix(0)), size, "split sizes must add up")
    return _cut(call, x, axis, parts)


def _split_sizes(call: Call, size: Ix) -> list[Ix]:
    given = call.values(1) if call.opset >= 13 else None
    if call.opset < 13 and call.has("split"):
        given = tuple(ix(v) for v in call.ints("split"))
    if given is not None:
        return [require_size(call, g, "a split size") for g in given]
    count = call.int("num_outputs", call.n_outputs) if call.opset >= 18 else call.n_outputs
    if count < 1 or count != call.n_outputs:
        raise Unsupported(f"num_outputs is {count} and the node has {call.n_outputs} outputs")
    if call.opset < 18:
        each = exact_div(size, ix(count))
        each = size // count if each is None else each
        return [each] * count
    chunk = (size + (count - 1)) // count
    last = size - chunk * (count - 1)
    if exact_div(size, ix(count)) is not None:
        last = chunk
    return [*([chunk] * (count - 1)), require_size(call, last, "the last part of a split")]


def _cut(call: Call, x: Tensor, axis: int, parts: Sequence[Ix]) -> list[Tensor]:
    outputs: list[Tensor] = []
    start = ix(0)
    for part in parts:
        starts = [start if d == axis else ix(0) for d in range(x.rank)]
        sizes = [part if d == axis else s for d, s in enumerate(x.shape)]
        outputs.append(call.k.slice(x, starts, [1] * x.rank, sizes))
        start = start + part
    return outputs


# Expand and Tile


@op("Expand", since=8, kind="movement")
def expand(call: Call) -> Tensor:
    x = call.x()
    requested = tuple(require_size(call, v, "a dimension of the new shape") for v in values_or_refuse(call, 1))
    return call.k.expand(x, call.k.broadcast(x.shape, requested))


@op("Tile", since=6, kind="movement")
def tile(call: Call) -> Tensor:
    x = call.x()
    repeats = [require_size(call, r, "a repeat count") for r in values_or_refuse(call, 1)]
    if len(repeats) != x.rank:
        raise Unsupported(f"{len(repeats)} repeat counts for rank {x.rank}")
    shape = [s * r for s, r in zip(x.shape, repeats, strict=True)]

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        return [i if r.const == 1 else i % s for i, s, r in zip(w, x.shape, repeats, strict=True)]

    return x if all(r.const == 1 for r in repeats) else call.k.view(x, shape, back)


# blocks


def _blocks(call: Call) -> tuple[Tensor, int]:
    x, block = call.x(), call.int("blocksize")
    if x.rank != 4:
        raise Unsupported(f"the input has rank {x.rank}, not 4")
    if block < 1:
        raise Unsupported(f"blocksize is {block}")
    return x, block


def _divided(call: Call, size: Ix, by: int, what: str) -> Ix:
    whole = exact_div(size, ix(by))
    if whole is not None:
        return whole
    part = size // by
    call.k.require_equal(part * by, size, f"{what} must be divisible by {by}")
    return part


def _block_order(call: Call, since: int) -> str:
    mode = call.str("mode", "DCR") if call.opset >= since else "DCR"
    if mode not in ("DCR", "CRD"):
        raise Unsupported(f"mode {mode!r} is not one of ONNX's")
    return mode


@op("DepthToSpace", since=1, kind="movement")
def depth_to_space(call: Call) -> Tensor:
    x, block = _blocks(call)
    n, depth, high, wide = x.shape
    depth = _divided(call, depth, block * block, "the channel count")
    mode = _block_order(call, since=11)

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        row, column = w[2] % block, w[3] % block
        inner = row * block + column
        channel = inner * depth + w[1] if mode == "DCR" else w[1] * (block * block) + inner
        return [w[0], channel, w[2] // block, w[3] // block]

    return call.k.view(x, (n, depth, high * block, wide * block), back)


@op("SpaceToDepth", since=1, kind="movement")
def space_to_depth(call: Call) -> Tensor:
    x, block = _blocks(call)
    n, depth, high, wide = x.shape
    high, wide = _divided(call, high, block, "the height"), _divided(call, wide, block, "the width")
    mode = _block_order(call, since=28)

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        area = block * block
        inner, channel = (w[1] // depth, w[1] % depth) if mode == "DCR" else (w[1] % area, w[1] // area)
        return [w[0], channel, w[2] * block + inner // block, w[3] * block + inner % block]

    return call.k.view(x, (n, depth * (block * block), high, wide), back)
