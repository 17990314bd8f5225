from __future__ import annotations

import pytest

from smelt.report import in_bytes, in_time, readable


@pytest.mark.parametrize("text", ["layer.0/attention", "größe", "名前", ""])
def test_ordinary_names_stay_as_they_are(text: str):
    assert readable(text) == text


@pytest.mark.parametrize("text", ["a\x1b[31m", "a\u202eb", "a\u2066b", "a\nb", "a\x00b", "\ud800", "a\u200bb"])
def test_what_moves_a_cursor_or_hides_is_escaped(text: str):
    shown = readable(text)
    assert shown.isprintable()
    assert "\\" in shown


def test_long_names_are_cut_visibly():
    assert len(readable("n" * 10**6)) <= 161
    assert readable("n" * 1000).endswith("…")


def test_a_cut_never_leaves_half_an_escape():
    assert readable("\n" * 1000, 10) == "\\x0a" * 9 + "…"


def test_numbers_have_units():
    assert (in_bytes(0), in_bytes(1500), in_bytes(2.5e9)) == ("0 B", "1.5 kB", "2.5 GB")
    assert (in_time(1.25), in_time(1250), in_time(2.5e6)) == ("1.2 us", "1.25 ms", "2.50 s")
