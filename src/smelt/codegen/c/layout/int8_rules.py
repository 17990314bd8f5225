"""Quantized graphs, seen node by node: which convolutions and products run on integers, and what joins them.

Input: a call of an op. Output: rules of `rules.py`, and `Seen`: what is known of the tensors that were made so far.
Invariant: a rule gives the tensor that the op's declaration states, up to the rounding of a fused quantization; float
results that a later rule replaces are not computed, since nothing reads them. The model keeps its own nodes, so that
any part of a region may fall back to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import cast as typed

from smelt.ir.kernel import Stored, Tensor
from smelt.ops.convolution import conv
from smelt.ops.pooling import geometry_of_pool
from smelt.ops.product import gemm, matmul
from smelt.ops.quantize import dequantize
from smelt.ops.quantized_attention import attention_on
from smelt.ops.quantized_operators import qgemm, with_quantized_rows
from smelt.ops.registry import Call, lookup
from smelt.ops.window import geometry_of, kernel_of

from .int8_bytes import tabulated
from .int8_layers import (
    BYTES,
    Layer,
    Quantized,
    Restored,
    convolution_layer,
    layer_result,
    product_layer,
    with_limits,
)  # fmt: skip
from .int8_seen import Seen, Shifted, Sum, constant, grows, leads_back
from .int8_stacks import stack_of, stack_result
from .pooling import largest_bytes

if TYPE_CHECKING:
    from .builder import CpuBuilder


def _builder(call: Call) -> CpuBuilder:
    return typed("CpuBuilder", call.k)


def restored(call: Call) -> Tensor | None:
    """DequantizeLinear: remembers what it restores."""
    x, scale, zero = call.x(0), call.x(1), call.maybe(2)
    made = typed("Tensor", dequantize(call))
    if call.int("block_size", 0) or scale.rank > 1 or made.dtype != "f32":
        return made
    axis = call.int("axis", 1)
    several = scale.elements.const != 1
    _builder(call).seen.restored[made] = Restored(x, scale, zero, axis % max(x.rank, 1) if several else None)
    return made


def _made(call: Call, layer: Layer | None) -> Tensor | None:
    """The float result of a layer."""
    k = _builder(call)
    made = None if layer is None else layer_result(k, layer)
    if made is None or layer is None:
        return None
    k.seen.layers[made] = layer
    return made


def convolution(call: Call) -> Tensor | None:
    seen = _builder(call).seen
    x, weights = (seen.restored.get(call.x(place)) for place in (0, 1))
    if x is None or weights is None:
        return None
    conv(call)  # raises what it must
    geometry = geometry_of(call, call.x(0), kernel_of(call, call.x(1)))
    layer = convolution_layer(x, weights, geometry, call.int("group", 1))
    return None if layer is None else _made(call, _with_bias(seen, layer, call.maybe(2)))


def _with_bias(seen: Seen, layer: Layer, bias: Tensor | None) -> Layer | None:
    """One number for each column, or one for all; int32 where it was restored from that."""
    if bias is None:
        return layer
    if bias.elements.const not in (1, layer.columns) or bias.shape[-1:] != (bias.elements,) or layer.bias is not None:
        return None
    found = seen.restored.get(bias)
    known = None if found is None or found.scale is None else found.scale.elements.const
    if found is not None and found.q.dtype == "i32" and known in (1, layer.columns):
        return replace(layer, bias=found.q, bias_scale=found.scale)
    return replace(layer, bias=bias) if bias.dtype == "f32" else None


def product(call: Call) -> Tensor | None:
    """MatMul, and Gemm with its bias."""
    seen = _builder(call).seen
    x, weights = seen.restored.get(call.x(0)), seen.restored.get(call.x(1))
    if x is None or weights is None or call.int("transA", 0) or not _unscaled(call):
        return None
    plain = typed("Tensor", gemm(call) if call.op == "Gemm" else matmul(call))
    layer = product_layer(x, weights, transposed=bool(call.int("transB", 0)))
    made = None if layer is None else _made(call, _with_bias(seen, layer, call.maybe(2)))
    if made is None and call.op == "MatMul":
        stack = stack_of(x, weights)
        if stack is not None:
            seen.stacks[plain] = stack
        return plain
    return made if made is not None and made.shape == plain.shape else None


def integer_product(call: Call) -> Tensor | None:
    """MatMulInteger of rows with one zero point."""
    k, x, x_zero, w_zero = _builder(call), call.x(0), call.maybe(2), call.maybe(3)
    if x_zero is not None and x_zero.elements.const != 1:
        return None
    several = w_zero is not None and w_zero.elements.const != 1
    if x.dtype not in BYTES or x.rank < 2 or (several and w_zero is not None and w_zero.rank != 1):
        return None
    weights = Restored(call.x(1), None, w_zero, 1 if several else None)
    layer = product_layer(Restored(x, None, x_zero), weights, transposed=False)
    k.require_equal(call.x(1).shape[0], x.shape[-1], "the inner sizes of a product must agree")
    made = None if layer is None else layer_result(k, replace(layer, integers=True))
    if made is not None and layer is not None:
        k.seen.integers[made] = layer
    return made


def cast(call: Call) -> Tensor | None:
    """Cast of int32 sums to float32; of a narrow weight, which is packed from its own type."""
    k, x = _builder(call), call.x(0)
    if x in k.widened:
        made = _declared(call)
        if made is not None and made.dtype == x.dtype:
            k.widened[made] = k.widened[x]
            if not call.narrowed:
                k.exact.add(made)
        return made
    layer = k.seen.integers.get(x)
    if layer is None or x.dtype != "i32" or k.seen.readers.get(x, 2) > 1:
        return None
    made = _declared(call)
    if made is not None and made.dtype == "f32":
        k.seen.integers[made] = layer
    return made


def scaled(call: Call) -> Tensor | None:
    """Mul of int32 sums, as float32, by one number or one for each column."""
    k = _builder(call)
    for place in (0, 1):
        x, scale = call.x(place), call.x(1 - place)
        layer = k.seen.integers.get(x)
        if layer is None or x.dtype != "f32" or scale.dtype != "f32" or k.seen.readers.get(x, 2) > 1:
            continue
        if scale.elements.const == 1 and scale.rank <= x.rank:
            return _made(call, replace(layer, x=replace(layer.x, scale=scale)))
        if scale.elements.const == layer.columns and scale.rank == 1 and layer.geometry is None:
            return _made(call, replace(layer, weights=replace(layer.weights, scale=scale)))
    return None


def _declared(call: Call) -> Tensor | None:
    declaration = lookup("", call.op, call.opset)
    return None if declaration is None else declaration.lower(call)[0]


def _unscaled(call: Call) -> bool:
    return call.op != "Gemm" or (call.float("alpha", 1.0) == 1.0 and call.float("beta", 1.0) == 1.0)


def limited(call: Call) -> Tensor | None:
    """Relu and Clip of a layer or of a sum."""
    found = _limits(call)
    k, x = _builder(call), call.x(0)
    if found is None or k.seen.readers.get(x, 0) > 1:
        return None
    if x in k.seen.layers:
        return _made(call, with_limits(k.seen.layers[x], *found))
    if x not in k.seen.sums:
        return None
    made = _declared(call)
    if made is not None:
        k.seen.sums[made] = replace(k.seen.sums[x], limits=found)
    return made


def _limits(call: Call) -> tuple[float, float] | None:
    """None where they are not known."""
    if call.op == "Relu":
        return 0.0, math.inf
    if call.opset < 11:
        return call.float("min", -math.inf), call.float("max", math.inf)
    found = [constant(call.maybe(place)) for place in (1, 2)]
    if any(call.maybe(place) is not None and found[place - 1] is None for place in (1, 2)):
        return None
    low, high = found
    limits = -math.inf if low is None else low, math.inf if high is None else high
    return limits if limits[0] <= limits[1] else None


def added(call: Call) -> Tensor | None:
    """Add: the bias of a product, or a sum of restored tensors, which is remembered."""
    k = _builder(call)
    for place in (0, 1):
        x, bias = call.x(place), call.x(1 - place)
        layer = k.seen.layers.get(x)
        if layer is not None and layer.geometry is None and bias.rank == 1 and k.seen.readers.get(x, 2) == 1:
            plain = layer.limits == (-math.inf, math.inf) and bias.elements.const == layer.columns
            return _made(call, _with_bias(k.seen, layer, bias)) if plain else None
    left, right = (k.seen.restored.get(call.x(place)) for place in (0, 1))
    if (left is None) != (right is None) or (left is not None and right is not None and left.q.shape != right.q.shape):
        return _with_shift(call)
    if left is None or right is None or not (left.whole and right.whole) or left.q.shape != right.q.shape:
        return None
    made = _declared(call)
    if made is not None:
        first, second = (k.seen.readers.get(call.x(place), 2) == 1 for place in (0, 1))
        k.seen.sums[made] = Sum((left, right), (first, second))
    return made


def _with_shift(call: Call) -> Tensor | None:
    """A product's quantized result plus one number for each column, which is remembered."""
    k = _builder(call)
    for place in (0, 1):
        x, shift = call.x(place), call.x(1 - place)
        own = k.seen.restored.get(x)
        layer = None if own is None else k.seen.quantized.get(own.q)
        if own is None or layer is None or not _takes_shift(layer, shift) or not _steps_of(layer, own):
            continue
        if k.seen.readers.get(x, 2) == k.seen.readers.get(own.q, 2) == 1:
            made = _declared(call)
            if made is not None and made.shape == x.shape:
                k.seen.shifts[made] = Shifted(own, shift)
            return made
    return None


