"""int8_unit.h and int8_panels.py against numpy in int64: bit by bit, on every CPU level at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.codegen.c import function_probe
from tests.codegen.c.function_probe import Build, FunctionProbe, built

from smelt.codegen.c.layout.int8_panels import HEADER_BYTES, int8_matrix, int8_panels
from smelt.ops import integer_product

# The steps of VNNI take bytes of A, as the portable ones of "bytes" do.
BUILDS = {
    **function_probe.BUILDS,
    "bytes-of-v4-on-v3": Build("x86-64-v3", 64, "avx2", ("-DSMELT_INT8_BYTES", "-O1")),
    "bytes-on-v2": Build("x86-64-v2", 16, "sse4_2", ("-DSMELT_INT8_BYTES",)),
}
TYPES = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)]


@dataclass
class Case:
    a: np.ndarray
    b: np.ndarray
    a_zero: np.ndarray | None = None
    b_zero: np.ndarray | None = None
    a_scale: np.ndarray | None = None
    b_scale: np.ndarray | None = None
    bias: np.ndarray | None = None
    y_scale: np.ndarray | None = None
    y_zero: np.ndarray | None = None
    result: str = "i32"
    packed: bool = True
    processors: int = 1
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        (rows, depth), columns = self.a.shape, self.b.shape[1]
        signed = [int(x.dtype == np.int8) for x in (self.a, self.b)]
        counted = (self.a_zero, self.b_zero, self.a_scale, self.b_scale, self.bias)
        counts = [1 if x is None else x.size for x in counted]
        kind = integer_product.RESULTS[self.result]
        self.numbers = [rows, depth, columns, *signed, int(self.packed), kind, *counts]

    @property
    def operands(self) -> list[np.ndarray | None]:
        return [
            self.a,
            self.b,
            self.a_zero,
            self.b_zero,
            self.a_scale,
            self.b_scale,
            self.bias,
            self.y_scale,
            self.y_zero,
        ]

    def expected(self) -> np.ndarray:
        return integer_product.reference(self.operands, [*self.numbers[:5], 0, *self.numbers[6:]], ())[0]


class Probe(FunctionProbe):
    def run(self, case: Case) -> np.ndarray:
        panels = int8_panels(case.b, "int8")
        operands = [case.a, panels if case.packed else case.b, *case.operands[2:]]
        dtype = {"i32": np.int32, "f32": np.float32, "u8": np.uint8, "i8": np.int8}[case.result]
        y = np.full(case.a.shape[0] * case.b.shape[1] + 16, 77, dtype)
        scratch = np.zeros(panels.size + 64, np.int8)
        self.call("probe_int8", [*operands, y, scratch], case.numbers, case.processors)
        assert (y[-16:] == 77).all()
        return y[:-16].reshape(case.a.shape[0], case.b.shape[1])


@pytest.fixture(scope="module", params=BUILDS)
def library(request, tmp_path_factory) -> Path:
    return built("int8", BUILDS[request.param], tmp_path_factory.mktemp("int8"))


@pytest.fixture(scope="module", params=["all-features", "of-the-build"])
def probe(request, library: Path) -> Iterator[Probe]:
    found = Probe(library)
    found.use_features(request.param == "all-features")
    yield found


def whole(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def random_case(seed: int) -> Case:
    """Any sizes, types and zero points; full range, or weights small enough for products of bytes."""
    rng = np.random.default_rng([8, seed])
    left, right = TYPES[seed % 4]
    rows, depth, columns = int(rng.integers(1, 30)), int(rng.integers(0, 70)), int(rng.integers(1, 70))
    if seed % 5 == 0:
        rows, columns = int(rng.integers(90, 230)), int(rng.integers(200, 400))
    b = whole(rng, right, depth, columns)
    if seed % 3 == 0 and depth:  # with a few large pairs
        b = (rng.integers(-64, 65, b.shape) + (128 if right is np.uint8 else 0)).astype(right)
        for k in rng.integers(0, depth, seed % 4):
            b[k // 2 * 2 : k // 2 * 2 + 2, rng.integers(0, columns)] = (
                np.iinfo(right).min if seed % 2 else np.iinfo(right).max
            )
    a_zero = whole(rng, left, (1, rows)[seed % 7 == 0]) if seed % 2 else None
    b_zero = whole(rng, right, (1, columns)[seed % 11 < 5]) if seed // 2 % 2 else None
    a = whole(rng, left, rows, depth)
    return Case(a, b, a_zero, b_zero, packed=seed % 6 != 1, processors=int(rng.integers(0, 5)))


def test_sums_are_those_of_int64(probe: Probe) -> None:
    for seed in range(150):
        case = random_case(seed)
        np.testing.assert_array_equal(probe.run(case), case.expected(), err_msg=f"seed {seed}")


@pytest.mark.full
def test_many_sums_are_those_of_int64(probe: Probe) -> None:
    for seed in range(1000, 18000):
        case = random_case(seed)
        np.testing.assert_array_equal(probe.run(case), case.expected(), err_msg=f"seed {seed}")


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_extremes_do_not_saturate(probe: Probe, rows: int) -> None:
    """255 * -128 twice is beyond int16, where a saturating product of bytes stops."""
    for left, right in TYPES:
        for x in (np.iinfo(left).min, np.iinfo(left).max):
            for y in (np.iinfo(right).min, np.iinfo(right).max):
                a, b = np.full((rows, 4096), x, left), np.full((4096, 17), y, right)
                for zero in (np.iinfo(left).min, np.iinfo(left).max):
                    case = Case(a, b, np.array([zero], left), np.array([-int(y) // 2 % 100], right))
                    np.testing.assert_array_equal(probe.run(case), case.expected())


def test_sums_wrap_modulo_2_to_the_32(probe: Probe) -> None:
    a, b = np.full((1, 70000), 255, np.uint8), np.full((70000, 1), 255, np.uint8)
    case = Case(a, b)
    assert int(probe.run(case)[0, 0]) == (255 * 255 * 70000 + 2**31) % 2**32 - 2**31


def test_scales_and_bias_give_what_separate_nodes_give(probe: Probe) -> None:
    for seed in range(40):
        case, rng = random_case(seed), np.random.default_rng(seed)
        rows, columns = case.numbers[0], case.numbers[2]
        a_scale = rng.uniform(0.01, 1, 1 if seed % 3 else rows).astype(np.float32)
        b_scale = rng.uniform(0.01, 1, 1 if seed % 2 else columns).astype(np.float32)
        bias = rng.standard_normal(columns).astype(np.float32) if seed % 4 else None
        scaled = Case(
            case.a, case.b, case.a_zero, case.b_zero, a_scale, b_scale, bias, result="f32", packed=case.packed
        )
        wanted = case.expected().astype(np.float32) * (a_scale[:, None] * b_scale[None, :])
        np.testing.assert_array_equal(probe.run(scaled), wanted if bias is None else wanted + bias)


@pytest.mark.parametrize("result", ["u8", "i8"])
def test_requantization_rounds_half_to_even_and_saturates(probe: Probe, result: str) -> None:
    dtype = {"u8": np.uint8, "i8": np.int8}[result]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        a, b = whole(rng, np.uint8, 9, 3) // 8, rng.integers(-4, 5, (3, 37)).astype(np.int8)
        scales = [
            np.array([0.5], np.float32),
            np.array([1], np.float32),
            None,
            np.array([2 if seed % 2 else 1], np.float32),
        ]
        case = Case(a, b, None, None, *scales, np.array([seed], dtype), result=result)
        np.testing.assert_array_equal(probe.run(case), case.expected())


def test_panels_have_their_sums_and_say_whether_pairs_are_small() -> None:
    rng = np.random.default_rng(0)
    b = rng.integers(-60, 60, (64, 20)).astype(np.int8)
    b[6, 17], b[7, 17], b[8, 3], b[9, 3], b[40, 3], b[41, 3] = 127, 127, -128, -128, -1, -127
    panels = int8_panels(b, "int8")
    header = panels[:, :HEADER_BYTES].copy().view(np.int32)
    sums = header[:, :16].reshape(-1)
    np.testing.assert_array_equal(sums[:20], b.sum(0, dtype=np.int32))
    assert header[:, 16].tolist() == [1, 1] and header[:, 17].tolist() == [1, 1]
    groups = panels[:, HEADER_BYTES:].astype(np.int16)[:, : 17 * 64].reshape(2, -1, 2)
    assert np.abs(groups).sum(-1).max() <= 128
    np.testing.assert_array_equal(int8_panels(np.ascontiguousarray(b.T), "int8:transposed"), panels)
    np.testing.assert_array_equal(int8_matrix(panels, 64, 20, True), b)
    plain = b.view(np.uint8)
    np.testing.assert_array_equal(int8_matrix(int8_panels(plain, "int8"), 64, 20, False), plain)
    full = int8_panels(rng.integers(-128, 128, (64, 20)).astype(np.int8), "int8")
    assert full[:, :HEADER_BYTES].copy().view(np.int32)[:, 16:18].tolist() == [[0, 0], [0, 0]]
