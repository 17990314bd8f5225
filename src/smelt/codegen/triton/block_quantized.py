"""Products with block-quantized weights on a GPU: weights stay as the file has them and are widened in registers.

Input: a call of MatMulNBits. Output: the declaration's function, with launches of `device/nbits.py`: a row at a time
up to GEMV_ROWS rows, tiles beyond. Invariant: operands have the types that the model stores; the function's C text and
reference are the declaration's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from smelt.ir.kernel import Function, Ix, Result, Tensor, fn, ix
from smelt.ir.kernel.device import Constant, DeviceArgument, DeviceCode, DeviceLaunch, DevicePointer, DeviceSize
from smelt.ops import Call
from smelt.ops.block_quantized import INT8_ACTIVATIONS, ZERO_KINDS, Number, matmul_n_bits

GEMV_ROWS: Final = 8
_GEMV_COLUMNS: Final = 16
_ROWS: Final = 32
_TILE_ELEMENTS: Final = 8192  # of widened weights in a program
_NAMES: Final = ("a", "weights", "scales", "zeros", "bias")


def block_quantized_product(call: Call) -> Sequence[Tensor | None] | None:
    made = matmul_n_bits(call)
    definition = made.definition if isinstance(made, Tensor) else None
    assert isinstance(definition, Result)
    operands = tuple(_as_stored(call, place, x) for place, x in enumerate(definition.function.operands))
    function = replace(definition.function, operands=operands)
    return call.k.function(replace(function, device=DeviceCode(_launches(function))))


def _as_stored(call: Call, place: int, x: Tensor | None) -> Tensor | None:
    """An operand of the function; its own fifth is the node's sixth."""
    stored = call.stored[place if place < 4 else place + 1] if x is not None and place < len(call.stored) else None
    return call.k.cast(x, stored) if x is not None and stored is not None else x


def _launches(function: Function) -> tuple[DeviceLaunch, ...]:
    """Which of the two runs is decided by the rows: the other has no programs."""
    rows, depth, columns = (function.numbers[n] for n in (Number.ROWS, Number.K, Number.N))
    few = fn("lt", rows, GEMV_ROWS + 1)
    block = function.numbers[Number.BLOCK].const or 1
    width = max(16, min(64, _TILE_ELEMENTS // block))
    gemv = (_parts(columns, _GEMV_COLUMNS), rows * few, ix(1))
    tiles = (_parts(columns, width), _parts(rows, _ROWS) * (1 - few), ix(1))
    sizes = (("rows", rows), ("depth", depth), ("columns", columns))
    made: list[DeviceLaunch] = []
    for name, grid, own in (
        ("nbits_gemv", gemv, (("tile_columns", _GEMV_COLUMNS),)),
        ("nbits_gemm", tiles, (("tile_rows", _ROWS), ("tile_columns", width))),
    ):
        if not any(size.const == 0 for size in grid):
            made.append(_launch(name, function, sizes, grid, own))
    return tuple(made)


def _parts(size: Ix, each: int) -> Ix:
    return fn("floordiv", size + (each - 1), each)


def _launch(
    name: str, function: Function, sizes: Sequence[tuple[str, Ix]], grid: tuple[Ix, Ix, Ix],
    own: Sequence[tuple[str, int]],
) -> DeviceLaunch:  # fmt: skip
    there = [x is not None for x in function.operands]
    pointers = {n: DevicePointer(n, sum(there[:place]), ix(0)) for place, n in enumerate(_NAMES) if there[place]}
    result = DevicePointer("y", sum(there), ix(0))
    arguments: list[DeviceArgument] = [*pointers.values(), result, *(DeviceSize(n, size, "i32") for n, size in sizes)]
    zeros = function.operands[3]
    constants: list[tuple[str, Constant]] = [(n, None) for n in _NAMES if n not in pointers]
    constants += [(n.lower(), function.numbers[Number[n]].const) for n in ("BITS", "BLOCK")]
    constants.append(("kind", ZERO_KINDS["" if zeros is None else "u8" if zeros.dtype == "u8" else "f32"]))
    constants.append(("level", INT8_ACTIVATIONS if function.numbers[Number.FAST].const else 0))
    return DeviceLaunch("", name, _text(), tuple(arguments), (*constants, *own), grid)


@cache
def _text() -> str:
    return (Path(__file__).parent / "device" / "nbits.py").read_text(encoding="utf-8")
