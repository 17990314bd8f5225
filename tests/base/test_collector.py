"""The garbage collector is left as it was found."""

from __future__ import annotations

import gc

import pytest

from smelt.base.collector import rare_collections


def test_thresholds_are_back_when_the_last_piece_of_work_ends() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > before[0]
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


@pytest.mark.parametrize("set_by_user", [(0, 10, 10), (10_000_000, 10, 10)])
def test_what_the_user_chose_is_no_less_rare(set_by_user: tuple[int, int, int]) -> None:
    before = gc.get_threshold()
    gc.set_threshold(*set_by_user)
    try:
        with rare_collections():
            assert gc.get_threshold()[0] == set_by_user[0]
        assert gc.get_threshold() == set_by_user
    finally:
        gc.set_threshold(*before)
