"""Numpy references of standard ops whose evaluation by the onnx package is wrong for some sizes, or too slow to use.

Input: arrays and plain attributes. Output: the op's first output, or None where the onnx package should answer;
where MaxPool's maxima lie.
Invariant: works in the precision of its inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


def gather_elements(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """The indices may be fewer than the data along every axis, not only along the gathered one."""
    data: Array = inputs[0]
    indices: Array = inputs[1]
    axis = attributes.get("axis", 0) % data.ndim
    kept = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(indices.shape))
    return np.take_along_axis(data[kept], indices % max(data.shape[axis], 1), axis)


@dataclass(frozen=True)
class Windows:
    """Where pooling windows lie, for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[int, ...]

    def im2col(self, x: Array, fill: float) -> list[Array]:
        """One array for each place of the kernel: what the windows see there. Outside of x they see `fill`."""
        extent = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in self._sides()]
        ends = [max(r - b - n, 0) for r, b, n in zip(extent, self.before, x.shape[2:], strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *zip(self.before, ends, strict=True)], constant_values=fill)
        return [padded[(..., *self._places(offset))] for offset in itertools.product(*map(range, self.kernel))]

    def _sides(self) -> list[tuple[int, int, int, int]]:
        return list(zip(self.out, self.strides, self.kernel, self.dilations, strict=True))

    def _places(self, offset: Sequence[int]) -> list[slice]:
        sides = zip(offset, self._sides(), strict=True)
        return [slice(o * d, o * d + (count - 1) * s + 1, s) for o, (count, s, _, d) in sides]


