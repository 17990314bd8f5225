"""Floats as float64, for references that are free of the model's own rounding.

Input: an array, a sequence of arrays or None. Output: the same with float64 in place of narrower floats. Invariant:
integers, booleans, strings and complex numbers pass unchanged.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

Array = np.ndarray[Any, Any]
Value = Any  # an array, a list of arrays (a sequence), or None

_NARROW_NAMES = ("float32", "float16", "bfloat16")


def widened(value: Value) -> Value:
    """Narrow floats as float64, anything else as it is; sequences element by element."""
    if isinstance(value, list):
        return [widened(v) for v in cast("list[Value]", value)]
    dtype = getattr(value, "dtype", None)
    return np.asarray(value).astype(np.float64) if dtype is not None and dtype.name in _NARROW_NAMES else value
