"""Col2Im: blocks of columns added up where they lie in an image.

Input: a node; the sizes of the image and of a block come from shapes. Output: a function in C (`col2im_unit.h`).
Invariant: any number of axes; there is a column for each place of a block, or the call fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, ix, product
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.functions import given, unit

from .registry import Call, op

Array = np.ndarray[Any, Any]


@op("Col2Im", since=18, kind="function")
def col2im(call: Call) -> Tensor:
    x, image, block = call.x(0), call.values(1), call.values(2)
    if image is None or block is None or x.rank != 3 or len(image) != len(block) or not image or x.dtype == "b":
        raise Unsupported("columns, an image or a block of another type or rank")
    rank = len(image)
    dilations, strides = call.ints("dilations", (1,) * rank), call.ints("strides", (1,) * rank)
    pads = call.ints("pads", (0,) * (2 * rank))
    if not len(dilations) == len(strides) == len(pads) // 2 == rank or min(*dilations, *strides) < 1:
        raise Unsupported("strides, dilations or pads do not fit the image")
    room = [
        i + pads[d] + pads[rank + d] - (b - 1) * dilations[d] for d, (i, b) in enumerate(zip(image, block, strict=True))
    ]
    places = [(r - 1) // strides[d] + 1 for d, r in enumerate(room)]
    taps = product(block)
    channels = x.shape[1] // taps
    call.k.require_equal(channels * taps, x.shape[1], "columns must be whole blocks")
    call.k.require_equal(product(places), x.shape[2], "there must be a column for each place of a block")
    axes = zip(image, block, places, strides, dilations, pads[:rank], strict=True)
    numbers: list[Ix] = [x.shape[0] * channels, taps, x.shape[2], ix(rank), *(ix(n) for axis in axes for n in axis)]
    function = Function(
        name=f"smelt_col2im_{x.dtype}", text=unit("conv/col2im_unit.h", x.dtype), operands=(x,),
        results=(((x.shape[0], channels, *image), x.dtype),), numbers=tuple(numbers), factors=(),
        scratch_bytes=ix(0), flops=x.elements, reference=lambda arrays, numbers, _: (_added(arrays, numbers),),
    )  # fmt: skip
    return call.k.function(function)[0]


def _added(arrays: Arrays, numbers: Sequence[int]) -> Array:
    x, rank, images = given(arrays), numbers[3], np.arange(numbers[0])
    axes = [tuple(numbers[4 + 6 * d : 10 + 6 * d]) for d in range(rank)]
    image, block, places = (tuple(axis[i] for axis in axes) for i in range(3))
    out = np.zeros((len(images), *image), x.dtype)
    columns = x.reshape(len(images), *block, *places)
    for tap in np.ndindex(*block):
        at: list[Array] = [np.arange(n) * s + k * d - p for (_, _, n, s, d, p), k in zip(axes, tap, strict=True)]
        inside: list[Array] = [np.nonzero((a >= 0) & (a < size))[0] for a, size in zip(at, image, strict=True)]
        to = np.ix_(images, *(a[i] for a, i in zip(at, inside, strict=True)))
        out[to] += columns[(slice(None), *tap)][np.ix_(images, *inside)]
    return out.reshape(x.shape[0], -1, *image)
