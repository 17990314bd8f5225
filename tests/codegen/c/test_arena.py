"""Slots of temporaries: what lives at the same time lies apart, what follows lies in the same place."""

from smelt.codegen.c.arena import Lifetime, assign_slots
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
