"""Inputs of which a tracer saw an example: integers that decide sizes, and tensors of free sizes.

Input: a value. Output: the example's numbers, and the formula of sizes that an integer is. Invariant: the mark is a
hint for generated inputs alone; a marked input may be any other in a call, and no pass takes it for known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import onnx_ir as ir

_SIZE: Final = "smelt.traced_size"
_SHAPE: Final = "smelt.traced_shape"


def mark_traced_size(value: ir.Value, formula: str, example: int) -> None:
    """Say that the integer is a size by that formula (`s0`, `s0*s1`), and what it was while tracing."""
    value.metadata_props[_SIZE] = json.dumps([formula, example])


def mark_traced_shape(value: ir.Value, shape: Sequence[int]) -> None:
    """Say what the tensor's sizes were while tracing."""
    value.metadata_props[_SHAPE] = json.dumps(list(shape))


def traced_size(value: ir.Value) -> tuple[str, int] | None:
    """The formula and the example of a marked integer."""
    found = value.metadata_props.get(_SIZE)
    if found is None:
        return None
    formula, example = json.loads(found)
    return str(formula), int(example)


def traced_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The example's sizes of a marked tensor."""
    found = value.metadata_props.get(_SHAPE)
    return None if found is None else tuple(map(int, json.loads(found)))
