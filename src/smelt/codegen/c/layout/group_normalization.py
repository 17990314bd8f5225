"""Group normalization of an image in NHWC: a factor and a shift for every channel.

Input: a call of GroupNormalization, or of InstanceNormalization over an image in groups of channels, as group
normalization is written before opset 18. Output: the normalized image; None where there is no image in NHWC. Invariant:
the statistics are those of ops/normalization.py.
"""

from __future__ import annotations

from smelt.ir.kernel import Tensor, ix
from smelt.ir.kernel.tensor import aligned, regrouped
from smelt.ops.normalization import (
    add,
    channel_groups,
    grouped_parameter,
    inverse_root,
    moments,
    multiply,
    stage_dtype,
    stash_dtype,
    subtract,
)
from smelt.ops.registry import Call

from .nhwc import NhwcBuilder, image_below


def group_norm_of_image(call: Call) -> Tensor | None:
    k, x = call.k, call.x()
    assert isinstance(k, NhwcBuilder)
    if image_below(x) is None:
        return None
    groups, each = channel_groups(call)
    stage = k.cast(x, stage_dtype(x, stash_dtype(call)))
    image = image_below(stage)
    assert image is not None
    sizes = (ix(1), ix(groups), each)
    scale, shift = (k.cast(grouped_parameter(call, position, sizes), stage.dtype) for position in (1, 2))
    return k.cast(k.from_nhwc(_normalized(call, image, scale, shift)), x.dtype)


def instance_norm_of_groups(call: Call) -> Tensor | None:
    k, x = call.k, call.x()
    assert isinstance(k, NhwcBuilder)
    whole = regrouped(x)
    image = image_below(whole) if whole is not None else None
    if whole is None or image is None or x.rank != 3 or not _in_groups(whole, x):
        return None
    shape = (ix(1), x.shape[1], whole.shape[1] // x.shape[1])
    scale, shift = (k.view(call.x(position), shape, lambda w: [w[1]]) for position in (1, 2))
    return k.reshape(k.from_nhwc(_normalized(call, image, scale, shift)), x.shape)


def _in_groups(image: Tensor, rows: Tensor) -> bool:
    """Whether (batch, groups, rest) are an image's (batch, channels, ...)."""
    channels, groups = image.shape[1].const, rows.shape[1].const
    return image.shape[0] == rows.shape[0] and bool(channels and groups) and (channels or 0) % (groups or 1) == 0


def _normalized(call: Call, image: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """An NHWC image with its channels in groups as scale and shift of (1, groups, each) state: a factor and a shift for
    every channel, so that what follows is element-wise over the image."""
    k, (_, groups, each) = call.k, scale.shape
    spatial = range(1, image.rank - 1)
    stage = k.reshape(image, (*image.shape[:-1], groups, each))
    mean, variance = moments(k, stage, [*spatial, image.rank])
    inverse = inverse_root(k, variance, call.float("epsilon", 1e-5))
    channels = (image.shape[0], *(ix(1) for _ in spatial), groups * each)

    def spread(x: Tensor) -> Tensor:
        """One element for each channel, from (batch, ..., groups, each), of which some axes may be 1."""
        whole = (*channels[:-1], groups, each)[-x.rank :]
        return k.view(
            x, channels, lambda w: aligned((w[0], *w[1:-1], w[-1] // each, w[-1] % each)[-x.rank :], x.shape, whole)
        )

    factor = k.copy(multiply(k, spread(inverse), spread(scale)))
    return add(k, multiply(k, subtract(k, image, k.copy(spread(mean))), factor), k.copy(spread(shift)))
