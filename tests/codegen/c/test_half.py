"""half_gemm.h and the panels of 16-bit floats against numpy in float64, on every CPU level at hand."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import smelt
from smelt.base.target import host_features
from smelt.codegen.c.layout.formats import format_named, packed_array
from smelt.ir.kernel import ix

HERE = Path(__file__).parent
INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
FLAGS = ["-std=gnu11", "-O2", "-fwrapv", "-ffp-contract=fast", "-fPIC", "-shared", "-g0", "-w"]
BUILDS = {
    "v2": ("x86-64-v2", 16, "sse4_2", False),
    "v3": ("x86-64-v3", 32, "avx2", False),
    "v4": ("x86-64-v4", 64, "avx512bw", False),
    "v4-bf16": ("x86-64-v4", 64, "avx512_bf16", True),
    "v4-on-v3": ("x86-64-v3", 64, "avx2", False),
}
KINDS = ("bf16", "widened", "f16")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SIZES = [
    (1, 1, 1), (1, 700, 100), (2, 33, 16), (3, 129, 65), (4, 64, 130), (5, 257, 48), (7, 31, 20), (13, 600, 33),
    (48, 96, 64), (49, 1100, 17), (150, 130, 72), (97, 40, 200),
]  # fmt: skip


class Probe:
    def __init__(self, path: Path, dots: bool) -> None:
        self.library = ctypes.CDLL(str(path))
        self.dots = dots
        assert self.library.probe_dots(int(dots)) == int(dots)

    def rounds(self, kind: str) -> bool:
        return self.dots and kind == "bf16"

    def product(self, kind: str, a: np.ndarray, weights: np.ndarray, cuts: list[int], panels: list[int]) -> np.ndarray:
        """Term by term as `cuts` says, and panel by panel."""
        (rows, depth), columns = a.shape, weights.shape[1]
        packed = panels_of(kind, weights)
        y = np.full((rows, columns + 3), 77, np.float32)
        for p0, p1 in itertools.pairwise(panels):
            for k0, k1 in itertools.pairwise(cuts):
                numbers = [KINDS.index(kind), rows, depth, depth, columns + 3, p0, p1, columns, k0, k1 - k0]
                self.library.probe_product(numbers_of(numbers), at(a), at(packed), at(y[:, 16 * p0 :]))
        assert (y[:, columns:] == 77).all()
        return y[:, :columns]

    def epilogue(self, kind: str, a: np.ndarray, weights: np.ndarray, bias: np.ndarray, added: np.ndarray | None,
                 limits: tuple[float, float]) -> np.ndarray:  # fmt: skip
        (rows, depth), columns = a.shape, weights.shape[1]
        count = -(-columns // 16)
        y = np.full((rows, columns), 77, np.float32)
        block = np.zeros((rows, 16 * count), np.float32)
        numbers = [KINDS.index(kind), rows, depth, depth, 16 * count, 0, count, columns, 0, depth]
        floats = (ctypes.c_float(limits[0]), ctypes.c_float(limits[1]))
        more = (at(bias), None if added is None else at(added), at(y), ctypes.c_int64(columns), *floats)
        packed = panels_of(kind, weights)
        self.library.probe_epilogue(numbers_of(numbers), at(a), at(packed), at(block), *more)
        return y


def at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def numbers_of(numbers: list[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(numbers))(*numbers)


def panels_of(kind: str, weights: np.ndarray) -> np.ndarray:
    stored = weights.astype(np.float16) if kind == "f16" else weights.astype(BFLOAT16)
    return packed_array(stored, f"{'f16' if kind == 'f16' else 'bf16'}:plain")


def rounded(kind: str, x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16 if kind == "f16" else BFLOAT16).astype(np.float32)


def operands(rows: int, depth: int, columns: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([rows, depth, columns])
    weights = rng.standard_normal((depth, columns)).astype(np.float32)
    return rng.standard_normal((rows, depth)).astype(np.float32), rounded(kind, weights)


def wanted(probe: Probe, kind: str, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
    rows = rounded("bf16", a) if probe.rounds(kind) else a
    return rows.astype(np.float64) @ weights.astype(np.float64)


def error(got: np.ndarray, reference: np.ndarray) -> float:
    return float((np.abs(got - reference) / (np.abs(reference) + np.sqrt(np.mean(np.square(reference))))).max())


@pytest.fixture(scope="module", params=BUILDS)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    march, vector_bytes, needs, dots = BUILDS[request.param]
    if needs not in host_features() or shutil.which("gcc") is None:
        pytest.skip(f"no {request.param} here")
    path = tmp_path_factory.mktemp("half") / "probe.so"
    source = [f"-march={march}", f"-DSMELT_VL={vector_bytes}", f"-I{INCLUDE}", str(HERE / "half_probe.c")]
    subprocess.run(["gcc", *FLAGS, *source, "-o", str(path)], check=True)
    yield Probe(path, dots)


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_float64_over_the_rounded_operands(probe: Probe, kind: str) -> None:
    for size in SIZES:
        a, weights = operands(*size, kind)
        got = probe.product(kind, a, weights, [0, size[1]], [0, -(-size[2] // 16)])
        assert error(got, wanted(probe, kind, a, weights)) < 1e-5, size


@pytest.mark.parametrize("kind", KINDS)
def test_bits_depend_on_no_cut(probe: Probe, kind: str) -> None:
    for rows, depth, columns in [(1, 700, 100), (5, 1537, 130), (60, 2048, 72)]:
        a, weights = operands(rows, depth, columns, kind)
        count = -(-columns // 16)
        whole = probe.product(kind, a, weights, [0, depth], [0, count])
        # float32 GEMM cuts depth into even blocks; products are cut between them
        block = -(-depth // -(-depth // 128)) + 3 & ~3 if probe.rounds(kind) else depth
        cuts = [0, *range(block, depth, block), depth]
        parts = probe.product(kind, a, weights, cuts, [*range(count), count])
        np.testing.assert_array_equal(parts, whole)
        if rows > 4 or probe.rounds(kind):
            few = probe.product(kind, a[:1], weights, [0, depth], [0, count])
            np.testing.assert_array_equal(few, whole[:1])


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_epilogues_are_applied_once(probe: Probe, kind: str, added: bool) -> None:
    for size in SIZES:
        a, weights = operands(*size, kind)
        rng = np.random.default_rng(9)
        bias = rng.standard_normal(size[2]).astype(np.float32)
        other = rng.standard_normal((size[0], size[2])).astype(np.float32) if added else None
        got = probe.epilogue(kind, a, weights, bias, other, (-3.0, 8.0))
        sums = wanted(probe, kind, a, weights) + bias + (0 if other is None else other)
        assert np.abs(got - np.clip(sums, -3, 8)).max() < 1e-5 * (np.abs(sums).max() + 1), size


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_stay_in_their_rows(probe: Probe, kind: str) -> None:
    a, weights = operands(9, 65, 40, kind)
    a[2, 3], a[4, 64], a[6, 0] = np.nan, np.inf, 3.4e38
    got = probe.product(kind, a, weights, [0, 65], [0, 3])
    assert np.isnan(got[2]).all() and np.isinf(got[4]).all()
    clean = [0, 1, 3, 5, 7, 8]
    np.testing.assert_array_equal(got[clean], probe.product(kind, a[clean], weights, [0, 65], [0, 3]))


def test_panels_of_an_odd_depth_end_in_a_zero() -> None:
    weights = np.arange(1, 7, dtype=np.float32).reshape(3, 2).astype(BFLOAT16)
    packed = packed_array(weights, "bf16:plain")
    assert packed.shape == (1, 2, 32) == tuple(size.const for size in format_named("bf16:plain").shape((ix(3), ix(2))))
    np.testing.assert_array_equal(packed[0, :, :4].astype(np.float32), [[1, 3, 2, 4], [5, 0, 6, 0]])
