"""vec.h against numpy: every operation of every dtype, over edge values and random bits, tails included."""

import mmap
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f32": np.float32, "f64": np.float64, "b": np.uint8,
}  # fmt: skip
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f32", "f64"]
NUMBERS = INTEGERS + FLOATS
COUNT = 419  # whole vectors and an odd tail at every width
COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.fixture(scope="session")
def vec(harness_of: Callable[[str], Any]) -> Any:
    return harness_of("vec_harness.c")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def edge_values(short: str) -> Array:
    dtype = DTYPES[short]
    if short == "b":
        return np.array([0, 1], dtype)
    if short in INTEGERS:
        info = np.iinfo(dtype)
        small = [x for x in (-3, -2, -1) if info.min < 0] + [0, 1, 2, 3, 7, 31, 32, 63, 64]
        return np.array([info.min, info.min + 1, *small, info.max - 1, info.max], dtype)
    finite = [0.0, 0.5, 1.0, 1.5, 2.5, 3.7, 127.9, 255.5, 32768.0, 65535.9, 2.0**31, 2.0**32]
    huge = [2.0**52 + 1, 2.0**53, 2.0**62, 2.0**63, 1.5 * 2.0**63, 2.0**64, 3e38, np.inf]
    tiny = [np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal]
    whole = np.array(finite + huge + tiny, dtype)
    return np.concatenate([whole, -whole, np.array([np.nan], dtype), -np.array([2.0**31 + 0.5], dtype)])


