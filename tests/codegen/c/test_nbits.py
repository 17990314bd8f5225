"""nbits_unit.h and nbits_panels.py against numpy in float64, on every CPU level at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.codegen.c import function_probe
from tests.codegen.c.function_probe import Build, FunctionProbe, built

from smelt.codegen.c.layout.formats import packed_array
from smelt.codegen.c.layout.nbits_panels import are_halves
from smelt.ir.kernel.bit_fields import pack_bits, unpack_bits
from smelt.ops import block_quantized

BUILDS = {
    **function_probe.BUILDS,
    "v4-without-vnni": Build("x86-64-v4", 64, "avx512bw", ("-DSMELT_NB_NO_VNNI",)),
    "v4-on-v3": Build("x86-64-v3", 64, "avx2", ("-O1",)),
}


@dataclass
class Case:
    a: np.ndarray
    q: np.ndarray  # (N, K) of uint8
    scales: np.ndarray  # (N, blocks)
    bits: int
    block: int
    zeros: np.ndarray | None = None  # (N, blocks), uint8 or float32
    bias: np.ndarray | None = None
    fast: bool = False
    processors: int = 1
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        kind = 0 if self.zeros is None else 1 if self.zeros.dtype == np.uint8 else 2
        (columns, depth), rows = self.q.shape, len(self.a)
        self.numbers = [rows, depth, columns, self.bits, self.block, kind, int(self.fast)]

    @property
    def operands(self) -> list[np.ndarray | None]:
        """As MatMulNBits has them."""
        columns, depth = self.q.shape
        blocks = -(-depth // self.block)
        q = np.pad(self.q, ((0, 0), (0, blocks * self.block - depth)), constant_values=(1 << self.bits) - 1)
        zeros = self.zeros
        packed = pack_bits(zeros, self.bits) if zeros is not None and zeros.dtype == np.uint8 else zeros
        return [self.a, pack_bits(q.reshape(columns, blocks, -1), self.bits), self.scales, packed, self.bias]

    def expected(self) -> np.ndarray:
        return block_quantized.reference(self.operands, self.numbers, ())[0]


class Probe(FunctionProbe):
    def run(self, case: Case) -> np.ndarray:
        (columns, depth), rows = case.q.shape, len(case.a)
        blocks = -(-depth // case.block)
        a, weights, scales, zeros, bias = case.operands
        floats, halves = f"nbits_floats:{blocks}", are_halves(case.scales)
        scaled = f"nbits_halves:{blocks}" if halves else floats
        layout = floats if zeros is not None and zeros.dtype == np.float32 else f"nbits_zeros:{case.bits}:{blocks}"
        operands = [
            a, packed_array(weights, f"nbits:{case.bits}"), packed_array(scales, scaled),
            None if zeros is None else packed_array(zeros, layout), bias,
        ]  # fmt: skip
        y = np.full(rows * columns + 16, 77, np.float32)
        scratch = np.zeros((rows + 8) * blocks * (12 + case.block) + 32 * blocks * case.block + 64, np.uint8)
        self.call("probe_nbits", [*operands, y, scratch], [*case.numbers, int(halves)], case.processors)
        assert (y[-16:] == 77).all()
        return y[:-16].reshape(rows, columns)


@pytest.fixture(scope="module", params=BUILDS)
def probe(request, tmp_path_factory) -> Iterator[Probe]:
    found = Probe(built("nbits", BUILDS[request.param], tmp_path_factory.mktemp("nbits")))
    found.use_features(True)
    yield found


def random_case(seed: int, fast: bool = False) -> Case:
    """Any sizes, bits, blocks and zero points; depths that no block divides."""
    rng = np.random.default_rng([16, seed])
    bits, block = (2, 4, 8)[seed % 3], 16 << int(rng.integers(0, 5))
    rows = int(rng.choice([1, 1, 2, 3, 4, 5, 8, 9, 13, 40]))
    depth, columns = int(rng.integers(1, 600)), int(rng.integers(1, 90))
    blocks = -(-depth // block)
    q = rng.integers(0, 1 << bits, (columns, depth)).astype(np.uint8)
    scales = rng.uniform(-1, 1, (columns, blocks)).astype(np.float16 if seed % 2 else np.float32).astype(np.float32)
    zeros: list[np.ndarray | None] = [
        None, rng.integers(0, 1 << bits, scales.shape).astype(np.uint8),
        rng.uniform(0, 1 << bits, scales.shape).astype(np.float32),
    ]  # fmt: skip
    bias = rng.standard_normal(columns).astype(np.float32) if seed % 2 else None
    a = rng.standard_normal((rows, depth)).astype(np.float32)
    return Case(a, q, scales, bits, block, zeros[seed // 3 % 3], bias, fast, int(rng.integers(0, 5)))


def error(case: Case, got: np.ndarray) -> float:
    """The largest one, by the contract's measure but for the size of the terms, which may cancel."""
    wanted = case.expected()
    matrix = block_quantized.reference([np.abs(case.a), *case.operands[1:4], None], [*case.numbers[:6], 0], ())[0]
    return float(
        (np.abs(got - wanted) / (np.abs(wanted) + np.sqrt(np.mean(np.square(wanted))) + np.abs(matrix) / 8)).max()
    )


