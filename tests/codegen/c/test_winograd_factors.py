"""Filters and their factors in Winograd's form."""

from __future__ import annotations

import numpy as np

from smelt.codegen.c.layout import winograd


def test_taps_come_back_from_their_factors() -> None:
    filters = np.random.default_rng(0).standard_normal((5, 7, 3, 3))
    matrices = winograd.factors(filters).transpose(2, 1, 0)
    assert matrices.shape == (winograd.TERMS, 7, 5)
    wanted = filters.reshape(5, 7, 9).transpose(2, 1, 0)
    np.testing.assert_allclose(winograd.taps(matrices), wanted, rtol=1e-12, atol=1e-12)


def test_a_filter_of_one_tap_has_the_factors_of_a_polynomial() -> None:
    """Factor (i, j) is the filter's polynomial at the points, but for a scale that does not depend on the filter."""
    first, middle, last = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    first[0, 0], middle[0, 1], last[0, 2] = 1, 1, 1
    row = [winograd.factors(one)[:6] for one in (first, middle, last)]
    np.testing.assert_allclose(row[1][1:5] / row[0][1:5], [5 / 8, -5 / 8, 11 / 8, -11 / 8])
    np.testing.assert_allclose(row[2][1:5] / row[0][1:5], [25 / 64, 25 / 64, 121 / 64, 121 / 64])