def _takes_shift(layer: Layer, shift: Tensor) -> bool:
    plain = layer.result is not None and layer.second is None and layer.total is None and layer.geometry is None
    return plain and shift.dtype == "f32" and shift.rank <= 1 and shift.elements.const in (1, layer.columns)


def _steps_of(layer: Layer, own: Restored) -> bool:
    """Whether a tensor was restored by the steps that its layer has."""
    return layer.own is not None and layer.own.scale is own.scale and layer.own.zero is own.zero


def _bytes(x: Tensor, zero: Tensor | None) -> bool:
    return x.dtype in BYTES and (zero is None or (zero.dtype == x.dtype and zero.elements.const == 1))


def quantized_convolution(call: Call) -> Tensor | None:
    """QLinearConv and ConvInteger."""
    k, alone = _builder(call), call.op == "ConvInteger"
    w_place = 1 if alone else 3
    x, w = call.x(0), call.x(w_place)
    zeros = (call.maybe(2), call.maybe(3)) if alone else (call.x(2), call.x(5))
    scales = (None, None) if alone else (call.x(1), call.x(4))
    several = any(of is not None and of.elements.const != 1 for of in (zeros[1], scales[1]))
    if not _bytes(x, zeros[0]) or (scales[0] is not None and scales[0].elements.const != 1):
        return None
    declared = lookup("", call.op, call.opset)
    if declared is None or declared.lower(call)[0] is None:  # raises what it must
        return None
    geometry = geometry_of(call, x, kernel_of(call, w))
    weights = Restored(w, scales[1], zeros[1], 0 if several else None)
    layer = convolution_layer(Restored(x, scales[0], zeros[0]), weights, geometry, call.int("group", 1))
    if layer is None:
        return None
    if alone:
        made = layer_result(k, replace(layer, integers=True))
        if made is not None:
            k.seen.integers[made] = layer
        return made
    return _quantized_operator(call, layer, call.maybe(8), call.x(6), call.x(7))


