"""Windows over images: their geometry from a node's attributes.

Input: a node and its image (N, C, *spatial). Output: `Geometry`. Invariant: the number of windows is the one of
shape_only_windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Geometry, Ix, Tensor, Unsupported, fn, ix
from smelt.ir.kernel.window import numbers, same_padding
from smelt.ops.registry import Call
from smelt.ops.shape_only_windows import transposed_sizes, window_counts


def geometry_of(
    call: Call, x: Tensor, kernel: Sequence[int], *, pool: bool = False, round_up: bool = False
) -> Geometry:
    """Strides, dilations and padding, explicit or automatic."""
    rank = x.rank - 2
    if rank < 1:
        raise Unsupported(f"windows over an input of rank {x.rank}")
    sizes = x.shape[2:]
    out = window_counts(call, sizes, kernel, pool=pool, round_up=round_up)
    if min(kernel, default=1) < 1:
        raise Unsupported("a kernel of size 0")
    stride, dilation = call.ints("strides", (1,) * rank), call.ints("dilations", (1,) * rank)
    mode = call.str("auto_pad", "NOTSET")
    pads = call.ints("pads", (0,) * (2 * rank)) if mode == "NOTSET" else (0,) * (2 * rank)
    if min(pads, default=0) < 0:
        raise Unsupported("negative padding")
    before, after = [ix(p) for p in pads[:rank]], [ix(p) for p in pads[rank:]]
    if mode.startswith("SAME"):
        sides = zip(sizes, out, kernel, stride, dilation, strict=True)
        both = [same_padding(*side, upper=mode == "SAME_UPPER") for side in sides]
        before, after = [b for b, _ in both], [a for _, a in both]
    padding = tuple(before), tuple(after)
    return Geometry(sizes, tuple(out), tuple(kernel), stride, dilation, *padding, direct=call.direct)


def spread_geometry(call: Call, x: Tensor, kernel: Sequence[int]) -> Geometry:
    """Of a transposed convolution, whose output is as large as all windows reach, less the padding."""
    rank = x.rank - 2
    out = [ix(s) for s in transposed_sizes(call, x, list(kernel))]
    stride, dilation = call.ints("strides", (1,) * rank), call.ints("dilations", (1,) * rank)
    pads, extra = call.ints("pads", (0,) * (2 * rank)), call.ints("output_padding", (0,) * rank)
    mode = call.str("auto_pad", "NOTSET")
    if not len(stride) == len(dilation) == len(kernel) == len(extra) == rank or len(pads) != 2 * rank:
        raise Unsupported("window attributes do not fit the input's rank")
    if min((*stride, *dilation, *kernel), default=1) < 1 or min((*pads, *extra), default=0) < 0:
        raise Unsupported("window attributes below their least value")
    before: list[Ix] = []
    after: list[Ix] = []
    for axis, size in enumerate(x.shape[2:]):
        extent = (size - 1) * stride[axis] + extra[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        if mode == "VALID" or (mode == "NOTSET" and not call.has("output_shape")):
            first = ix(0 if mode == "VALID" else pads[axis])
        else:
            total = fn("max", extent - out[axis], 0)
            first = total - total // 2 if mode == "SAME_LOWER" else total // 2
        before.append(first)
        after.append(extent - out[axis] - first)
    return Geometry(x.shape[2:], tuple(out), tuple(kernel), stride, dilation, tuple(before), tuple(after), spread=True)


def kernel_of(call: Call, weights: Tensor | None) -> tuple[int, ...]:
    """Sizes of the kernel, which must be known; those of the weights rule."""
    stated = call.ints("kernel_shape") if call.has("kernel_shape") else None
    if weights is None:
        if stated is None:
            raise Unsupported("attribute kernel_shape is missing")
        return stated
    found = numbers(weights.shape[2:])
    if found is None:
        raise Unsupported("the kernel's size is known only at run time")
    if stated is not None and stated != found:
        raise Unsupported(f"kernel_shape {list(stated)} does not fit weights of {list(found)}")
    return found
