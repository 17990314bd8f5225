"""Attention of the ONNX domain: cases of the suite, caches, masks, groups of heads, rows that may look at nothing."""

from __future__ import annotations

import cases
import numpy as np
import pytest

RNG = np.random.default_rng(3)


def heads(batch: int, count: int, length: int, depth: int) -> np.ndarray:
    return RNG.standard_normal((batch, count, length, depth)).astype(np.float32)


@pytest.mark.parametrize("case", cases.backend_cases("Attention"), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("causal", [0, 1])
def test_heads_share_keys_and_values_in_groups(causal: int) -> None:
    operands = [heads(2, 6, 3, 4), heads(2, 2, 5, 4), heads(2, 2, 5, 7)]
    cases.check_node("Attention", operands, opset=23, attrs={"is_causal": causal}, free=())


def test_a_row_that_may_look_at_nothing_gives_zeros() -> None:
    mask = np.array([[True, False, True], [False, False, False]])
    made = cases.check_node(
        "Attention", [heads(1, 1, 2, 4), heads(1, 1, 3, 4), heads(1, 1, 3, 4), mask], opset=23, free=()
    )
    assert not made[0][0, 0, 1].any() and made[0][0, 0, 0].all()


def test_scores_that_are_nan_do_not_show_where_nothing_may_be_looked_at() -> None:
    q = heads(1, 1, 2, 4)
    q[0, 0, 1] = np.nan
    mask = np.array([[True, True, True], [False, False, False]])
    made = cases.check_node("Attention", [q, heads(1, 1, 3, 4), heads(1, 1, 3, 4), mask], opset=23, free=())
    assert np.isfinite(made[0]).all()


def test_a_mask_shorter_than_the_keys_hides_the_rest() -> None:
    operands = [heads(2, 3, 4, 8), heads(2, 3, 6, 8), heads(2, 3, 6, 8), heads(2, 1, 4, 5)]
    made = cases.check_node("Attention", operands, opset=24, against=("reference",), free=())
    operands[2][:, :, 5] = 1e9
    assert np.array_equal(
        made[0], cases.check_node("Attention", operands, opset=24, against=("reference",), free=())[0]
    )


def test_caches_grow_by_the_keys_of_the_call() -> None:
    operands = [heads(1, 2, 3, 4), heads(1, 2, 3, 4), heads(1, 2, 3, 4), None, heads(1, 2, 5, 4), heads(1, 2, 5, 4)]
    made = cases.check_node("Attention", operands, opset=23, outputs=3, attrs={"is_causal": 1}, free=())
    assert made[1].shape == (1, 2, 8, 4) and np.array_equal(made[1][:, :, 5:], operands[1])


def test_a_softmax_in_less_precision_is_refused() -> None:
    operands = [heads(1, 1, 2, 4), heads(1, 1, 3, 4), heads(1, 1, 3, 4)]
    cases.check_node("Attention", operands, opset=23, attrs={"softmax_precision": 11}, against=("reference",), free=())
    assert "precision" in cases.refuses("Attention", operands, opset=23, attrs={"softmax_precision": 10})
