"""What ops that are functions in C share: the unit of a header for one element type, and operands of references.

Input: a header's name, an element type and further definitions. Output: the text of a unit. Invariant: the text depends
on these alone, so a unit is compiled once for all models.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.ir.kernel.tensor import Arrays


def unit(header: str, dtype: str, **definitions: str | int) -> str:
    lines = [f"#define SMELT_ELEMENT {dtype}", *(f"#define {name} {text}" for name, text in definitions.items())]
    return "\n".join((*lines, f"#include <smelt/{header}>", ""))


def given(arrays: Arrays, place: int = 0) -> np.ndarray[Any, Any]:
    """An operand that is always there."""
    found = arrays[place]
    assert found is not None
    return found
