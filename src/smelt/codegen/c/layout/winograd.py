"""Winograd's F(2 x 4, 3 x 3): filters of 3 x 3 taps as 24 factors of a tile of two lines and four columns.

Input: filters (..., 3, 3), or their factors. Output: the other. Invariant: the same points as in winograd.h, which
transforms images and sums; computed in float64, to be rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TERMS = 24
_A, _B = 5 / 8, 11 / 8

Array = np.ndarray[Any, Any]


def _at(point: float, scale: float) -> list[float]:
    return [1 / scale, point / scale, point * point / scale]


_SCALE_A, _SCALE_B = 2 * _A**2 * (_A**2 - _B**2), 2 * _B**2 * (_B**2 - _A**2)
_DOWN = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_ALONG = np.array(
    [_at(0, (_A * _B) ** 2), _at(_A, _SCALE_A), _at(-_A, _SCALE_A), _at(_B, _SCALE_B), _at(-_B, _SCALE_B), [0, 0, 1]]
)
# Of three taps the outer ones are factors by themselves, and the middle one a difference of two.
_DOWN_BACK = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]])
_MIDDLE = _SCALE_A / (2 * _A)
_ALONG_BACK = np.array([[(_A * _B) ** 2, 0, 0, 0, 0, 0], [0, _MIDDLE, -_MIDDLE, 0, 0, 0], [0, 0, 0, 0, 0, 1]])


def factors(filters: Array) -> Array:
    """(..., 3, 3) as (..., TERMS), in float64."""
    wide = _DOWN @ filters.astype(np.float64) @ _ALONG.T
    return wide.reshape(*filters.shape[:-2], TERMS)


def taps(matrices: Array) -> Array:
    """(9, C, M) from the matrices (TERMS, C, M) of all factors."""
    grid = matrices.reshape(4, 6, -1)
    found = np.einsum("ia,abn,jb->ijn", _DOWN_BACK, grid, _ALONG_BACK)
    return found.reshape(9, *matrices.shape[1:])
