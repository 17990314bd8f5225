"""Gradients of convolution.

Input: `aten::convolution_backward`. Output: the gradients that the mask asks for. Invariant: the gradient of the input
is the transposed operator with the same weights; that of the weights is a convolution of the input by the gradient in
which batch and channels change places and strides and dilations too, group by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value


@dataclass(frozen=True)
class _Window:
    """How the kernel moves, one number per spatial axis."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    kernel: list[int]
    groups: int

    def attributes(self) -> dict[str, Any]:
        return {
            "strides": self.stride, "pads": [*self.padding, *self.padding], "dilations": self.dilation,
            "group": self.groups,
        }  # fmt: skip


@converter("aten::convolution_backward")
def convolution_backward(
    call: Call, grad_output: Value, input: Value, weight: Value, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Any, groups: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    del bias_sizes, output_padding  # the mask and the sizes of the operands say as much
    rank = call.rank(input) - 2
    kernel = [call.dim(weight, 2 + axis) for axis in range(rank)]
    window = _Window(_wide(stride, rank), _wide(padding, rank), _wide(dilation, rank), kernel, groups)
    results: list[Value | None] = [None, None, None]
    if output_mask[0]:
        results[0] = _of_input(call, window, grad_output, weight, input, transposed)
    if output_mask[1]:
        large, small = (grad_output, input) if transposed else (input, grad_output)
        results[1] = _of_weight(call, window, large, small)
    if output_mask[2]:
        results[2] = call.op("ReduceSum", grad_output, [0, *range(2, rank + 2)], keepdims=0)
    return results


def _wide(numbers: Sequence[int], rank: int) -> list[int]:
    return [*numbers] * rank if len(numbers) == 1 else [*numbers]


def _of_input(call: Call, w: _Window, grad: Value, weight: Value, input: Value, transposed: bool) -> Value:
    sizes = call.all_dims(input)[2:]
    if transposed:
        return _cut(call, call.op("Conv", grad, weight, **w.attributes()), [0] * len(sizes), sizes)
    reached = [
        (out - 1) * s - 2 * p + d * (k - 1) + 1
        for out, s, p, d, k in zip(
            call.all_dims(grad)[2:], w.stride, w.padding, w.dilation, w.kernel, strict=True
        )
    ]  # fmt: skip
    missing = [size - end for size, end in zip(sizes, reached, strict=True)]
    if all(isinstance(m, int) or m.is_Integer for m in missing):
        extra = [int(m) for m in missing]
        return call.op("ConvTranspose", grad, weight, output_padding=extra, **w.attributes())
    # The remainder of a symbolic size by the stride is not known: compute all that any remainder needs, then cut.
    extra = [s - 1 for s in w.stride]
    free = w.attributes() | {"pads": [0] * (2 * len(sizes))}
    return _cut(call, call.op("ConvTranspose", grad, weight, output_padding=extra, **free), w.padding, sizes)


def _of_weight(call: Call, w: _Window, large: Value, small: Value) -> Value:
    """[out, in/groups, *kernel] from the operand that the kernel slides over and the one it gives."""
    spatial = list(range(2, call.rank(large)))
    batch, channels, *sizes = call.all_dims(large)
    each = channels // w.groups
    if w.groups == 1:
        image = call.op("Transpose", large, perm=[1, 0, *spatial])
    else:
        split = call.reshape(large, [batch, w.groups, each, *sizes])
        moved = call.op("Transpose", split, perm=[2, 1, 0, *(axis + 1 for axis in spatial)])
        image = call.reshape(moved, [each, w.groups * batch, *sizes])
    filters = call.op("Transpose", small, perm=[1, 0, *spatial])
    swapped = {
        "strides": w.dilation, "dilations": w.stride, "pads": [*w.padding, *w.padding], "group": w.groups,
        "kernel_shape": None,
    }  # fmt: skip
    product = call.op("Conv", image, filters, **swapped)
    return call.op("Transpose", _cut(call, product, [0] * len(spatial), w.kernel), perm=[1, 0, *spatial])


def _cut(call: Call, value: Value, starts: Sequence[int], sizes: Sequence[Dim]) -> Value:
    """The block of `sizes` that begins at `starts`, of the spatial axes."""
    axes = list(range(2, 2 + len(sizes)))
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    return call.op("Slice", value, call.vector(starts), call.vector(ends), axes)
