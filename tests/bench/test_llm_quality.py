"""Log-probabilities and divergences of next-token distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from smelt.bench.llm_quality import WINDOW, _Sums, _windows, divergence, log_probabilities

LOGITS = arrays(np.float32, 20, elements=st.floats(-80, 80, width=32))


@given(LOGITS, LOGITS)
def test_a_divergence_is_none_from_itself_and_never_negative(one: np.ndarray, other: np.ndarray) -> None:
    p, q = log_probabilities(one), log_probabilities(other)
    assert np.exp(p).sum() == pytest.approx(1)
    assert divergence(p, p) == 0 and divergence(p, q) > -1e-12


def test_sums_are_means_over_tokens() -> None:
    even, steep = (
        log_probabilities(np.zeros(4, np.float32)),
        log_probabilities(np.log(np.array([1, 1, 1, 5], np.float32))),
    )
    sums = _Sums()
    sums.add(steep, even, steep, 3)
    sums.add(even, even, steep, 0)
    row = sums.row("x")
    assert row.tokens == 2 and row.same_top == 0.5
    assert row.perplexity == pytest.approx(np.exp((np.log(8 / 5) + np.log(4)) / 2))
    assert row.divergence == pytest.approx(divergence(even, steep) / 2)
    assert row.of_arithmetic == pytest.approx(divergence(steep, even) / 2)


@given(st.integers(2, 3 * WINDOW))
def test_every_token_but_the_first_is_foretold_once(count: int) -> None:
    tokens = list(range(count))
    assert [t for window in _windows(tokens) for t in window[1:]] == tokens[1:]