def windows(spatial: Sequence[int], attributes: Attributes, *, pool: bool = True) -> Windows:
    kernel = tuple(attributes["kernel_shape"])
    rank = len(kernel)
    strides = tuple(attributes.get("strides") or (1,) * rank)
    dilations = tuple(attributes.get("dilations") or (1,) * rank)
    pads = tuple(attributes.get("pads") or (0,) * (2 * rank))
    mode = attributes.get("auto_pad", "NOTSET")
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if mode.startswith("SAME"):
        out = [-(-n // s) for n, s in zip(spatial, strides, strict=True)]
        total = [max((o - 1) * s + r - n, 0) for o, s, r, n in zip(out, strides, extent, spatial, strict=True)]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        before, after = (less, more) if mode == "SAME_UPPER" else (more, less)
        return Windows(kernel, strides, dilations, tuple(before), tuple(after), tuple(out))
    before, after = (pads[:rank], pads[rank:]) if mode == "NOTSET" else ((0,) * rank, (0,) * rank)
    round_up = bool(attributes.get("ceil_mode", 0))
    sides = zip(spatial, before, after, extent, strides, strict=True)
    out = [_count(*side, round_up=round_up, pool=pool) for side in sides]
    return Windows(kernel, strides, dilations, before, after, tuple(out))


def _count(size: int, before: int, after: int, extent: int, stride: int, *, round_up: bool, pool: bool) -> int:
    """When rounding up, the last window must still start inside the input or the padding before it. A pool's window
    that exceeds the padded image by less than a stride is one position: ONNX Runtime divides toward zero."""
    span = size + before + after - extent
    if not round_up:
        return span // stride + 1 if not pool or not -stride < span < 0 else 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + before else count


def max_pool(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    x = inputs[0]
    if x.dtype.kind != "f":
        return None
    place = windows(x.shape[2:], attributes)
    top = np.maximum.reduce(place.im2col(x, -np.inf))
    if not any(gap != 1 and before for gap, before in zip(place.dilations, place.before, strict=True)):
        return top
    inside = np.maximum.reduce(place.im2col(np.ones((1, 1, *x.shape[2:]), x.dtype), 0))
    return np.where(inside > 0, top, np.finfo(np.float32).min)  # float64 stands for float32 here


def max_pool_places(inputs: Sequence[Any], attributes: Attributes) -> Array:
    """The places of the maxima in the whole image: the first of equals, and of NaN."""
    x: Array = inputs[0]
    order = (0, 1, *range(2, x.ndim)) if not attributes.get("storage_order", 0) else (0, 1, *range(x.ndim - 1, 1, -1))
    sizes = [x.shape[axis] for axis in order]
    numbers = np.arange(x.size, dtype=np.int64).reshape(sizes).transpose(np.argsort(order))
    place = windows(x.shape[2:], attributes)
    seen, at = (np.stack(place.im2col(array, fill)) for array, fill in ((x, -np.inf), (numbers, -1)))
    top = np.maximum.reduce(seen)
    valid = (at >= 0) & np.where(np.isnan(top), np.isnan(seen), seen == top)
    found = np.take_along_axis(at, valid.argmax(0)[None], 0)[0]
    images = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * (x.ndim - 2)) * prod(x.shape[2:])
    outside = images - sum(prod(sizes[axis + 1 :]) for axis in range(2, x.ndim))
    return np.where(valid.any(0), found, outside)


def average_pool(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    x = inputs[0]
    place = windows(x.shape[2:], attributes)
    here = np.ones((1, 1, *x.shape[2:]), x.dtype)
    if attributes.get("count_include_pad", 0):
        pads = list(zip(place.before, place.after, strict=True))
        counted = np.pad(here, [(0, 0), (0, 0), *pads], constant_values=1)
        inside = Windows(place.kernel, place.strides, place.dilations, (0,) * len(pads), place.after, place.out)
        return np.add.reduce(place.im2col(x, 0)) / np.add.reduce(inside.im2col(counted, 0))
    return np.add.reduce(place.im2col(x, 0)) / np.add.reduce(place.im2col(here, 0))


def global_max_pool(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """Whatever the rank: the onnx package reduces the channels of a line too."""
    del attributes
    x = np.asarray(inputs[0])
    return x.max(tuple(range(2, x.ndim)), keepdims=True) if x.ndim > 2 and x.size else None


_BLOCK_ELEMENTS = 1 << 19  # of im2col rows at a time: 4 MB of float64 stay in a cache
_PART_THREADS = 2  # numpy lets others run while it copies and multiplies
_MOST_TAPS = 64  # of a depthwise kernel that is summed tap by tap


def convolution(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """im2col and a product for each group: the onnx package loops over taps and images in Python."""
    x, weight = np.asarray(inputs[0]), np.asarray(inputs[1])
    bias = inputs[2] if len(inputs) > 2 else None
    if x.ndim < 3 or x.dtype.kind != "f" or weight.dtype != x.dtype or weight.ndim != x.ndim:
        return None
    place = windows(x.shape[2:], {**attributes, "kernel_shape": weight.shape[2:], "ceil_mode": 0}, pool=False)
    if any(n < 1 for n in place.out):
        return None
    group = int(attributes.get("group", 1))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(place.before, place.after, strict=True)])
    depthwise = weight.shape[1] == 1 and 1 < group == x.shape[1] and prod(place.kernel) <= _MOST_TAPS
    convolved = _convolved_depthwise if depthwise else _convolved
    made = np.stack([convolved(image, weight, place, group) for image in padded]) if len(x) else None
    if made is None:
        return np.zeros((0, weight.shape[0], *place.out), x.dtype)
    return made if bias is None else made + np.reshape(bias, (1, -1, *(1,) * (x.ndim - 2)))


def _convolved_depthwise(image: Array, weight: Array, place: Windows, group: int) -> Array:
    """One padded image, tap by tap: windows of one channel would be gathered for a single row of weights."""
    image = np.repeat(image, weight.shape[0] // group, 0) if weight.shape[0] != group else image
    out = np.zeros((weight.shape[0], *place.out), image.dtype)
    product = np.empty_like(out)
    for tap in np.ndindex(*place.kernel):
        sizes = zip(tap, place.dilations, place.out, place.strides, strict=True)
        seen = tuple(slice(at * apart, at * apart + (n - 1) * step + 1, step) for at, apart, n, step in sizes)
        factors = weight[(slice(None), 0, *tap)].reshape(-1, *(1,) * len(tap))
        np.multiply(image[(slice(None), *seen)], factors, out=product)
        out += product
    return out


def _convolved(image: Array, weight: Array, place: Windows, group: int) -> Array:
    """One padded image, some lines of the result at a time."""
    channels, rank = image.shape[0] // group, len(place.kernel)
    by_group = image.reshape(group, channels, *image.shape[1:])
    rows = weight.reshape(group, weight.shape[0] // group, -1)
    steps = by_group.strides[2:]
    strides = [s * n for s, n in zip(steps, place.strides, strict=True)]
    taps = [s * n for s, n in zip(steps, place.dilations, strict=True)]
    shape = (group, channels, *place.kernel, *place.out)
    seen = np.lib.stride_tricks.as_strided(by_group, shape, (*by_group.strides[:2], *taps, *strides), writeable=False)
    line = max(1, int(np.prod(shape)) // max(place.out[0], 1))
    block = max(1, _BLOCK_ELEMENTS // line)
    axis = 2 + rank

    def part(start: int) -> Array:
        lines = seen[(slice(None),) * axis + (slice(start, start + block),)]
        columns = lines.reshape(group, rows.shape[2], -1)
        return np.matmul(rows, columns).reshape(weight.shape[0], *lines.shape[axis:])

    starts = range(0, place.out[0], block)
    if len(starts) == 1:
        return part(0)
    with ThreadPoolExecutor(_PART_THREADS) as pool:  # parts do not depend on each other, nor on who computes them
        return np.concatenate(list(pool.map(part, starts)), axis=1)


def pad(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """Negative pads crop, and only then the rest is padded: the onnx package refuses them."""
    pads = np.asarray(inputs[1]).reshape(-1).astype(int) if len(inputs) > 1 else np.zeros(0, int)
    if not (pads < 0).any():
        return None
    x, count = np.asarray(inputs[0]), len(pads) // 2
    axes = np.asarray(inputs[3]).reshape(-1) % x.ndim if len(inputs) > 3 and inputs[3] is not None else range(count)
    sides = [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, pads[:count], pads[count:], strict=True):
        sides[int(axis)] = (int(before), int(after))
    cropped = x[tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, sides, strict=True))]
    grown = [(max(b, 0), max(a, 0)) for b, a in sides]
    mode: Any = attributes.get("mode", "constant")
    if mode != "constant":
        return np.pad(cropped, grown, mode=mode)
    value = np.asarray(inputs[2]).reshape(-1)[:1] if len(inputs) > 2 and inputs[2] is not None else np.zeros(1)
    return np.pad(cropped, grown, constant_values=value.astype(x.dtype)[0])


def stft(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """Frames of a signal, each times the window, by numpy's FFT: the onnx package needs two frames or more."""
    signal = np.asarray(inputs[0])
    window = np.asarray(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
    given = inputs[3] if len(inputs) > 3 and inputs[3] is not None else None
    length = int(np.asarray(given).reshape(-1)[0]) if given is not None else None if window is None else len(window)
    if length is None or length < 1 or signal.ndim < 2 or signal.shape[1] < length:
        return None
    is_complex = signal.ndim == 3 and signal.shape[2] == 2
    plain = signal[..., 0] + 1j * signal[..., 1] if is_complex else signal.reshape(signal.shape[:2])
    step = max(int(np.asarray(inputs[1]).reshape(-1)[0]), 1)
    frames = np.lib.stride_tricks.sliding_window_view(plain, length, axis=1)[:, ::step]
    frames = frames if window is None else frames * window
    halved = bool(attributes.get("onesided", 1)) and not is_complex
    made = np.fft.rfft(frames) if halved else np.fft.fft(frames)
    return np.stack([made.real, made.imag], axis=-1).astype(signal.dtype)


def transposed_convolution(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """A product for each tap, added where the tap lands: the onnx package adds element by element in Python."""
    x, weight = np.asarray(inputs[0]), np.asarray(inputs[1])
    bias = inputs[2] if len(inputs) > 2 else None
    plain = attributes.get("auto_pad", "NOTSET") == "NOTSET" and not attributes.get("output_shape")
    if not plain or x.ndim < 3 or x.dtype.kind != "f" or weight.dtype != x.dtype or weight.ndim != x.ndim:
        return None
    kernel, rank, group = weight.shape[2:], x.ndim - 2, int(attributes.get("group", 1))
    strides = attributes.get("strides") or (1,) * rank
    dilations = attributes.get("dilations") or (1,) * rank
    pads = attributes.get("pads") or (0,) * (2 * rank)
    more = attributes.get("output_padding") or (0,) * rank
    sides = list(zip(x.shape[2:], strides, kernel, dilations, strict=True))
    whole = [(n - 1) * s + (k - 1) * d + 1 + m for (n, s, k, d), m in zip(sides, more, strict=True)]
    out = [w - b - e for w, b, e in zip(whole, pads[:rank], pads[rank:], strict=True)]
    if min(x.shape) < 1 or min(out) < 1 or min(pads) < 0:
        return None
    outer = weight.shape[1]
    rows = x.reshape(x.shape[0], group, x.shape[1] // group, -1)
    taps = weight.reshape(group, x.shape[1] // group, outer, -1)
    made = np.zeros((x.shape[0], group, outer, *whole), x.dtype)
    for number, offset in enumerate(itertools.product(*map(range, kernel))):
        there = tuple(slice(o * d, o * d + (n - 1) * s + 1, s) for o, (n, s, _, d) in zip(offset, sides, strict=True))
        part = np.matmul(taps[..., number].swapaxes(1, 2), rows)
        made[(..., *there)] += part.reshape(*part.shape[:3], *x.shape[2:])
    kept = tuple(slice(b, b + n) for b, n in zip(pads[:rank], out, strict=True))
    made = made[(..., *kept)].reshape(x.shape[0], group * outer, *out)
    return made if bias is None else made + np.reshape(bias, (1, -1, *(1,) * rank))


def batch_normalization(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """With given statistics."""
    x = np.asarray(inputs[0])
    if attributes.get("training_mode", 0) or len(inputs) != 5 or x.dtype.kind != "f" or x.ndim < 2:
        return None
    scale, shift, mean, variance = (np.reshape(a, (1, -1, *(1,) * (x.ndim - 2))) for a in inputs[1:])
    epsilon = float(np.float32(attributes.get("epsilon", 1e-5)))  # an attribute is float32, whatever the operands are
    return scale * (x - mean) / np.sqrt(variance + epsilon) + shift


def global_average_pool(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    del attributes
    x = np.asarray(inputs[0])
    return x.mean(tuple(range(2, x.ndim)), keepdims=True) if x.ndim > 2 and x.size and x.dtype.kind == "f" else None


def _floats(rule: Callable[..., Array]) -> Callable[[Sequence[Any], Attributes], Array | None]:
    """A function of numpy, where all operands are floats of one type and no attribute says how they meet."""

    def evaluated(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
        arrays = [np.asarray(a) for a in inputs if a is not None]
        kinds = {a.dtype for a in arrays}
        alike = len(arrays) == len(inputs) and len(kinds) == 1 and kinds.pop().kind == "f"
        return rule(*arrays) if alike and not attributes else None

    return evaluated


def constant(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """Files of some exporters have more of these than of all other nodes."""
    del inputs
    value: Any = attributes.get("value")
    return value if len(attributes) == 1 and getattr(value, "dtype", np.dtype("V")).kind in "fiub" else None


def clip(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    """Limits that are inputs; those of old opsets are attributes."""
    x = np.asarray(inputs[0])
    if attributes or x.dtype.kind != "f":
        return None
    low, high = ((inputs[place] if place < len(inputs) else None) for place in (1, 2))
    x = x if low is None else np.maximum(x, np.asarray(low, x.dtype))
    return x if high is None else np.minimum(x, np.asarray(high, x.dtype))


def hard_sigmoid(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    x = np.asarray(inputs[0])
    if x.dtype.kind != "f":
        return None
    # Attributes are float32, whatever the operands are.
    alpha, beta = (x.dtype.type(np.float32(attributes.get(n, d))) for n, d in (("alpha", 0.2), ("beta", 0.5)))
    return np.maximum(x.dtype.type(0), np.minimum(x.dtype.type(1), alpha * x + beta))


def _relu(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (1 + small)


RULES: dict[str, Callable[[Sequence[Any], Attributes], Array | None]] = {
    "GatherElements": gather_elements,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "Add": _floats(np.add),
    "BatchNormalization": batch_normalization,
    "Clip": clip,
    "Constant": constant,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Div": _floats(np.divide),
    "Exp": _floats(np.exp),
    "GlobalAveragePool": global_average_pool,
    "HardSigmoid": hard_sigmoid,
    "Mul": _floats(np.multiply),
    "Relu": _floats(_relu),
    "Sigmoid": _floats(_sigmoid),
    "Sqrt": _floats(np.sqrt),
    "Sub": _floats(np.subtract),
    "Tanh": _floats(np.tanh),
    "GlobalMaxPool": global_max_pool,
    "Pad": pad,
    "STFT": stft,
}
