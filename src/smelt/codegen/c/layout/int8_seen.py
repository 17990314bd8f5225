"""What is known of the tensors of a quantized region that were made so far.

Input: what the rules of `int8_rules.py` and `int8_bytes.py` find out. Output: `Seen`. Invariant: it is known by tensor,
and only of tensors that the rules made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from smelt.ir.kernel import Stored, Tensor

from .int8_layers import Layer, Quantized, Restored
from .int8_stacks import Stack


@dataclass(frozen=True)
class Sum:
    """Of two restored tensors; `alone` says which of them nothing else reads."""

    both: tuple[Restored, Restored]
    alone: tuple[bool, bool]
    limits: tuple[float, float] = (-math.inf, math.inf)


@dataclass(frozen=True)
class Shifted:
    """A restored tensor plus one number for each column, or one; nothing else reads the tensor."""

    own: Restored
    shift: Tensor


@dataclass(frozen=True)
class Move:
    """Of the bytes of `source` to other places; `again` moves others so. `alone`: nothing else reads them."""

    source: Tensor
    again: Callable[[Tensor], Tensor]
    alone: bool


@dataclass(frozen=True)
class OfBytes:
    """A function of each number of a restored tensor."""

    own: Restored
    body: Callable[[Tensor], Tensor]


@dataclass
class Seen:
    """By tensor: what it was restored from, the layer whose float result, quantized result or int32 sums it is (or
    holds as float32), the sum or the product of a stack that it is, the bytes that were moved to it, the function of
    bytes that it is, and how many places of the model read it."""

    restored: dict[Tensor, Restored] = field(default_factory=dict[Tensor, Restored])
    layers: dict[Tensor, Layer] = field(default_factory=dict[Tensor, Layer])
    quantized: dict[Tensor, Layer] = field(default_factory=dict[Tensor, Layer])
    integers: dict[Tensor, Layer] = field(default_factory=dict[Tensor, Layer])
    sums: dict[Tensor, Sum] = field(default_factory=dict[Tensor, Sum])
    shifts: dict[Tensor, Shifted] = field(default_factory=dict[Tensor, Shifted])
    moves: dict[Tensor, Move] = field(default_factory=dict[Tensor, Move])
    stacks: dict[Tensor, Stack] = field(default_factory=dict[Tensor, Stack])
    functions: dict[Tensor, OfBytes] = field(default_factory=dict[Tensor, OfBytes])
    readers: dict[Tensor, int] = field(default_factory=dict[Tensor, int])


def constant(x: Tensor | None) -> float | None:
    """The one element of a constant."""
    stored = None if x is None else x.definition
    contents = stored.buffer.contents if isinstance(stored, Stored) else None
    return float(contents[0]) if contents is not None and len(contents) == 1 else None


def grows(found: Restored) -> bool:
    """Whether a larger byte is a larger number, that no other byte stands for, and which leads back to it."""
    scale = None if found.scale is None else constant(found.scale)
    return scale is not None and 1e-30 < scale < 1e30


def same_steps(one: Restored | Quantized, other: Restored | Quantized) -> bool:
    """Whether both have the same scale and zero point."""
    return all(
        a is b or (a is not None and b is not None and constant(a) is not None and constant(a) == constant(b))
        for a, b in ((one.scale, other.scale), (one.zero, other.zero))
    )


def leads_back(found: Restored, to: Quantized) -> bool:
    """Whether the same bytes come of what was restored."""
    return same_steps(found, to) and found.whole and found.q.dtype == to.dtype and grows(found)