def random_values(short: str, count: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[short]
    if short == "b":
        return rng.integers(0, 2, count).astype(dtype)
    bits = rng.integers(0, 256, count * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype).copy()
    if short in FLOATS:
        bits[: count // 2] = rng.normal(0, 1000, count // 2).astype(dtype)
        bits[np.isnan(bits)] = 1.25
    return bits


def operands(short: str) -> tuple[Array, Array]:
    edges = edge_values(short)
    a, b = (side.ravel() for side in np.meshgrid(edges, edges))
    return np.concatenate([a, random_values(short, COUNT)]), np.concatenate([b, random_values(short, COUNT, 1)])


def values(short: str) -> Array:
    return np.concatenate([edge_values(short), random_values(short, COUNT)])


def expect(got: Array, want: Array, *inputs: Array) -> None:
    same = (got == want) | ((got != got) & (want != want))
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, [(*(x[i] for x in inputs), got[i], want[i]) for i in wrong[:5]]


def python_ints(a: Array) -> list[int]:
    return [int(x) for x in a]


def wrap(results: list[int], dtype: Any) -> Array:
    bits = np.dtype(dtype).itemsize * 8
    return np.array([r & ((1 << bits) - 1) for r in results], np.uint64).astype(np.dtype(f"u{bits // 8}")).view(dtype)


def truncated_quotient(a: int, b: int) -> int:
    return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def integer_power(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64)
    return {1: 1, -1: -1 if b & 1 else 1}.get(a, 0)


def shifted(a: int, n: int, bits: int, left: bool) -> int:
    if not 0 <= n < bits:
        return 0
    return a << n if left else a >> n


@pytest.mark.parametrize("short", NUMBERS)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_wraps_integers_and_propagates_nan(vec: Any, op: str, short: str) -> None:
    a, b = operands(short)
    expect(vec.call(f"{op}_{short}", a, b, out=np.zeros_like(a)), ARITHMETIC[op](a, b), a, b)


@pytest.mark.parametrize("short", NUMBERS)
@pytest.mark.parametrize("op", COMPARE)
def test_comparisons_give_one_byte_booleans(vec: Any, op: str, short: str) -> None:
    a, b = operands(short)
    expect(vec.call(f"{op}_{short}", a, b, out=np.full(a.size, 9, np.uint8)), COMPARE[op](a, b).astype(np.uint8), a, b)


@pytest.mark.parametrize("short", NUMBERS)
def test_unary_arithmetic(vec: Any, short: str) -> None:
    a = values(short)
    for op, reference in (("neg", np.negative), ("abs", np.abs), ("sign", np.sign)):
        expect(vec.call(f"{op}_{short}", a, out=np.zeros_like(a)), reference(a), a)


@pytest.mark.parametrize("short", FLOATS)
def test_float_division_and_rounding_are_exact(vec: Any, short: str) -> None:
    a, b = operands(short)
    expect(vec.call(f"div_{short}", a, b, out=np.zeros_like(a)), a / b, a, b)
    exact = {"floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc}
    exact |= {"sqrt": np.sqrt, "recip": np.reciprocal}
    for op, reference in exact.items():
        got = vec.call(f"{op}_{short}", a, out=np.zeros_like(a))
        expect(got, reference(a), a)
        if op != "sqrt":
            number = ~np.isnan(a)
            assert (np.signbit(got) == np.signbit(a))[number & (got == 0)].all()


@pytest.mark.parametrize("short", FLOATS)
def test_classification(vec: Any, short: str) -> None:
    a = values(short)
    classes = {"isnan": np.isnan, "isinf": np.isinf, "isinf_pos": np.isposinf, "isinf_neg": np.isneginf}
    for op, reference in classes.items():
        expect(vec.call(f"{op}_{short}", a, out=np.zeros(a.size, np.uint8)), reference(a).astype(np.uint8), a)


@pytest.mark.parametrize("short", INTEGERS)
def test_integer_division_never_traps(vec: Any, short: str) -> None:
    a, b = operands(short)
    pairs = list(zip(python_ints(a), python_ints(b), strict=True))
    references = {
        "div": [truncated_quotient(x, y) for x, y in pairs],
        "mod": [x % y if y else 0 for x, y in pairs],
        "fmod": [x - y * truncated_quotient(x, y) if y else 0 for x, y in pairs],
        "pow": [integer_power(x, y) for x, y in pairs],
    }
    for op, reference in references.items():
        expect(vec.call(f"{op}_{short}", a, b, out=np.zeros_like(a)), wrap(reference, a.dtype), a, b)


@pytest.mark.parametrize("short", INTEGERS)
def test_bit_operations(vec: Any, short: str) -> None:
    a, b = operands(short)
    bits = a.dtype.itemsize * 8
    pairs = list(zip(python_ints(a), python_ints(b), strict=True))
    for op, reference in (("band", a & b), ("bor", a | b), ("bxor", a ^ b)):
        expect(vec.call(f"{op}_{short}", a, b, out=np.zeros_like(a)), reference, a, b)
    for op, left in (("shl", True), ("shr", False)):
        reference = wrap([shifted(x, n, bits, left) for x, n in pairs], a.dtype)
        expect(vec.call(f"{op}_{short}", a, b, out=np.zeros_like(a)), reference, a, b)
    expect(vec.call(f"bnot_{short}", a, out=np.zeros_like(a)), ~a, a)


def float_to_i64(a: Array) -> Array:
    whole = np.trunc(a.astype(np.float64))
    inside = (whole >= -(2.0**63)) & (whole < 2.0**63)
    return np.where(inside, np.where(inside, whole, 0).astype(np.int64), np.iinfo(np.int64).min)


def float_to_i32(a: Array) -> Array:
    whole = np.trunc(a.astype(np.float64))
    inside = (whole >= -(2.0**31)) & (whole < 2.0**31)
    return np.where(inside, np.where(inside, whole, 0).astype(np.int32), np.iinfo(np.int32).min)


def float_to_u64(a: Array) -> Array:
    wide = a.astype(np.float64)
    large = wide >= 2.0**63
    top_bit = np.where(large, np.uint64(1 << 63), np.uint64(0))
    return float_to_i64(np.where(large, wide - 2.0**63, wide)).view(np.uint64) ^ top_bit


def converted(a: Array, source: str, target: str) -> Array:
    dtype = DTYPES[target]
    if target == "b":
        return (a != 0).astype(np.uint8)
    if source not in FLOATS or target in FLOATS:
        return a.astype(dtype)
    if target == "u64":
        return float_to_u64(a)
    return (float_to_i64(a) if target in ("i64", "u32") else float_to_i32(a)).astype(dtype)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_conversion(vec: Any, source: str, target: str) -> None:
    a = np.concatenate([values(source), *([random_values(source, 9001, 7)] if "64" in source else [])])
    got = vec.call(f"cvt_{source}_{target}", a, out=np.zeros(a.size, DTYPES[target]))
    expect(got, converted(a, source, target), a)


def test_int64_to_float32_rounds_once_near_ties(vec: Any) -> None:
    ties = np.array([(1 << e) + (1 << (e - 24)) + d for e in range(54, 63) for d in (-1, 0, 1)], np.int64)
    a = np.concatenate([ties, -ties])
    expect(vec.call("cvt_i64_f32", a, out=np.zeros(a.size, np.float32)), a.astype(np.float32), a)


@pytest.mark.parametrize("short", DTYPES)
def test_selection_by_loaded_bools(vec: Any, short: str) -> None:
    a, mask = values(short), random_values("b", values(short).size, 3)
    expect(vec.call(f"sel_{short}", a, mask, out=np.zeros_like(a)), np.where(mask != 0, a, a.dtype.type(1)), a, mask)


def test_logic(vec: Any) -> None:
    a, b = random_values("b", COUNT), random_values("b", COUNT, 1)
    for op, reference in (("and", a & b), ("or", a | b), ("xor", a ^ b), ("eq", a == b), ("ne", a != b)):
        expect(vec.call(f"{op}_b", a, b, out=np.zeros_like(a)), reference.astype(np.uint8), a, b)
    expect(vec.call("not_b", a, out=np.zeros_like(a)), 1 - a, a)


@pytest.mark.parametrize("short", DTYPES)
def test_strided_and_indexed_access(vec: Any, short: str) -> None:
    a = random_values(short, 3 * COUNT)
    out = vec.call(f"strided_{short}", a, out=np.zeros(2 * COUNT, a.dtype), count=COUNT)
    expect(out[::2], a[::3])
    assert not out[1::2].any()
    index = np.random.default_rng(5).permutation(COUNT).astype(np.int64)
    expect(vec.call(f"gather_{short}", a, index, out=np.zeros(COUNT, a.dtype), count=COUNT), a[index])
    scattered = vec.call(f"scatter_{short}", a, index, out=np.zeros(COUNT, a.dtype), count=COUNT)
    expect(scattered[index], a[:COUNT])
    for op in ("lane0", "st1"):
        expect(vec.call(f"{op}_{short}", a, out=np.zeros_like(a)), a)


@pytest.mark.parametrize("short", DTYPES)
def test_tails_touch_nothing_past_the_end(vec: Any, short: str) -> None:
    if vec.library is None:
        pytest.skip("a guard page needs the kernel in this process")
    item = np.dtype(DTYPES[short]).itemsize
    block = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    everything = np.frombuffer(block, np.uint8)
    for n in range(1, 16):
        everything[:] = 0xAA
        end = mmap.PAGESIZE
        out = everything[end : end + n * item].view(DTYPES[short])
        a = random_values(short, n)
        vec.call(f"sel_{short}", a, np.ones(n, np.uint8), out=out)
        expect(out, a)
        assert (everything[end + n * item :] == 0xAA).all() and (everything[:end] == 0xAA).all()


@pytest.mark.parametrize("short", NUMBERS)
def test_reductions_of_one_vector(vec: Any, short: str) -> None:
    lanes = int(vec.call("lanes", np.zeros(1, np.uint8), out=np.zeros(1, np.int64))[0])
    a = random_values(short, 64 * lanes)
    if short in FLOATS:
        a = np.random.default_rng(2).integers(1, 4, a.size).astype(a.dtype)  # sums and products stay exact
        a[5] = np.nan
    rows = a.reshape(-1, lanes)
    for op, reference in (("hsum", np.sum), ("hprod", np.prod), ("hmin", np.min), ("hmax", np.max)):
        want = reference(rows, axis=1, **({"dtype": a.dtype} if op in ("hsum", "hprod") else {}))
        expect(vec.call(f"{op}_{short}", a, out=np.zeros(len(rows), a.dtype)), want)


def test_bool_reductions_and_masks(vec: Any) -> None:
    lanes = int(vec.call("lanes", np.zeros(1, np.uint8), out=np.zeros(1, np.int64))[0])
    rows = np.array([[0] * lanes, [1] * lanes, [1] + [0] * (lanes - 1), [1] * (lanes - 1) + [0]], np.uint8)
    expect(vec.call("hand_b", rows.ravel(), out=np.zeros(4, np.uint8)), rows.all(axis=1).astype(np.uint8))
    expect(vec.call("hor_b", rows.ravel(), out=np.zeros(4, np.uint8)), rows.any(axis=1).astype(np.uint8))
    masks = vec.call("tail_masks", np.zeros(lanes, np.uint8), out=np.zeros(lanes * lanes, np.uint8))
    expect(masks, np.tri(lanes, dtype=np.uint8).ravel())
    expect(vec.call("iotas", np.zeros(1, np.uint8), out=np.zeros(lanes, np.int64)), np.arange(lanes))


HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("short", HALVES)
def test_every_half_is_widened_exactly(vec: Any, short: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = vec.call(f"cvt_{short}_f32", bits, out=np.zeros(bits.size, np.float32))
    expect(wide, bits.view(HALVES[short]).astype(np.float32), bits)


@pytest.mark.parametrize("short", HALVES)
def test_floats_are_rounded_to_halves_once_and_ties_to_even(vec: Any, short: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(HALVES[short]).astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)  # ties, exact in float32
    near = [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    edges = [65519.9, 65520.0, 3.4e38, np.inf, -np.inf, np.nan]
    x = np.concatenate([*near, finite, random_values("f32", 20000), edges]).astype(np.float32)
    got = vec.call(f"cvt_f32_{short}", x, out=np.zeros(x.size, np.uint16)).view(HALVES[short])
    expect(got.astype(np.float32), x.astype(HALVES[short]).astype(np.float32), x)
    zero = got.astype(np.float32) == 0
    assert (np.signbit(got.astype(np.float32)) == np.signbit(x))[zero].all()


@pytest.mark.parametrize("short", HALVES)
def test_strided_and_indexed_access_of_halves(vec: Any, short: str) -> None:
    a = random_values("f32", 3 * COUNT).astype(HALVES[short]).view(np.uint16)
    out = vec.call(f"strided_{short}", a, out=np.zeros(2 * COUNT, np.uint16), count=COUNT)
    expect(out[::2], a[::3])
    assert not out[1::2].any()
    index = np.random.default_rng(3).permutation(3 * COUNT)[:COUNT].astype(np.int64)
    expect(vec.call(f"gather_{short}", a, index, out=np.zeros(COUNT, np.uint16), count=COUNT), a[index])