def quantized_product(call: Call) -> Tensor | None:
    """QLinearMatMul."""
    x, w = call.x(0), call.x(3)
    one = all(call.x(place).elements.const == 1 for place in (1, 2))
    several = any(call.x(place).elements.const != 1 for place in (4, 5))
    if not one or not _bytes(x, call.x(2)) or x.rank < 2 or w.rank != 2:
        return None
    plain = _declared(call)
    weights = Restored(w, call.x(4), call.x(5), 1 if several else None)
    layer = product_layer(Restored(x, call.x(1), call.x(2)), weights, transposed=False)
    if plain is None or layer is None:
        return None
    return _quantized_operator(call, layer, None, call.x(6), call.x(7))


def quantized_gemm(call: Call) -> Tensor | None:
    """QGemm of rows, with nothing or one number for each column added."""
    bias, scale, zero = call.maybe(6), call.maybe(7), call.maybe(8)
    if call.int("transA", 0) or call.float("alpha", 1.0) != 1.0 or not _bytes(call.x(0), call.x(2)):
        return None
    plain = typed("Tensor", qgemm(call))
    several = any(call.x(place).elements.const != 1 for place in (4, 5))
    transposed = bool(call.int("transB", 0))
    axis = None if not several else 0 if transposed else 1
    weights = Restored(call.x(3), call.x(4), call.x(5), axis)
    layer = product_layer(Restored(call.x(0), call.x(1), call.x(2)), weights, transposed=transposed)
    if layer is None or (bias is not None and not _of_columns(bias, layer.columns)):
        return None
    if zero is not None and scale is not None:
        return _quantized_operator(call, layer, bias, scale, zero)
    return _made(call, replace(layer, bias=bias)) if plain.dtype == "f32" else None


def largest(call: Call) -> Tensor | None:
    """MaxPool of a tensor restored from bytes: the largest byte stands for the largest number."""
    k, x = _builder(call), call.x(0)
    found = k.seen.restored.get(x)
    if found is None or call.n_outputs > 1 or not found.whole or not grows(found):
        return None
    bytes_pool = largest_bytes(k, found.q, geometry_of_pool(call, x))
    if bytes_pool is None:
        return None
    inputs = [bytes_pool, found.scale, found.zero]
    made = typed("Tensor", dequantize(replace(call, op="DequantizeLinear", opset=19, attributes={}, inputs=inputs)))
    k.seen.restored[made] = replace(found, q=bytes_pool)
    return made


def _of_columns(bias: Tensor, columns: int) -> bool:
    """One number, or one for each column."""
    return bias.elements.const == 1 or (bias.elements.const == columns and bias.shape[-1].const == columns)


