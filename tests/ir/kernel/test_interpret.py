"""The interpreter of the tensor language follows each definition literally."""

from __future__ import annotations

import numpy as np
import pytest

from smelt.ir.kernel import Buffer, Builder, Tensor, sym
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.interpret import interpret
from smelt.ir.kernel.numpy_rules import DTYPE, RULES, convert

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def stored(k: Builder, name: str, array: np.ndarray) -> Tensor:
    dtype = next(short for short, t in DTYPE.items() if t == array.dtype)
    return k.stored(Buffer(name, dtype, tuple(sym(f"{name}.{a}") for a in range(array.ndim))))


def run(make, *arrays: np.ndarray, wide: bool = False) -> np.ndarray:
    k = Builder()
    names = [f"v{i}" for i in range(len(arrays))]
    return interpret(
        make(k, *(stored(k, n, a) for n, a in zip(names, arrays, strict=True))),
        dict(zip(names, arrays, strict=True)),
        wide=wide,
    )


def test_map_broadcasts_sizes_known_only_at_run_time() -> None:
    row = np.array([[10.0, 20.0, 30.0, 40.0]], np.float32)
    np.testing.assert_array_equal(run(lambda k, a, b: k.map(lambda x, y: E.op("add", x, y), a, b), X, row), X + row)


def test_views_compose() -> None:
    got = run(lambda k, x: k.reshape(k.transpose(x, [1, 0]), [x.elements]), X)
    np.testing.assert_array_equal(got, X.T.reshape(-1))


@pytest.mark.parametrize(("kind", "rule"), [("sum", np.sum), ("prod", np.prod), ("min", np.min), ("max", np.max)])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reductions_keep_their_axes(kind: str, rule, axes: tuple[int, ...]) -> None:
    got = run(lambda k, x: k.reduce(kind, x, axes), X + 1)
    np.testing.assert_allclose(got, rule(X + 1, axis=axes, keepdims=True))


def test_the_largest_of_nothing_is_the_least_number() -> None:
    assert run(lambda k, x: k.reduce("max", x, [0]), np.zeros(0, np.float32)).tolist() == [-np.inf]
    assert run(lambda k, x: k.reduce("max", x, [0]), np.zeros(0, np.int8)).tolist() == [-128]


@pytest.mark.parametrize(("kind", "place"), [("argmax", 1), ("argmax_last", 3), ("argmin", 0), ("argmin_last", 2)])
def test_places_of_extremes(kind: str, place: int) -> None:
    x = np.array([1, 7, 1, 7, 5], np.int32)
    assert run(lambda k, t: k.reduce(kind, t, [0]), x).tolist() == [place]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(exclusive: bool, reverse: bool) -> None:
    x = np.array([[1, 2, 3, 4]], np.int64)
    line = x[:, ::-1] if reverse else x
    total = np.cumsum(line, 1) - (line if exclusive else 0)
    got = run(lambda k, t: k.scan("sum", t, 1, exclusive=exclusive, reverse=reverse), x)
    np.testing.assert_array_equal(got, total[:, ::-1] if reverse else total)


def test_assemblies_place_pieces_and_fill_the_rest() -> None:
    np.testing.assert_array_equal(run(lambda k, x: k.concat([x, x], 1), X), np.concatenate([X, X], 1))
    np.testing.assert_array_equal(
        run(lambda k, x: k.pad(x, [1, 0], [0, 2], 9.0), X), np.pad(X, ((1, 0), (0, 2)), constant_values=9)
    )


def test_indices_from_data_count_from_the_end_and_are_checked() -> None:
    index = np.array([0, -1], np.int64)
    np.testing.assert_array_equal(run(lambda k, x, i: k.gather(x, i, 0), X, index), X[[0, -1]])
    with pytest.raises(IndexError):
        run(lambda k, x, i: k.gather(x, i, 0), X, np.array([3], np.int64))


def test_a_read_outside_a_buffer_is_an_error() -> None:
    with pytest.raises(IndexError):
        run(lambda k, x: k.view(x, [4], lambda w: [w[0], 0]), X)


def test_contraction_broadcasts_leading_axes() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 21)).astype(np.float32)
    stack = np.stack([X, X + 1])
    got = run(lambda k, a, b: k.contraction(a, b), stack, weights)
    np.testing.assert_allclose(got, stack @ weights, rtol=1e-6)


def test_wide_evaluation_keeps_what_float32_loses() -> None:
    x = np.array([1e8, 1.0, -1e8], np.float32)

    def total(k: Builder, t: Tensor) -> Tensor:
        return k.map(lambda v: E.op("sub", E.op("add", v, E.const(1.0, "f32")), v), t)

    assert run(total, x).tolist() == [0.0, 1.0, 0.0]
    assert run(total, x, wide=True).tolist() == [1.0, 1.0, 1.0]


def test_integer_division_has_an_answer_for_every_operand() -> None:
    a = np.array([7, -7, -128, 5], np.int8)
    b = np.array([-2, 2, -1, 0], np.int8)
    assert RULES["div"](a, b).tolist() == [-3, -3, -128, 0]
    assert RULES["mod"](a, b).tolist() == [-1, 1, 0, 0]
    assert RULES["fmod"](a, b).tolist() == [1, -1, 0, 0]


def test_conversions_that_do_not_fit_have_x86_answers() -> None:
    x = np.array([300.7, -1.0, np.nan, 3e9, 1e19], np.float64)
    assert convert(x, DTYPE["u8"]).tolist() == [44, 255, 0, 0, 0]
    assert convert(x, DTYPE["i32"]).tolist() == [300, -1, -(2**31), -(2**31), -(2**31)]
    assert convert(x, DTYPE["u32"]).tolist() == [300, 2**32 - 1, 0, 3 * 10**9, 0]
    assert convert(x, DTYPE["u64"]).tolist() == [300, 2**64 - 1, 2**63, 3 * 10**9, 10**19]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
def test_shifts_by_the_width_give_zero(dtype: type) -> None:
    x = np.array([1, 1], dtype)
    count = np.array([1, 8 * np.dtype(dtype).itemsize], dtype)
    assert RULES["shl"](x, count).tolist() == [2, 0]
