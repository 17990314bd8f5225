"""Rows of a table that is quantized in blocks along its last axis: GatherBlockQuantized.

Input: bytes, each one number of 8 bits or two of 4 (the low bits first), indices, a scale for each block, perhaps zero
points that are packed as the numbers are. Output: the rows as float32. Invariant: indices are wrapped and checked as
those of Gather; without zero points the middle of the range is 0. A table that is the reshaped weight of a product is
read as the product has it (`gather_blocks.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.layout import Index

from .gather_blocks import tied_rows
from .registry import Call, op
from .work import read_work

MICROSOFT = "com.microsoft"
BITS = (4, 8)


@dataclass(frozen=True)
class _Packed:
    """Numbers of some bits, side by side in bytes along the last axis."""

    bytes_of: Tensor
    bits: int

    def at(self, where: Index) -> Expr:
        each = 8 // self.bits
        byte = E.cast(self.bytes_of.at((*where[:-1], fn("floordiv", where[-1], each))), "i32")
        if each == 1:
            return byte
        high = E.op("shr", byte, E.const(4, "i32"))
        low = E.op("sub", byte, E.op("mul", high, E.const(16, "i32")))
        odd = E.index(where[-1] - fn("floordiv", where[-1], each) * each)
        return E.select(E.op("eq", odd, E.const(0, "i64")), low, high)


@op("GatherBlockQuantized", domain=MICROSOFT, kind="movement", work=read_work)
def gather_block_quantized(call: Call) -> Tensor:
    data, indices, scales, zeros = call.x(0), call.x(1), call.x(2), call.maybe(3)
    bits, block, rank = call.int("bits", 4), call.int("block_size", 128), data.rank
    _check(call, bits, block)
    tied = tied_rows(call) if rank == 2 else None
    if tied is not None:
        return tied
    depth = data.shape[-1] * (8 // bits)
    blocks = fn("floordiv", depth + (block - 1), block)
    for got, wanted in zip(scales.shape, (*data.shape[:-1], blocks), strict=True):
        call.k.require_equal(got, wanted, "there is a scale for each block")
    if zeros is not None:
        _check_zeros(call, zeros, (*data.shape[:-1], fn("floordiv", blocks * bits + 7, 8)))
    numbers, points = _Packed(data, bits), None if zeros is None else _Packed(zeros, bits)
    lead = indices.rank

    def at(where: Index) -> Expr:
        row = call.k.data_index(indices.at(where[:lead]), data.shape[0])
        middle, last = where[lead:-1], where[-1]
        of_block: tuple[Ix, ...] = (row, *middle, fn("floordiv", last, block))
        zero = E.const(1 << (bits - 1), "i32") if points is None else points.at(of_block)
        centred = E.op("sub", numbers.at((row, *middle, last)), zero)
        return E.op("mul", E.cast(centred, "f32"), scales.at(of_block))

    shape = (*indices.shape, *data.shape[1 : rank - 1], depth)
    return call.k.tabulate(data, shape, at, "f32")


def _check(call: Call, bits: int, block: int) -> None:
    data, indices, scales = call.x(0), call.x(1), call.x(2)
    if data.dtype != "u8" or bits not in BITS or scales.dtype != "f32":
        raise Unsupported(f"rows of {data.dtype} with {bits} bits and scales of {scales.dtype}")
    if indices.dtype not in ("i32", "i64") or data.rank < 2 or scales.rank != data.rank:
        raise Unsupported("GatherBlockQuantized takes integer indices, and as many axes of scales as of data")
    if call.int("gather_axis", 0) not in (0, -data.rank) or call.int("quantize_axis", 1) not in (data.rank - 1, -1):
        raise Unsupported("rows of another axis than the first, or blocks of another than the last")
    if block < 16 or block & (block - 1):
        raise Unsupported(f"blocks of {block}, not a power of two from 16")


def _check_zeros(call: Call, zeros: Tensor, shape: tuple[Ix, ...]) -> None:
    if zeros.dtype != "u8" or zeros.rank != len(shape):
        raise Unsupported("zero points are packed as the numbers are")
    for got, wanted in zip(zeros.shape, shape, strict=True):
        call.k.require_equal(got, ix(wanted), "there is a zero point for each block")
