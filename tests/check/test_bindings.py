"""Other sizes to verify at: few, telling, with contents that stay valid."""

from __future__ import annotations

import numpy as np
import pytest

from smelt.check.bindings import bindings, consistent, evaluate_size, free_axes, free_sizes


def sizes_of(inputs, feeds):
    return [dict(b.sizes) for b in bindings(inputs, feeds)]


TWO = {"x": ["A"], "y": ["B"]}
FED = {"x": np.arange(5.0), "y": np.arange(5.0)}


def test_one_size_is_1_at_a_time_then_all_then_0_and_different():
    made = sizes_of(TWO, FED)
    assert made[:3] == [{"A": 1, "B": 5}, {"A": 5, "B": 1}, {"A": 1, "B": 1}]
    assert {"A": 0, "B": 5} in made and {"A": 0, "B": 0} in made
    assert any(1 < s["A"] != s["B"] > 1 for s in made)


def test_a_batch_of_one_grows_by_one():
    assert sizes_of({"x": ["n", 3]}, {"x": np.zeros((1, 3))}) == [{"n": 2}, {"n": 0}]
    assert {"a": 3, "b": 4} in sizes_of({"x": ["a", "b"]}, {"x": np.zeros((1, 1))})


def test_fixed_sizes_give_nothing_to_vary():
    assert not sizes_of({"x": [2, 3]}, {"x": np.zeros((2, 3))})


def test_axes_of_one_name_stay_equal_and_sums_follow():
    inputs = {"ids": ["batch", "seq"], "mask": ["batch", "past + seq"], "past": ["batch", "past"]}
    feeds = {"ids": np.zeros((2, 3), np.int64), "mask": np.ones((2, 7), np.int64), "past": np.zeros((2, 4))}
    for binding in bindings(inputs, feeds):
        if binding.label == "apart":
            continue
        ids, mask, past = (binding.feeds[name].shape for name in ("ids", "mask", "past"))
        assert ids[0] == mask[0] == past[0] and mask[1] == ids[1] + past[1]


def test_one_binding_takes_names_for_hints():
    (image,) = [b for b in bindings({"x": ["?", "?", 3]}, {"x": np.zeros((4, 4, 3))}) if b.label == "apart"]
    assert image.feeds["x"].shape == (4, 5, 3) and len(image.sizes) == 2


def test_contents_are_those_of_the_call():
    feeds = {"x": np.array([[3, 1, 2]])}
    for binding in bindings({"x": ["n", "m"]}, feeds):
        assert set(np.unique(binding.feeds["x"])) <= {1, 2, 3}
        assert binding.feeds["x"].dtype == feeds["x"].dtype and binding.feeds["x"].flags.c_contiguous


def test_a_scalar_stays_one():
    feeds = {"x": np.zeros(3), "rate": np.array(16000)}
    assert all(b.feeds["rate"].shape == () for b in bindings({"x": ["n"], "rate": []}, feeds))


def test_axes_without_a_name_or_of_negative_size_are_free():
    made = list(bindings({"x": [None, -1, 4]}, {"x": np.zeros((2, 3, 4))}))
    assert any(b.feeds["x"].shape == (1, 3, 4) for b in made) and all(b.feeds["x"].shape[2] == 4 for b in made)


def test_the_number_of_bindings_and_their_size_are_bounded():
    names = [f"s{place}" for place in range(40)]
    made = list(bindings({name: [name] for name in names}, {name: np.zeros(3) for name in names}))
    assert len(made) <= 11
    big = {"x": np.zeros((300, 2))}
    assert all(b.feeds["x"].size <= 4 * 600 + 4096 for b in bindings({"x": ["a", "b"]}, big))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b", 5),
        ("2*a", 4),
        ("(a + 1)//3", 1),
        ("a - b", None),
        ("a", None),
        ("c + 1", None),
        ("a**b", None),
        ("[", None),
        ("max(floordiv(a + -8, b), 0)", 0),
        ("floordiv(7*a, b) + min(a, b)", 6),
        ("floordiv(a)", None),
        ("open(a)", None),
    ],
)
def test_formulas_over_sizes(text, value):
    assert evaluate_size(text, {"a": 2, "b": 3}) == value


def test_an_integer_that_is_a_size_follows_the_axes_of_its_formula():
    inputs = {"x": ["a", "b"], "area": "a*b", "count": "a"}
    feeds = {"x": np.zeros((3, 5)), "area": np.array(15), "count": np.array(3)}
    made = list(bindings(inputs, feeds))
    assert {b.label for b in made} >= {"all 1", "doubled", "a 0"}
    for binding in made:
        if binding.label == "apart":
            continue
        a, b = binding.feeds["x"].shape
        assert binding.feeds["area"] == a * b and binding.feeds["count"] == a
        assert binding.feeds["area"].shape == () and binding.feeds["area"].dtype == feeds["area"].dtype
    assert free_sizes(inputs, feeds) == {"a": 3, "b": 5} and free_axes(inputs, feeds) == [("x", 0), ("x", 1)]


def test_an_integer_that_no_axis_shows_is_varied_but_never_0():
    feeds = {"x": np.zeros((3, 2)), "n": np.array(40)}
    counts = {int(b.feeds["n"]) for b in bindings({"n": "n", "x": ["a", 2]}, feeds)}
    assert {1, 40, 80} <= counts and 0 not in counts
    assert all(b.feeds["x"].shape[0] != 0 or b.feeds["n"] == 40 for b in bindings({"n": "n", "x": ["a", 2]}, feeds))


def test_an_integer_that_contradicts_its_formula_is_left_as_it_is():
    feeds = {"x": np.zeros((3, 2)), "n": np.array(40)}
    assert all(b.feeds["n"] == 40 for b in bindings({"x": ["a", 2], "n": "a"}, feeds))


def test_contents_follow_from_sizes_and_sizes_from_contents():
    inputs = {"x": ["n", 4], "z": ["n + k"], "s": [3], "c": []}
    contents = {"s": ["n", "2*n", -1], "c": ["k"]}
    feeds = {"x": np.zeros((5, 4)), "z": np.zeros(2), "s": np.zeros(3, np.int64), "c": np.zeros((), np.int32)}
    found = consistent(inputs, contents, feeds)
    assert found["s"].tolist() == [5, 10, -1] and found["s"].dtype == np.int64
    assert found["c"].shape == () and found["z"].shape == (5 + int(found["c"]),) and found["x"].shape == (5, 4)
    assert consistent(inputs, {"s": ["n", "k", "n"]}, feeds)["s"].tolist() == [5, int(found["c"]), 5]
