"""Activations that bound a value let NaN through, and infinities as far as the bound."""

from __future__ import annotations

import numpy as np
import pytest
from region_check import Graph, check

SPECIAL = np.array([np.nan, np.inf, -np.inf, 7, -7, 0, 3, np.nan] * 5 + [1, np.nan, -1], np.float32)


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_bounds_propagate_nan(levels: str) -> None:
    texts = {
        "(float[n] x) => (float[n] y) { y = Relu(x) }": np.maximum(SPECIAL, 0),
        "(float[n] x) => (float[n] y) <float low = {-1.0}, float high = {6.0}> { y = Clip(x, low, high) }": np.clip(
            SPECIAL, -1, 6
        ),
        "(float[n] x) => (float[n] y) <float high = {2.0}> { y = Clip(x, , high) }": np.minimum(SPECIAL, 2),
    }
    graphs = [Graph(text, [SPECIAL], expected=[wanted]) for text, wanted in texts.items()]
    check(*graphs, levels=levels)
