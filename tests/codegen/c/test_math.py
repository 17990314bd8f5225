"""math.h against the C library's next wider type: errors in ULP, special values, signs of zeros.

The bounds are what the sweeps show plus a margin; the contract is 4 ULP everywhere.
"""

from collections.abc import Callable
from math import erfc, sqrt
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
# function: (bound in f32, bound in f64)
ULP: dict[str, tuple[float, float]] = {
    "exp": (1.5, 1.5), "expm1": (2.0, 2.5), "log": (1.5, 1.5), "log1p": (1.5, 1.5), "erf": (3.5, 3.5),
    "tanh": (3.0, 3.5), "sigmoid": (3.0, 3.0), "softplus": (2.5, 2.5), "sin": (2.0, 2.0), "cos": (2.0, 2.0),
    "tan": (4.0, 4.0), "asin": (2.0, 2.5), "acos": (2.0, 2.0), "atan": (2.0, 2.5), "sinh": (1.0, 3.0),
    "cosh": (1.0, 2.5), "asinh": (1.0, 3.0), "acosh": (1.0, 3.0), "atanh": (1.0, 3.0), "sqrt": (0.5, 0.5),
}  # fmt: skip
POW_ULP = {"f32": 1.0, "f64": 2.5}
FLOAT = {"f32": np.float32, "f64": np.float64}
KEEPS_SIGNED_ZERO = ["expm1", "log1p", "erf", "tanh", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "sqrt"]
NAN, INF = np.nan, np.inf
SPECIALS: dict[str, list[tuple[float, float]]] = {
    "exp": [(INF, INF), (-INF, 0), (NAN, NAN), (0, 1), (1000, INF), (-1000, 0)],
    "expm1": [(INF, INF), (-INF, -1), (NAN, NAN)],
    "log": [(0, -INF), (-0.0, -INF), (-1, NAN), (INF, INF), (-INF, NAN), (NAN, NAN), (1, 0)],
    "log1p": [(-1, -INF), (-2, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "erf": [(INF, 1), (-INF, -1), (NAN, NAN)],
    "gelu": [(INF, INF), (-INF, NAN), (NAN, NAN), (0, 0), (-1000, 0), (1000, 1000), (-1e30, 0), (1e30, 1e30)],
    "tanh": [(INF, 1), (-INF, -1), (NAN, NAN)],
    "sigmoid": [(INF, 1), (-INF, 0), (NAN, NAN), (0, 0.5)],
    "softplus": [(INF, INF), (-INF, 0), (NAN, NAN)],
    "sin": [(INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0, 1), (-0.0, 1)],
    "tan": [(INF, NAN), (-INF, NAN), (NAN, NAN)],
    "asin": [(1.5, NAN), (-1.5, NAN), (INF, NAN), (NAN, NAN)],
    "acos": [(1.5, NAN), (-1.5, NAN), (INF, NAN), (NAN, NAN), (1, 0)],
    "atan": [(NAN, NAN)],
    "sinh": [(INF, INF), (-INF, -INF), (NAN, NAN)],
    "cosh": [(INF, INF), (-INF, INF), (NAN, NAN), (0, 1)],
    "asinh": [(INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [(INF, INF), (0.5, NAN), (-INF, NAN), (-3, NAN), (NAN, NAN), (1, 0)],
    "atanh": [(1, INF), (-1, -INF), (2, NAN), (INF, NAN), (NAN, NAN)],
    "sqrt": [(INF, INF), (-1, NAN), (NAN, NAN)],
}
FAST_STEP, DENSE_STEP = 70001, 101


@pytest.fixture(scope="session")
def math(harness_of: Callable[[str], Any]) -> Any:
    return harness_of("math_harness.c")


def worst(math: Any, name: str, a: Array, b: Array | None = None) -> Array:
    """Largest error in ULP, and where: argument, result, expectation."""
    return math.call(name, a, b, out=np.zeros(4))


def apply(math: Any, name: str, a: Array, b: Array | None = None) -> Array:
    """Whole vectors only: the arguments are repeated up to a multiple of the widest vector."""
    padded = [None if x is None else np.resize(x, -(-x.size // 16) * 16) for x in (a, b)]
    assert padded[0] is not None
    return math.call(name, padded[0], padded[1], out=np.zeros_like(padded[0]))[: a.size]


def doubles(count: int) -> Array:
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    ranges = [rng.uniform(-r, r, count) for r in (1, 6, 30, 800)]
    near_one = 1 + rng.normal(0, 1e-3, count)
    magnitudes = np.exp(rng.uniform(-40, 40, count)) * rng.choice([-1, 1], count)
    quarter_turns = rng.integers(1, 2**20, count) * (np.pi / 2)
    edges = np.array([5e-324, 2.3e-308, 1.7e308, 709.7, -745.1, 710.4, 0.5, 1.0])
    return np.concatenate([bits, *ranges, near_one, magnitudes, quarter_turns, edges, -edges])


def check_sweep(math: Any, name: str, step: int) -> None:
    start = step // 3
    ulp, at, got, want = worst(math, f"sweep_{name}", np.array([start, step], np.uint32))
    assert ulp <= ULP[name][0], f"{name}({at!r}) gave {got!r}, expected {want!r}: {ulp:.2f} ULP"


@pytest.mark.parametrize("name", ULP)
def test_f32_error_over_sampled_bit_patterns(math: Any, name: str) -> None:
    check_sweep(math, name, FAST_STEP * (100 if math.build.emulator else 1))


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ULP)
def test_f32_error_over_dense_bit_patterns(math: Any, name: str) -> None:
    if math.build.emulator:
        pytest.skip("the emulated sweep is the sampled one")
    check_sweep(math, name, DENSE_STEP)


@pytest.mark.parametrize("name", ULP)
def test_f64_error_over_ranges_and_random_bits(math: Any, name: str) -> None:
    points = doubles(400 if math.build.emulator else 4000)
    ulp, at, got, want = worst(math, f"points_{name}", points)
    assert ulp <= ULP[name][1], f"{name}({at!r}) gave {got!r}, expected {want!r}: {ulp:.2f} ULP"


@pytest.mark.parametrize("form,dtype", [("array", np.float32), ("wide", np.float64)])
def test_special_values(math: Any, form: str, dtype: Any) -> None:
    for name, cases in SPECIALS.items():
        arguments, expected = (np.array(side, dtype) for side in zip(*cases, strict=True))
        got = apply(math, f"{form}_{name}", arguments)
        np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize("form,dtype", [("array", np.float32), ("wide", np.float64)])
@pytest.mark.parametrize("name", KEEPS_SIGNED_ZERO)
def test_zeros_and_subnormals_keep_their_sign(math: Any, name: str, form: str, dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    arguments = np.array([0.0, -0.0], dtype) if name == "sqrt" else np.array([0.0, -0.0, tiny, -tiny], dtype)
    got = apply(math, f"{form}_{name}", arguments)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(arguments))
    np.testing.assert_array_equal(got[:2], [0, 0])
    if name not in ("sqrt",):
        assert (got[2:] != 0).all()


def test_sigmoid_tail_is_accurate(math: Any) -> None:
    x = np.array([-87, -95, -100, -103], np.float32)
    got = apply(math, "array_sigmoid", x).astype(np.float64)
    want = np.exp(x.astype(np.float64))
    assert (np.abs(got - want) <= np.maximum(want * 2.0**-22, 2.0**-149)).all()


GELU_ULP = {"f32": 2.0, "f64": 2.5}  # of the argument


@pytest.mark.parametrize("short,form", [("f32", "array"), ("f64", "wide")])
def test_gelu_error_in_ulp_of_its_argument(math: Any, short: str, form: str) -> None:
    rng = np.random.default_rng(13)
    points = [np.linspace(-20, 20, 40_000), rng.normal(0, 1, 40_000), np.exp(rng.uniform(-80, 60, 4000))]
    x = np.concatenate([*points, -points[2]]).astype(FLOAT[short])
    got = apply(math, f"{form}_gelu", x)
    wide = x.astype(np.float64)
    want = 0.5 * wide * np.array([erfc(-v * sqrt(0.5)) for v in wide])
    worst_ulp = (np.abs(got - want) / np.spacing(np.abs(x)).astype(np.float64)).max()
    assert worst_ulp <= GELU_ULP[short], worst_ulp
    assert (got[x < 0] <= 0).all()


def test_gelu_is_within_4_ulp_where_it_is_not_small(math: Any) -> None:
    x = np.concatenate([np.linspace(-0.5, 8, 30_000), np.linspace(-1e-6, 1e-6, 999)]).astype(np.float32)
    got = apply(math, "array_gelu", x)
    want = np.array([0.5 * v * erfc(-v * sqrt(0.5)) for v in x.astype(np.float64)])
    assert (np.abs(got - want) <= 4 * np.spacing(np.abs(want).astype(np.float32))).all()


def power_operands(short: str, count: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(12)
    width, tiny = (20.0, 1e-42) if short == "f32" else (170.0, 1e-310)
    bases = [np.exp(rng.uniform(-width, width, count)), rng.uniform(0.5, 2, count), 1 + rng.normal(0, 1e-3, count)]
    exponents = [rng.uniform(-6, 6, count), rng.uniform(-1000, 1000, count), rng.uniform(-1e5, 1e5, count)]
    bases += [tiny * rng.uniform(1, 10, count), -rng.uniform(0.1, 9, count)]
    exponents += [rng.uniform(-1, 1, count), rng.integers(-20, 20, count).astype(np.float64)]
    return np.concatenate(bases).astype(FLOAT[short]), np.concatenate(exponents).astype(FLOAT[short])


@pytest.mark.parametrize("short", FLOAT)
def test_pow_error(math: Any, short: str) -> None:
    base, exponent = power_operands(short, 400 if math.build.emulator else 8000)
    ulp, at, got, power = worst(math, f"points_pow_{short}", base, exponent)
    assert ulp <= POW_ULP[short], f"pow({at!r}, {power!r}) gave {got!r}: {ulp:.2f} ULP"


@pytest.mark.parametrize("short", FLOAT)
def test_pow_has_the_ieee_special_cases(math: Any, short: str) -> None:
    values = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, 1e30, -1e30, 2.0**24 + 2, INF, -INF, NAN]
    base, exponent = (side.ravel().astype(FLOAT[short]) for side in np.meshgrid(values, values))
    got = apply(math, f"array_pow_{short}", base, exponent)
    with np.errstate(all="ignore"):
        want = np.power(base.astype(np.longdouble), exponent.astype(np.longdouble)).astype(FLOAT[short])
    exact = ~np.isfinite(want) | (want == 0) | (want == 1)
    np.testing.assert_array_equal(got[exact], want[exact])
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
    np.testing.assert_allclose(got[~exact], want[~exact], rtol=1e-6)


@pytest.mark.parametrize("short", FLOAT)
def test_fmod_is_exact_and_mod_takes_the_divisors_sign(math: Any, short: str) -> None:
    a, b = power_operands(short, 400 if math.build.emulator else 4000)
    a[::3] *= -1
    specials = np.array([0.0, -0.0, 1, -1, 5.5, -5.5, 3, -3, INF, -INF, NAN, np.finfo(FLOAT[short]).max], FLOAT[short])
    left, right = (side.ravel() for side in np.meshgrid(specials, specials))
    a, b = np.concatenate([a, left]), np.concatenate([b, right])
    with np.errstate(all="ignore"):
        truncated, floored = np.fmod(a, b), np.mod(a, b)
    np.testing.assert_array_equal(apply(math, f"array_fmod_{short}", a, b), truncated)
    ordinary = np.isfinite(b)
    np.testing.assert_array_equal(apply(math, f"array_mod_{short}", a, b)[ordinary], floored[ordinary])
