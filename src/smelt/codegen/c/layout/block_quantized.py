"""Products with block-quantized weights in C: operands packed by panels, and the scratch memory `nbits_unit.h` takes.

Input: a function that ops/block_quantized.py or ops/gather_blocks.py states. Output: the same function over packed
constants. Invariant: its numbers are in the order of the enum in the header; memory that the header takes for granted
is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel import Builder, Function, Ix, Stored, Tensor, Unsupported, fn, ix
from smelt.ops.block_quantized import ZERO_KINDS, Number
from smelt.ops.gather_blocks import RowsNumber

from .nbits_panels import FLOATS, HALVES, SWAPPED, WEIGHTS, ZEROS, are_halves

MOST_ROWS: Final = 8  # that pass by the weights together: SMELT_NB_ROWS at most
_SCALED: Final = {"MatMulNBits": 2, "GatherBlockQuantized": 2}  # the place of their scales
HEADER_BYTES: Final = 12  # of each row of a block of 8-bit activations, smelt_nb_header


def block_quantized_product(k: Builder, function: Function) -> Function:
    sizes = [number.const or 0 for number in function.numbers]
    bits, blocks = sizes[Number.BITS], -(-sizes[Number.K] // sizes[Number.BLOCK])
    a, weights, scales, zeros, bias = function.operands
    zero_layout = f"{FLOATS}:{blocks}" if zeros is not None and zeros.dtype == "f32" else f"{ZEROS}:{bits}:{blocks}"
    codebook = sizes[Number.ZERO_KIND] > ZERO_KINDS["f32"]
    layout = f"{SWAPPED}:{blocks}:{sizes[Number.BLOCK]}" if codebook else f"{WEIGHTS}:{bits}"
    operands = (
        a, _packed(k, weights, layout), _packed_scales(k, scales, blocks),
        _packed(k, zeros, zero_layout), bias,
    )  # fmt: skip
    scratch = _scratch_bytes(function.numbers[Number.ROWS], sizes, blocks)
    return replace(function, operands=operands, numbers=_numbers(function, operands[2]), scratch_bytes=scratch)


def block_quantized_rows(k: Builder, function: Function) -> Function:
    """A table in the panels of a product, which may read the same."""
    sizes = [number.const or 0 for number in function.numbers]
    bits, blocks = sizes[RowsNumber.BITS], sizes[RowsNumber.K] // sizes[RowsNumber.BLOCK]
    indices, table, scales, zeros = function.operands
    packed = (
        _packed(k, table, f"{WEIGHTS}:{bits}"),
        _packed_scales(k, scales, blocks), _packed(k, zeros, f"{ZEROS}:{bits}:{blocks}"),
    )  # fmt: skip
    return replace(function, operands=(indices, *packed), numbers=_numbers(function, packed[1]))


def _packed_scales(k: Builder, scales: Tensor | None, blocks: int) -> Tensor | None:
    stored = scales.definition if scales is not None else None
    value = stored.buffer.weight if isinstance(stored, Stored) else None
    exact = isinstance(value, ir.Value) and has_half_scales(value)
    return _packed(k, scales, f"{HALVES if exact else FLOATS}:{blocks}")


def _numbers(function: Function, scales: Tensor | None) -> tuple[Ix, ...]:
    """Those of the op, then whether scales are float16."""
    return (*function.numbers, ix(int(scales is not None and scales.dtype == "f16")))


def has_half_scales(value: ir.Value) -> bool:
    """Whether a value is scales of blocks that float16 holds exactly: a fact of the numbers, not of their type."""
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return False
    if not any(use.node.op_type in _SCALED and use.idx == _SCALED[use.node.op_type] for use in value.uses()):
        return False
    return are_halves(np.asarray(tensor.numpy()))


def _packed(k: Builder, x: Tensor | None, layout: str) -> Tensor | None:
    packed = None if x is None else k.pack(x, layout)
    if x is not None and packed is None:
        raise Unsupported("quantized weights that cannot be packed ahead of time")
    return packed


def _scratch_bytes(rows: Ix, sizes: Sequence[int], blocks: int) -> Ix:
    """Few rows packed and zero-padded; or all rows as bytes with the scales and sums of their blocks."""
    block = sizes[Number.BLOCK]
    if not sizes[Number.FAST]:
        return fn("min", rows, 1) * (MOST_ROWS * blocks * block * 4)
    return (rows + (MOST_ROWS - 1)) // MOST_ROWS * (MOST_ROWS * blocks * (HEADER_BYTES + block))
