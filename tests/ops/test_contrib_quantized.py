"""Operators on bytes without a matrix, against stock over all values: zero points odd and even, ties, empties."""

from typing import Any

import cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

MICROSOFT = "com.microsoft"
TYPES = [np.uint8, np.int8]
ZEROS = [(128, 100), (127, 101), (255, 255)]  # above the least value: of the operands, of the result
EXACT = (0.5, 0.25, 1.0)  # scales whose quotients are powers of two: every half is a tie
DECIMAL = (0.03, 0.017, 0.05)


def every(dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


def pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    q = every(dtype)
    return np.repeat(q, 256).reshape(256, 256), np.tile(q, 256).reshape(256, 256)


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def zero(above_least: int, dtype: type) -> np.ndarray:
    return np.array(np.iinfo(dtype).min + above_least, dtype)


def against_stock(op: str, inputs: list[np.ndarray | None], **attrs: Any) -> None:
    cases.check_node(op, inputs, domain=MICROSOFT, attrs=attrs, against=("ort!",), out_types=[inputs[-1].dtype])


def two(dtype: type, scales: tuple[float, ...], zeros: tuple[int, int]) -> list[np.ndarray | None]:
    (a, b), (za, zc) = pairs(dtype), (zero(z, dtype) for z in zeros)
    return [a, number(scales[0]), za, b, number(scales[1]), zero(77, dtype), number(scales[2]), zc]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_ties_of_two_operands_are_rounded_with_the_zero_point(op: str, dtype: type, zeros: tuple[int, int]) -> None:
    """All 65,536 pairs; a quarter of the sums lie between two bytes."""
    against_stock(op, two(dtype, EXACT, zeros))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", ZEROS[:2])
def test_a_product_of_elements_is_stocks_for_any_scale(dtype: type, zeros: tuple[int, int]) -> None:
    against_stock("QLinearMul", two(dtype, (0.03, 0.0042, 0.05), zeros))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", ZEROS[:2])
def test_a_sum_of_decimal_scales_differs_from_the_exact_one_at_ties_alone(dtype: type, zeros: tuple[int, int]) -> None:
    """Where the exact sum is half a step, float32 decides, and stock's own kernels differ by type and CPU."""
    inputs = two(dtype, DECIMAL, zeros)
    model = cases.node_model("QLinearAdd", inputs, domain=MICROSOFT, out_types=[dtype])
    (got,) = cases.evaluate(model, inputs)
    a, sa, za, b, sb, zb, sc, zc = (np.asarray(x).astype(np.float64) for x in inputs)
    exact = ((a - za) * sa + (b - zb) * sb) / sc + zc
    info = np.iinfo(dtype)
    wrong = got != np.clip(np.rint(exact), info.min, info.max)
    assert np.all(np.abs(exact[wrong] - np.floor(exact[wrong]) - 0.5) < 1e-4)
    stock = cases.by_ort(model, inputs)
    assert stock is not None and np.abs(got.astype(int) - stock[0]).max() <= 1


def test_operands_broadcast_and_may_be_empty() -> None:
    q, one = every(np.uint8).reshape(2, 1, 128), number(0.25)
    row = every(np.uint8)[:3].reshape(3, 1)
    middle, other = zero(3, np.uint8), zero(8, np.uint8)
    for op in ("QLinearAdd", "QLinearMul"):
        against_stock(op, [q, one, middle, row, one, other, one, middle])
        against_stock(op, [q[:0], one, middle, row, one, other, one, middle])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", ZEROS[1:])
@pytest.mark.parametrize("scales", [(0.05, 1 / 256), (0.5, 0.25), (0.11, 0.073)])
@pytest.mark.parametrize(("op", "attrs"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})])
def test_activations_of_every_value(
    op: str, attrs: dict[str, float], dtype: type, zeros: tuple[int, int], scales: tuple[float, float]
) -> None:
    x, (zx, zy), (sx, sy) = every(dtype), (zero(z, dtype) for z in zeros), map(number, scales)
    against_stock(op, [x, sx, zx, sy, zy], **attrs)


def test_activations_without_zero_points_and_of_nothing() -> None:
    for dtype in TYPES:
        x, half = every(dtype), number(0.5)
        cases.check_node(
            "QLinearLeakyRelu", [x, half, None, half, None], domain=MICROSOFT, against=("ort!",), out_types=[dtype]
        )
        against_stock("QLinearSigmoid", [x[:0], half, zero(3, dtype), half, zero(3, dtype)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", ZEROS)
def test_concat_of_every_value_in_three_scales(dtype: type, zeros: tuple[int, int]) -> None:
    q, (zx, zy) = every(dtype).reshape(2, 128), (zero(z, dtype) for z in zeros)
    same, other, fine = number(0.25), number(0.125), number(0.073)
    inputs = [same, zy, q, other, zx, q, same, zy, q[:, :0], fine, zx, q[:, 5:9], fine, zx]
    against_stock("QLinearConcat", inputs, axis=-1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", ZEROS[:2])
@pytest.mark.parametrize("scales", [(0.5, 0.25), (0.11, 0.073)])
@pytest.mark.parametrize("last", [0, 1])
def test_means_of_images(dtype: type, zeros: tuple[int, int], scales: tuple[float, float], last: int) -> None:
    rng, info = np.random.default_rng(last), np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (2, 12, 6, 12)).astype(dtype)
    (zx, zy), (sx, sy) = (zero(z, dtype) for z in zeros), map(number, scales)
    against_stock("QLinearGlobalAveragePool", [x[:, :, :4], sx, zx, sy, zy], channels_last=last)
    windows = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "channels_last": last}
    for counted in (0, 1):
        against_stock("QLinearAveragePool", [x, sx, zx, sy, zy], count_include_pad=counted, **windows)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", ["min", "max"])
def test_means_of_extremes_are_these(dtype: type, value: str) -> None:
    least_or_most = getattr(np.iinfo(dtype), value)
    x = np.full((1, 2, 64, 64), least_or_most, dtype)
    one, middle = number(0.5), zero(100, dtype)
    (got,) = cases.check_node(
        "QLinearGlobalAveragePool", [x, one, middle, one, middle], domain=MICROSOFT, against=("ort!",),
        out_types=[dtype], attrs={"channels_last": 0},
    )  # fmt: skip
    assert np.all(got == least_or_most)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("opset", "axis"), [(12, None), (12, 2), (13, None), (13, 1)])