def product_to_float(call: Call) -> Tensor | None:
    """MatMulIntegerToFloat: A, B, their scales, their zero points, a bias."""
    k, x, w, bias = _builder(call), call.x(0), call.x(1), call.maybe(6)
    one = all(of is None or of.elements.const == 1 for of in (call.x(2), call.maybe(4)))
    several = any(of is not None and of.elements.const != 1 for of in (call.x(3), call.maybe(5)))
    if not one or not _bytes(x, call.maybe(4)) or w.rank != 2 or (bias is not None and bias.rank != 1):
        return None
    weights = Restored(w, call.x(3), call.maybe(5), 1 if several else None)
    layer = product_layer(Restored(x, call.x(2), call.maybe(4)), weights, transposed=False)
    k.require_equal(w.shape[0], x.shape[-1], "the inner sizes of a product must agree")
    return None if layer is None else _made(call, _with_bias(k.seen, layer, bias))


def quantized_attention(call: Call) -> Sequence[Tensor | None] | None:
    """QAttention."""
    return attention_on(call, product_to_float)


def dynamic_product(call: Call) -> Tensor | None:
    """DynamicQuantizeMatMul."""
    return product_to_float(with_quantized_rows(call))


def _quantized_operator(call: Call, layer: Layer, bias: Tensor | None, scale: Tensor, zero: Tensor) -> Tensor | None:
    """The result of a layer whose bias has the scale of its products."""
    if zero.dtype not in BYTES or zero.elements.const != 1 or scale.elements.const != 1 or scale.dtype != "f32":
        return None
    if bias is not None:
        layer = replace(layer, bias=bias)
    return _stored(_builder(call), replace(layer, result=Quantized(scale, zero, zero.dtype)))


def quantized_sum(call: Call) -> Tensor | None:
    """QLinearAdd with a layer's result that nothing else reads."""
    k, zero = _builder(call), call.maybe(7)
    if zero is None or call.x(0).shape != call.x(3).shape or call.x(6).elements.const != 1:
        return None
    both = tuple(Restored(call.x(place), call.x(place + 1), call.maybe(place + 2)) for place in (0, 3))
    if not all(of.whole and of.zero is not None for of in both):
        return None
    first, second = (k.seen.readers.get(of.q, 2) == 1 for of in both)
    return _with_residual(k, Sum((both[0], both[1]), (first, second)), Quantized(call.x(6), zero, zero.dtype))


def quantized(call: Call) -> Tensor | None:
    """QuantizeLinear of a layer, or of a layer's quantized result plus a residual."""
    k, x, scale, zero = _builder(call), call.x(0), call.x(1), call.maybe(2)
    dtype = zero.dtype if zero is not None else "u8"
    plain = scale.elements.const == 1 and scale.dtype == "f32" and not call.has("output_dtype")
    if not plain or dtype not in BYTES or call.int("precision", 0) or call.int("block_size", 0):
        return None
    to = Quantized(scale, zero, dtype)
    same = k.seen.restored.get(x)
    if same is not None and not isinstance(same.q.definition, Stored) and leads_back(same, to):
        return same.q
    if k.seen.readers.get(x, 2) > 1:
        return None
    if x in k.seen.layers:
        return _stored(k, replace(k.seen.layers[x], result=to))
    if x in k.seen.stacks:
        return stack_result(k, k.seen.stacks[x], to)
    if x in k.seen.shifts:
        shifted = k.seen.shifts[x]
        layer = k.seen.quantized[shifted.own.q]
        return _stored(k, replace(layer, shift=shifted.shift, second=to)) if layer.dtype == to.dtype else None
    return _with_residual(k, k.seen.sums[x], to) if x in k.seen.sums else tabulated(call, to)


def _stored(k: CpuBuilder, layer: Layer) -> Tensor | None:
    made = layer_result(k, layer)
    if made is not None:
        k.seen.quantized[made] = layer
    return made


def _with_residual(k: CpuBuilder, total: Sum, to: Quantized) -> Tensor | None:
    """The later of the two layers, if nothing else reads its result, adds the other operand."""
    pairs = [(total.both[i], total.both[1 - i]) for i in (0, 1) if total.alone[i]]
    fit = [(own, other) for own, other in pairs if _joins(k, own, other, to)]
    if not fit:
        return None
    own, other = max(fit, key=lambda pair: pair[0].q.uid)
    layer = replace(k.seen.quantized[own.q], residual=other, total=to, total_limits=total.limits)
    return _stored(k, layer)


def _joins(k: CpuBuilder, own: Restored, other: Restored, to: Quantized) -> bool:
    layer = k.seen.quantized.get(own.q)
    if layer is None or layer.own is None or layer.total is not None or layer.depthwise:
        return False
    alone = k.seen.readers.get(own.q, 2) == 1
    return alone and _steps_of(layer, own) and layer.own.dtype == to.dtype and other.q is not own.q
