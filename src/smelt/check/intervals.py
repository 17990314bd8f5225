"""The median of samples and how sure it is.

Input: samples. Output: the median with its 95% interval. Invariant: by order statistics, which no single outlier moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The median with its 95% interval by order statistics, which no single outlier moves."""
    ordered = np.sort(np.asarray(samples, np.float64))
    count = len(ordered)
    half = 0.98 * count**0.5
    low, high = max(0, int(np.floor(count / 2 - half))), min(count - 1, int(np.ceil(count / 2 + half)))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])
