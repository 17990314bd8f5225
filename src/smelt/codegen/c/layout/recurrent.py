"""Recurrent layers in C: weights packed by blocks of 16 units, and the scratch memory that `recurrent_unit.h` takes.

Input: the function that ops/recurrent.py states. Output: the same function over packed weights. Invariant: its numbers
are in the order of the enum in the header; memory that the header takes for granted is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

from smelt.codegen.machine_sizes import most_of
from smelt.ir.kernel import Builder, Function, Ix, Tensor, fn, ix

from .arrangement import PANEL

SHARE_BYTES: Final = 64 * 9  # of a smelt_cell_share
STATES: Final = 5  # that each row has in scratch memory
FUSED_ROWS: Final = 32  # from which on the inputs' products need no memory
_GATES: Final = (1, 3, 4)  # of RNN, GRU, LSTM


class Number(IntEnum):
    """The numbers of the function that are read or set here."""

    KIND = 0
    STEPS = 1
    ROWS = 2
    HIDDEN = 3
    DIRECTIONS = 4
    PACKED = 7
    WIDTH = 9
    INPUTS_PACKED = 10


def recurrent(k: Builder, function: Function) -> Function:
    numbers, operands = list(function.numbers), list(function.operands)
    gates = _GATES[numbers[Number.KIND].const or 0]
    for place, flag in ((1, Number.INPUTS_PACKED), (2, Number.PACKED)):
        packed = _packed(k, operands[place], gates)
        if packed is not None:
            operands[place], numbers[flag] = packed, ix(1)
    scratch = _scratch_bytes(numbers, gates)
    return replace(function, operands=tuple(operands), numbers=tuple(numbers), scratch_bytes=scratch)


def _packed(k: Builder, weights: Tensor | None, gates: int) -> Tensor | None:
    return None if weights is None else k.pack(weights, f"gates:{gates}")


def _scratch_bytes(numbers: Sequence[Ix], gates: int) -> Ix:
    """States, and what of the weights and the inputs' products the function lays out itself."""
    steps, rows, hidden = (numbers[n] for n in (Number.STEPS, Number.ROWS, Number.HIDDEN))
    padded = (hidden + (PANEL - 1)) // PANEL * PANEL
    floats = rows * padded * STATES + padded * 7 + _sums_floats(rows, steps, padded * gates)
    for depth, flag in ((numbers[Number.WIDTH], Number.INPUTS_PACKED), (hidden, Number.PACKED)):
        floats = floats if numbers[flag].const else floats + padded * depth * gates
    return (floats * 4 + SHARE_BYTES) * numbers[Number.DIRECTIONS]


def _sums_floats(rows: Ix, steps: Ix, each: Ix) -> Ix:
    """What the inputs' products take: one step of few rows at least, no more than all steps of them, and no more than a
    span of steps takes on any machine."""
    least = fn("min", rows, FUSED_ROWS - 1) * each
    return fn("max", least, fn("min", most_of("cell_span_floats"), rows * steps * each))