@pytest.mark.parametrize("fast", [False, True])
def test_products_are_those_of_float64(probe: Probe, fast: bool) -> None:
    for seed in range(72):
        case = random_case(seed, fast)
        assert error(case, probe.run(case)) < 3e-6, f"seed {seed}"


@pytest.mark.full
@pytest.mark.parametrize("fast", [False, True])
def test_many_products_are_those_of_float64(probe: Probe, fast: bool) -> None:
    for seed in range(1000, 11000):
        case = random_case(seed, fast)
        assert error(case, probe.run(case)) < 3e-6, f"seed {seed}"


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_integer_sums_of_a_block_are_exact(probe: Probe, bits: int) -> None:
    """Activations of 127 and -127 are their own bytes; a saturating product of bytes would stop at 32767."""
    most = (1 << bits) - 1
    for rows in (1, 3, 9):
        for sign in (1, -1):
            a = np.full((rows, 512), 127 * sign, np.float32)
            a[:, 5] = 100
            q = np.full((37, 512), most, np.uint8)
            for zeros in (None, np.zeros((37, 2), np.uint8), np.full((37, 2), most, np.uint8)):
                case = Case(a, q, np.ones((37, 2), np.float32), bits, 256, zeros, fast=True)
                np.testing.assert_array_equal(probe.run(case), case.expected().astype(np.float32))


@pytest.mark.parametrize("rows", [1, 4, 20])
def test_results_do_not_depend_on_tasks(probe: Probe, rows: int) -> None:
    for fast in (False, True):
        case = random_case(10, fast)
        case = Case(np.resize(case.a, (rows, case.q.shape[1])), case.q, case.scales, case.bits, case.block, fast=fast)
        first = probe.run(case)
        for processors in (0, 2, 5):
            case.processors = processors
            np.testing.assert_array_equal(probe.run(case), first)


def test_infinite_and_absent_numbers_stay_in_their_rows(probe: Probe) -> None:
    case = random_case(8)
    case = Case(np.ones((2, case.q.shape[1]), np.float32), case.q, np.ones_like(case.scales), case.bits, case.block)
    case.a[0, 3], case.a[1, 3] = np.nan, np.inf
    got = probe.run(case)
    column = case.q[:, 3].astype(int) - (1 << (case.bits - 1))
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1], np.where(column == 0, np.nan, np.sign(column) * np.inf))


def test_panels_have_four_k_side_by_side() -> None:
    numbers = np.random.default_rng(0).integers(0, 16, (20, 2, 32)).astype(np.uint8)
    panels = packed_array(pack_bits(numbers, 4), "nbits:4")
    assert panels.shape == (2, 2, 4, 64)
    word = panels[1, 0, 2, 3 * 4 : 4 * 4]  # column 19, k from 16 to 23
    assert (word & 15).tolist() == numbers[19, 0, 16:20].tolist()
    assert (word >> 4).tolist() == numbers[19, 0, 20:24].tolist()
    assert not panels[1, :, :, 4 * 4 :].any()


def test_bits_survive_a_round_trip() -> None:
    for bits in (2, 4, 8):
        numbers = np.random.default_rng(bits).integers(0, 1 << bits, (3, 16)).astype(np.uint8)
        np.testing.assert_array_equal(unpack_bits(pack_bits(numbers, bits), bits), numbers)
