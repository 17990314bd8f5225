"""Convolutions: windows times weights.

Input: a node. Output: a convolution, with its bias. Invariant: the sizes of the kernel and the channels of the weights
are numbers; what is refused here is refused for every backend.
"""

from __future__ import annotations

from smelt.ir.kernel import Geometry, Ix, Tensor, Unsupported
from smelt.ir.kernel import expr as E
from smelt.ops.registry import Call, op
from smelt.ops.window import geometry_of, kernel_of, spread_geometry
from smelt.ops.work import conv_transpose_work, conv_work


def _groups(call: Call, x: Tensor, per_group: Ix) -> int:
    groups = call.int("group", 1)
    if groups < 1:
        raise Unsupported(f"{groups} groups")
    call.k.require_equal(x.shape[1], per_group * groups, "the channels of the input and of the weights must agree")
    return groups


def _operands(call: Call) -> tuple[Tensor, Tensor]:
    x, weights = call.x(0), call.x(1)
    if x.rank < 3 or weights.rank != x.rank or x.dtype not in E.FLOATS or weights.dtype != x.dtype:
        raise Unsupported(f"an input of rank {x.rank} and weights of rank {weights.rank}")
    return x, weights


@op("Conv", kind="product", makes="convolution", work=conv_work)
def conv(call: Call) -> Tensor:
    x, weights = _operands(call)
    groups = _groups(call, x, weights.shape[1])
    geometry = geometry_of(call, x, kernel_of(call, weights))
    columns = weights.shape[0].const
    if columns is None or weights.shape[1].const is None or columns % groups:
        raise Unsupported("the weights' channels are known only at run time, or do not divide into groups")
    return _convolved(call, geometry, groups, weights.shape[0])


@op("ConvTranspose", kind="product", makes="convolution", work=conv_transpose_work)
def conv_transpose(call: Call) -> Tensor:
    x, weights = _operands(call)
    geometry = spread_geometry(call, x, kernel_of(call, weights))
    each, rows = weights.shape[1].const, weights.shape[0].const
    if each is None or rows is None:
        raise Unsupported("the weights' channels are known only at run time")
    groups = call.int("group", 1)
    if groups < 1 or rows % groups:
        raise Unsupported(f"{rows} channels do not divide into {groups} groups")
    call.k.require_equal(x.shape[1], rows, "the channels of the input and of the weights must agree")
    return _convolved(call, geometry, groups, weights.shape[1] * groups)


def _convolved(call: Call, geometry: Geometry, groups: int, channels: Ix) -> Tensor:
    bias = call.maybe(2)
    if bias is not None:
        if bias.rank != 1:
            raise Unsupported(f"a bias of rank {bias.rank}")
        call.k.require_equal(bias.shape[0], channels, "one bias for each channel")
    return call.k.convolution(call.x(0), call.x(1), geometry, groups, bias)
