"""Slots of temporaries: what lives at the same time lies apart, what follows lies in the same place."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from smelt.codegen.c.arena import Lifetime, _by_use, assign_slots
from smelt.ir.kernel import Buffer, ix
from smelt.ir.kernel.index import sym


def buffer(name, *sizes, dtype="f32"):
    return Buffer(name, dtype, tuple(ix(s) for s in sizes))


def life(one, first, last, over=()):
    """From one launch to another, all of both."""
    return Lifetime(one, (first, 0), (last, 1), frozenset(over))


def names(slots):
    return [[b.name for b in slot.held] for slot in slots]


def test_temporaries_of_other_sizes_follow_each_other():
    seq = sym("seq")
    wide, narrow, other = buffer("wide", seq, 3072), buffer("narrow", seq, 768), buffer("other", seq, 1024)
    slots = assign_slots([life(wide, 0, 1), life(narrow, 1, 2), life(other, 2, 3)])
    assert names(slots) == [["wide", "other"], ["narrow"]]


def test_the_slot_that_fits_best_is_taken():
    lives = [
        life(buffer("big", 4096), 0, 1),
        life(buffer("small", 64), 0, 1),
        life(buffer("next", 60), 2, 3),
    ]
    assert names(assign_slots(lives)) == [["big"], ["small", "next"]]


def test_what_lives_at_the_same_time_never_shares():
    lives = [life(buffer(f"b{i}", 7 * i + 1), i, i + 3) for i in range(40)]
    place = {name: at for at, held in enumerate(names(assign_slots(lives))) for name in held}
    for a in lives:
        for b in lives:
            if a is not b and a.first <= b.last and b.first <= a.last:
                assert place[a.buffer.name] != place[b.buffer.name]
    assert len(set(place.values())) == 4


def test_a_result_lies_over_what_its_kernel_reads_for_the_last_time():
    residual, other = buffer("residual", 64), buffer("other", 64)
    result = life(buffer("result", 64), 1, 2, {residual.uid})
    slots = assign_slots([life(residual, 0, 1), life(other, 0, 1), result])
    assert names(slots) == [["residual", "result"], ["other"]]


def test_kernels_in_order_hand_a_slot_on_to_rows_of_the_same_length_only():
    rows = sym("rows")
    first = Lifetime(buffer("first", rows, 64), (0, 0), (0, 1))
    wider, alike = (Lifetime(buffer(name, rows, size), (0, 2), (0, 3)) for name, size in (("wider", 65), ("alike", 64)))
    later = Lifetime(buffer("later", rows, 65), (1, 0), (1, 1))
    assert names(assign_slots([first, wider, alike, later])) == [["first", "alike"], ["wider", "later"]]


def test_small_ones_do_not_make_every_slot_as_large_as_the_largest():
    """Two layers of an MLP: in order of first use, the second one's hidden rows would grow a third slot."""
    sizes = {"g": 49, "u": 49, "in": 9, "out": 9}
    buffers = [{name: buffer(f"{name}{layer}", size) for name, size in sizes.items()} for layer in range(2)]
    lives = [life(buffer("start", 9), 0, 1)]
    for layer, made in enumerate(buffers):
        at = 4 * layer
        lives += [life(made["in"], at + 1, at + 2), life(made["g"], at + 2, at + 4), life(made["u"], at + 2, at + 3),
                  life(made["out"], at + 4, at + 5)]  # fmt: skip
    slots = assign_slots(lives)
    assert sorted(slot.typical_bytes for slot in slots)[-2:] == [49 * 4, 49 * 4]
    assert sum(slot.typical_bytes > 9 * 4 for slot in slots) == 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(1, 200)), max_size=30))
def test_slots_of_any_lifetimes_hold_one_at_a_time_and_no_more_than_in_order_of_use(made):
    lives = [life(buffer(f"b{i}", size), first, first + long) for i, (first, long, size) in enumerate(sorted(made))]
    slots = assign_slots(lives)
    assert sorted(name for held in names(slots) for name in held) == sorted(one.buffer.name for one in lives)
    for slot in slots:
        for before, after in itertools.pairwise(slot.lives):
            assert before.last < after.first
    assert sum(s.typical_bytes for s in slots) <= sum(s.typical_bytes for s in _by_use(lives))
