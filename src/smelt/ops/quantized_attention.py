"""QAttention: attention whose projection multiplies bytes.

Input: rows and weights of 8 bits with their scales and zero points, a bias, a mask, the past. Output: as those of
Attention, in float32. Invariant: sums of the projection are those of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast as typed

from smelt.ir.kernel import Tensor, Unsupported

from .contrib_attention import attention_of_projected
from .quantized_operators import MICROSOFT, matmul_integer_to_float
from .registry import Call, op
from .work import any_attention_work

Projection = Callable[[Call], "Tensor | None"]


def attention_on(call: Call, projection: Projection) -> Sequence[Tensor | None] | None:
    """With the projection computed so; None where that is."""
    if call.int("do_rotary", 0) or call.int("past_present_share_buffer", 0):
        raise Unsupported("a rotary embedding inside, or a cache that is shared between past and present")
    if call.x(0).rank != 3 or call.x(1).rank != 2 or call.x(2).rank != 1:
        raise Unsupported("QAttention takes rows of three axes, a matrix and a bias of one")
    x, w, bias, scales, zeros = call.x(0), call.x(1), call.x(2), (call.x(3), call.x(4)), (call.maybe(6), call.maybe(7))
    if scales[0].elements.const != 1 or (zeros[0] is not None and zeros[0].elements.const != 1):
        raise Unsupported("the rows of QAttention have one scale and zero point")
    made = projection(replace(call, op="MatMulIntegerToFloat", inputs=[x, w, *scales, *zeros, bias]))
    return None if made is None else attention_of_projected(call, made, call.maybe(5), call.maybe(8))


@op("QAttention", domain=MICROSOFT, kind="product", steps=True, work=any_attention_work)
def quantized_attention(call: Call) -> Sequence[Tensor | None]:
    made = attention_on(call, lambda product: typed("Tensor", matmul_integer_to_float(product)))
    assert made is not None
    return made