@pytest.mark.parametrize("scales", [(0.05, 1 / 255), (0.11, 0.0039)])
def test_softmax(dtype: type, opset: int, axis: int | None, scales: tuple[float, float]) -> None:
    rng, info = np.random.default_rng(opset), np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (3, 5, 7, 9)).astype(dtype)
    x[0] = info.min
    (sx, sy), place = map(number, scales), {} if axis is None else {"axis": axis}
    against_stock("QLinearSoftmax", [x, sx, zero(3, dtype), sy, zero(0, dtype)], opset=opset, **place)


def test_softmax_of_nothing() -> None:
    """Stock makes no result."""
    x, one, middle = np.zeros((0, 5), np.uint8), number(0.5), zero(3, np.uint8)
    how = {"domain": MICROSOFT, "attrs": {"opset": 13}, "out_types": [np.uint8], "against": ()}
    cases.check_node("QLinearSoftmax", [x, one, middle, one, middle], expected=[x], **how)


def test_a_share_of_one_saturates() -> None:
    """256 steps of 1/256 exceed the largest byte, where stock's int8 kernel wraps around to -128."""
    x = np.array([[-100, 120], [127, -128]], np.int8)
    inputs = [x, number(1.0), zero(0, np.int8), number(1 / 256), zero(0, np.int8)]
    expected = np.array([[-128, 127], [127, -128]], np.int8)
    cases.check_node(
        "QLinearSoftmax", inputs, domain=MICROSOFT, attrs={"opset": 13}, expected=[expected], against=(),
        out_types=[np.int8],
    )  # fmt: skip


def test_what_does_not_fit_is_refused() -> None:
    q, half, middle = every(np.uint8), number(0.5), zero(3, np.uint8)
    several = np.full(2, 0.5, np.float32)
    for op, inputs in (
        ("QLinearMul", [q, several, middle, q, half, middle, half, middle]),
        ("QLinearMul", [q, half, zero(3, np.int8), q, half, middle, half, middle]),
        ("QLinearAdd", [q, half, middle, every(np.int8), half, zero(3, np.int8), half, middle]),
        ("QLinearSigmoid", [q, half, middle, several, middle]),
        ("QLinearConcat", [half, middle, q, half]),
        ("QGemm", [q, half, middle, q, half, middle]),
    ):
        assert cases.refuses(op, inputs, domain=MICROSOFT, attrs={"axis": 0} if op == "QLinearConcat" else {})


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
def test_qgemm(dtype: type, transposed: int, alpha: float) -> None:
    """Weights are small: stock saturates sums of large ones on CPUs without VNNI."""
    rng, info = np.random.default_rng(transposed), np.iinfo(dtype)
    a = rng.integers(info.min, info.max + 1, (7, 7)).astype(dtype)
    b = rng.integers(0, 60, (7, 7)).astype(np.int8)
    bias = rng.integers(-5000, 5000, (7, 1)).astype(np.int32)
    scales, zeros = np.array([0.25, 0.5] * 3 + [1], np.float32), np.arange(20, 27).astype(np.int8)
    inputs = [a, number(0.5), zero(101, dtype), b, scales, zeros, bias, number(16), zero(101, dtype)]
    attrs = {"transA": transposed, "transB": transposed, "alpha": alpha}
    against_stock("QGemm", inputs, **attrs)
    how = {"domain": MICROSOFT, "attrs": attrs, "against": ("ort!",)}
    cases.check_node("QGemm", [*inputs[:5], zeros, None], out_types=[np.float32], **how)


scale = st.floats(2**-10, 2**6, width=32)
byte = st.integers(0, 255)


@settings(max_examples=12, deadline=None)
@given(byte, byte, byte, scale, scale, scale, st.sampled_from(TYPES), st.integers(0, 2**32))
def test_any_product_of_elements_is_stocks(
    za: int, zb: int, zc: int, sa: float, sb: float, sc: float, dtype: type, seed: int
) -> None:
    info = np.iinfo(dtype)
    a, b = np.random.default_rng(seed).integers(info.min, info.max + 1, (2, 500)).astype(dtype)
    inputs = [a, number(sa), zero(za, dtype), b, number(sb), zero(zb, dtype), number(sc), zero(zc, dtype)]
    model = cases.node_model("QLinearMul", inputs, domain=MICROSOFT, out_types=[dtype])
    stock = cases.by_ort(model, inputs)
    assert stock is not None
    if np.abs(np.float64(sa) * sb / sc) * 65025 < 2**31:  # beyond, stock's conversion to int32 overflows
        cases.compare(cases.evaluate(model, inputs), stock)
