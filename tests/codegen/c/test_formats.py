"""The packing record: the same panels from numpy, from the tensor language and from data movements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from smelt.codegen.c.layout.arrangement import moved_array, moved_shape, moved_tensor, to_matrices
from smelt.codegen.c.layout.formats import format_named, packed_array
from smelt.ir.kernel import Buffer, Builder, ix
from smelt.ir.kernel.interpret import interpret

CASES = {
    "plain": (5, 21), "transposed": (21, 5), "window:1": (20, 3, 3, 3), "window:2": (20, 3, 5),
    "spread:1": (6, 20, 2, 2), "spread:3": (6, 4, 3), "dots:1": (3, 5, 3, 3), "dots:2": (4, 5, 1, 7),
    "narrow": (12, 4, 3, 3), "depthwise": (19, 1, 5, 5), "nchw": (18, 3, 3, 3), "stamp": (6, 5, 2, 2),
    "gates:4": (2, 4 * 20, 7), "gates:1": (1, 16, 3),
}  # fmt: skip


def weights(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_data_movements_give_what_packing_gives(name: str) -> None:
    plain, wanted = weights(CASES[name]), format_named(name)
    packed = packed_array(plain, name)
    assert packed.shape == moved_shape(plain.shape, wanted.steps(plain.shape))
    assert packed.shape == tuple(size.const for size in wanted.shape([ix(s) for s in plain.shape]) or ())
    np.testing.assert_array_equal(packed, moved_array(plain, wanted.steps(plain.shape)))


@pytest.mark.parametrize("name", CASES)
def test_matrices_of_the_tensor_language_are_those_of_arrays(name: str) -> None:
    plain, wanted = weights(CASES[name]), format_named(name)
    steps = to_matrices(plain.shape, wanted.arrangement, wanted.groups)
    assert steps is not None
    k = Builder()
    tensor = moved_tensor(k, k.stored(Buffer("w", "f32", tuple(ix(s) for s in plain.shape))), steps)
    np.testing.assert_array_equal(interpret(tensor, {"w": plain}), moved_array(plain, steps))


def test_a_panel_of_a_grouped_convolution_has_channels_behind_taps() -> None:
    plain = weights((40, 3, 2, 2))
    packed = packed_array(plain, "window:2")
    for group, column, channel, y, x in itertools.product((0, 1), (0, 15, 16, 19), range(3), range(2), range(2)):
        tap = (y * 2 + x) * 3 + channel
        assert packed[group, column // 16, tap, column % 16] == plain[group * 20 + column, channel, y, x]
    assert not packed[:, 1, :, 4:].any()


def test_a_block_of_gates_has_all_gates_of_16_units() -> None:
    plain = weights((1, 3 * 20, 5))
    packed = packed_array(plain, "gates:3")
    for unit, gate, k in itertools.product((0, 15, 16, 19), range(3), range(5)):
        panel = unit // 16 * 3 + gate
        assert packed[0, panel, k, unit % 16] == plain[0, gate * 20 + unit, k]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("plain", (3,)),
        ("window:3", (4, 2, 3, 3)),
        ("depthwise", (4, 2, 3, 3)),
        ("winograd", (4, 2, 5, 5)),
        ("gates:3", (1, 4, 2)),
    ],
)
def test_a_weight_that_does_not_fit_is_not_packed(name: str, shape: tuple[int, ...]) -> None:
    assert format_named(name).shape([ix(s) for s in shape]) is None


def test_bytes_are_a_format_of_the_same_record() -> None:
    wanted = format_named("int8:transposed")
    assert (wanted.arrangement, wanted.dtype, wanted.columns, wanted.interleave) == ("transposed", "i8", 16, 4)
    assert wanted.sums and wanted.computed and wanted.takes("u8") and not wanted.takes("f32")
    assert format_named("window:8").groups == 8 and format_named("window:8").takes("f16")
