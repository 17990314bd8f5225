"""gemm.h and pack.py against float64 products: every row count, ragged columns, any depth, every CPU level at hand."""

import ctypes
import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import smelt
from smelt.codegen.c.layout import pack

HERE = Path(__file__).parent
INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
FLAGS = ["-std=gnu11", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-g0", *WARNINGS]
SENTINEL = np.float32(-12345.0)


@dataclass(frozen=True)
class Level:
    name: str
    march: str
    vector_bytes: int
    needs: frozenset[str]


LEVELS = (
    Level("v2", "x86-64-v2", 16, frozenset({"sse4_2"})),
    Level("v3", "x86-64-v3", 32, frozenset({"avx2", "fma"})),
    Level("v4", "x86-64-v4", 64, frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq"})),
    Level("v4-source-on-v3", "x86-64-v3", 64, frozenset({"avx2", "fma"})),
)


@functools.cache
def cpu_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def compilers() -> list[list[str]]:
    found = [[name] for name in ("gcc", "clang") if shutil.which(name)]
    return found or ([[sys.executable, "-m", "ziglang", "cc"]] if importlib.util.find_spec("ziglang") else [])


def c_value(argument: object) -> object:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_int64(argument) if isinstance(argument, int) else argument


class Gemm:
    """A compiled probe: the functions of gemm.h with numpy in and out."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.probe_workspace.restype = ctypes.c_int64
        self.library.probe_micro_rows.restype = ctypes.c_int64
        self.library.probe_part.restype = ctypes.c_int64

    def call(self, name: str, *args: object) -> int:
        return getattr(self.library, name)(*(c_value(x) for x in args))

    def run(self, a, packed, n_valid, c, p0=0, p1=None, workspace=True, col=0) -> None:
        """C[:, col:] = the columns of panels p0..p1-1."""
        m, depth = a.shape
        rows, cols = (s // 4 for s in a.strides)
        room = np.empty(self.call("probe_workspace", m), np.float32) if workspace else None
        panels = packed.shape[0] if p1 is None else p1
        target = c[:, col:]
        self.call("probe_gemm", a, rows, cols, packed, depth, target, c.strides[0] // 4, m, p0, panels, n_valid, room)

    def product(self, a, b, workspace=True):
        c = np.full((a.shape[0], b.shape[1]), SENTINEL, np.float32)
        self.run(a, pack.pack(b), b.shape[1], c, workspace=workspace)
        return c


@pytest.fixture(scope="module", params=LEVELS, ids=lambda level: level.name)
def gemm(request, tmp_path_factory) -> Iterator[Gemm]:
    level: Level = request.param
    if not level.needs <= cpu_flags():
        pytest.skip(f"this CPU has no {level.name}")
    if not compilers():
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("gemm") / f"{level.name}.so"
    build(compilers()[0], level, path)
    yield Gemm(path)


def build(compiler: list[str], level: Level, path: Path, *extra: str) -> None:
    arch = level.march.replace("x86-64", "x86_64").replace("-v", "_v") if "ziglang" in compiler else level.march
    source = [f"-march={arch}", f"-DSMELT_VL={level.vector_bytes}", f"-I{INCLUDE}", str(HERE / "gemm_probe.c")]
    wide = ["-mprefer-vector-width=512"] if level.march.endswith("v4") else []
    subprocess.run([*compiler, *FLAGS, *wide, *source, "-shared", *extra, "-o", str(path)], check=True)


def matrices(m: int, n: int, depth: int, seed: int = 0):
    random = np.random.default_rng([seed, m, n, depth])
    return (
        random.standard_normal((m, depth), dtype=np.float32),
        random.standard_normal((depth, n), dtype=np.float32),
    )


def assert_close(c, a, b) -> None:
    reference = a.astype(np.float64) @ b.astype(np.float64)
    # A chain of fp32 multiply-adds is off by at most depth * eps times the product of magnitudes.
    bound = (np.abs(a).astype(np.float64) @ np.abs(b)) * max(1, min(a.shape[1], 640)) * 2.0**-24
    assert np.all(np.abs(c - reference) <= bound + 1e-30)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 17, 768])
@pytest.mark.parametrize("n", [1, 5, 16, 17, 33, 100])
def test_product_is_right_for_every_row_count(gemm: Gemm, n: int, depth: int) -> None:
    for m in range(1, 41):
        a, b = matrices(m, n, depth)
        assert_close(gemm.product(a, b), a, b)


LARGER = [(1, 1000, 300), (2, 300, 513), (3, 272, 257), (4, 144, 1030), (300, 90, 600), (130, 300, 1024)]


@pytest.mark.parametrize(("m", "n", "depth"), LARGER)
def test_larger_products_are_right(gemm: Gemm, m: int, n: int, depth: int) -> None:
    a, b = matrices(m, n, depth)
    for workspace in (False, True):
        assert_close(gemm.product(a, b, workspace), a, b)


@pytest.mark.parametrize(("m", "n", "depth"), [(150, 70, 1700), (1, 40, 3072), (7, 100, 600), (20, 33, 5)])
def test_a_product_part_by_part_has_the_bits_of_the_whole(gemm: Gemm, m: int, n: int, depth: int) -> None:
    a, b = matrices(m, n, depth)
    c = np.full((m, n), SENTINEL, np.float32)
    gemm.call("probe_parts", a, pack.pack(b), depth, c, m, n)
    assert np.array_equal(c, gemm.product(a, b))
    if depth > 1000:
        assert 0 < gemm.call("probe_part", depth) < depth


def test_bits_depend_neither_on_row_blocking_nor_on_panel_ranges_nor_on_the_workspace(gemm: Gemm) -> None:
    m, n, depth = 37, 200, 700
    a, b = matrices(m, n, depth)
    packed = pack.pack(b)
    whole = gemm.product(a, b)
    assert np.array_equal(whole, gemm.product(a, b, workspace=False))
    for rows in range(1, 20):
        parts = [gemm.product(a[i : i + rows], b) for i in range(0, m, rows)]
        assert np.array_equal(whole, np.concatenate(parts))
    for panels in (1, 2, 3, 5):
        c = np.full_like(whole, SENTINEL)
        for p in range(0, packed.shape[0], panels):
            gemm.run(a, packed, n, c, p, min(p + panels, packed.shape[0]), col=16 * p)
        assert np.array_equal(whole, c)


@pytest.mark.parametrize("m", [1, 3, 7, 29])
@pytest.mark.parametrize("n", [5, 16, 39])
def test_nothing_is_written_outside_the_valid_block(gemm: Gemm, m: int, n: int) -> None:
    a, b = matrices(m, n, 300)
    c = np.full((m + 2, n + 7), SENTINEL, np.float32)
    gemm.run(a, pack.pack(b), n, c[1:-1, 3:])
    assert_close(c[1 : m + 1, 3 : 3 + n], a, b)
    outside = np.ones(c.shape, bool)
    outside[1 : m + 1, 3 : 3 + n] = False
    assert np.all(c[outside] == SENTINEL)


def test_padded_buffers_get_whole_panels(gemm: Gemm) -> None:
    a, b = matrices(9, 20, 50)
    c = np.full((9, 32), SENTINEL, np.float32)
    gemm.run(a, pack.pack(b), 32, c)
    assert_close(c[:, :20], a, b)
    assert np.all(c[:, 20:] == 0)


@pytest.mark.parametrize("m", [1, 2, 5, 14, 31, 150])
@pytest.mark.parametrize("slices", [(slice(None, None, 2), slice(None)), (slice(None), slice(None, None, 3))])
def test_strided_and_transposed_a(gemm: Gemm, m: int, slices: tuple[slice, slice]) -> None:
    a, b = matrices(2 * m, 40, 3 * 270)
    view = a[slices][:m, :270]
    assert np.array_equal(gemm.product(view, b[:270]), gemm.product(view.copy(), b[:270]))
    transposed = np.asfortranarray(view)
    assert np.array_equal(gemm.product(transposed, b[:270]), gemm.product(view.copy(), b[:270]))


def layouts() -> list[Callable[[np.ndarray], np.ndarray]]:
    return [lambda b: b, np.asfortranarray, lambda b: np.repeat(np.repeat(b, 2, 0), 3, 1)[::2, ::3]]


@pytest.mark.parametrize("layout", layouts(), ids=["row-major", "transposed", "strided"])
@pytest.mark.parametrize("depth", [0, 1, 4, 7, 66])
@pytest.mark.parametrize("n", [1, 4, 16, 19, 50])
def test_packing_at_run_time_equals_packing_ahead(gemm: Gemm, n: int, depth: int, layout) -> None:
    b = layout(matrices(1, n, depth)[1])
    expected = pack.pack(b)
    packed = np.full(expected.size + 16, SENTINEL, np.float32)
    for p in range(expected.shape[0]):
        gemm.call("probe_pack_b", b, b.strides[0] // 4, b.strides[1] // 4, depth, n, packed, p, p + 1)
    assert np.array_equal(packed[: expected.size].reshape(expected.shape), expected)
    assert np.all(packed[expected.size :] == SENTINEL)


def unpacked(gemm: Gemm, a, b, c, p0: int = 0, p1: int | None = None) -> None:
    """c[:, 16 * p0:] = the columns of panels p0..p1-1 of a @ b, both where they lie."""
    steps = [[s // 4 for s in x.strides] for x in (a, b)]
    panels = -(-b.shape[1] // 16) if p1 is None else p1
    target = c[:, 16 * p0 :]
    sizes = a.shape[0], p0, panels, b.shape[1]
    gemm.call("probe_unpacked", a, *steps[0], b, *steps[1], a.shape[1], target, c.strides[0] // 4, *sizes)


LYING = [(5, 1, 3), (6, 16, 0), (7, 19, 66), (13, 64, 130), (128, 200, 300), (150, 70, 1030), (300, 40, 129)]


@pytest.mark.parametrize("turn", [np.ascontiguousarray, np.asfortranarray], ids=["row-major", "transposed"])
@pytest.mark.parametrize("layout", layouts(), ids=["row-major", "transposed", "strided"])
@pytest.mark.parametrize(("m", "n", "depth"), LYING)
def test_operands_where_they_lie_give_the_bits_of_packed_ones(gemm: Gemm, m, n, depth, layout, turn) -> None:
    a, b = matrices(m, n, depth)
    whole = np.full((m + 2, n + 7), SENTINEL, np.float32)
    unpacked(gemm, turn(a), layout(b), whole[1:-1, 3 : 3 + n])
    assert np.array_equal(whole[1:-1, 3 : 3 + n], gemm.product(a, b))
    outside = np.ones(whole.shape, bool)
    outside[1:-1, 3 : 3 + n] = False
    assert np.all(whole[outside] == SENTINEL)


@pytest.mark.parametrize("off", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(("m", "n", "depth"), [(150, 992, 128), (301, 1000, 64), (80, 992, 129)])
def test_large_results_past_the_caches_have_the_same_bits(gemm: Gemm, m: int, n: int, depth: int, off: int) -> None:
    a, b = matrices(m, n, depth)
    memory = np.full((m + 2) * 1024 + 32, SENTINEL, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + off
    whole = memory[start : start + (m + 2) * 1024].reshape(m + 2, 1024)
    unpacked(gemm, np.asfortranarray(a), b, whole[1:-1, 16 : 16 + n])
    assert np.array_equal(whole[1:-1, 16 : 16 + n], gemm.product(a, b))
    whole[1:-1, 16 : 16 + n] = SENTINEL
    assert np.all(memory == SENTINEL)


@pytest.mark.parametrize(("m", "n", "depth"), [(5, 40, 9), (128, 768, 768), (768, 768, 128), (900, 100, 64), (7, 0, 3)])
def test_the_plan_for_unpacked_operands_covers_the_product(gemm: Gemm, m: int, n: int, depth: int) -> None:
    plan = np.zeros(4, np.int64)
    gemm.call("probe_unpacked_plan", m, n, depth, plan)
    rows, panels, row_tasks, panel_tasks = (int(x) for x in plan)
    assert rows * row_tasks >= m > rows * (row_tasks - 1)
    assert panels * panel_tasks >= -(-n // 16) > panels * (panel_tasks - 1) or (n == 0 and panel_tasks == 1)
    a, b = matrices(m, n, depth)
    c = np.full((m, n), SENTINEL, np.float32)
    for first in range(0, m, rows):
        for p0 in range(0, -(-n // 16), panels):
            unpacked(gemm, a[first : first + rows], b, c[first : first + rows], p0, min(p0 + panels, -(-n // 16)))
    assert np.array_equal(c, gemm.product(a, b))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [1, 2, 5, 13])
def test_nan_and_infinity_spread_exactly_as_in_the_reference(gemm: Gemm, m: int, special: float) -> None:
    a, b = matrices(m, 37, 300)
    a[m // 2, 299] = special
    b[7, 30] = special
    b[8, 31] = 0
    with np.errstate(invalid="ignore"):
        reference = a.astype(np.float64) @ b.astype(np.float64)
    c = gemm.product(a, b)
    assert np.array_equal(np.isnan(c), np.isnan(reference))
    assert np.array_equal(c[np.isinf(reference)], reference[np.isinf(reference)])
    assert np.array_equal(np.isinf(c), np.isinf(reference))


PLANNED = [
    (1, 1, 1), (0, 5, 5), (1, 3072, 768), (3, 3072, 768), (128, 768, 768), (5000, 64, 64), (4096, 4096, 4096),
    (3, 40, 9), (10**6, 16, 4), (200_000, 512, 512), (128, 50_000, 768), (7, 0, 3), (30, 700, 0),
]  # fmt: skip


@pytest.mark.parametrize("threads", [0, 1, 2, 8, 64])
@pytest.mark.parametrize("whole_rows", [0, 1])
@pytest.mark.parametrize(("m", "n", "depth"), PLANNED)
def test_plan_covers_the_product_with_tasks_worth_handing_out(gemm: Gemm, m, n, depth, threads, whole_rows) -> None:
    plan = np.zeros(4, np.int64)
    gemm.call("probe_plan", m, n, depth, threads, whole_rows, plan)
    rows, panels, row_tasks, panel_tasks = (int(x) for x in plan)
    assert rows * row_tasks >= m > rows * (row_tasks - 1) or (m == 0 and row_tasks == 1)
    assert panels * panel_tasks >= -(-n // 16) > panels * (panel_tasks - 1) or (n == 0 and panel_tasks == 1)
    assert not whole_rows or panel_tasks == 1
    assert threads != 1 or panel_tasks == 1
    if row_tasks * panel_tasks > 1:
        assert rows * panels * 16 * depth >= 40_000
    if threads > 1 and m * n * depth > 10_000_000 and m >= 128:
        assert row_tasks * panel_tasks >= threads
    if m * n * depth > 10**9:
        assert rows <= 144


def test_every_compiler_gives_the_same_bits(tmp_path: Path) -> None:
    level = LEVELS[1]
    if len(compilers()) < 2 or not level.needs <= cpu_flags():
        pytest.skip("needs two compilers and AVX2")
    a, b = matrices(23, 70, 400)
    results = []
    for compiler in compilers():
        path = tmp_path / f"{Path(compiler[0]).name}.so"
        build(compiler, level, path)
        results.append(Gemm(path).product(a, b))
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize(
    "target", ["aarch64-linux-gnu -DSMELT_VL=16", "x86_64-linux-gnu -march=x86_64_v3 -DSMELT_VL=32"]
)
def test_cross_builds_need_no_libc_headers(target: str, tmp_path: Path) -> None:
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("needs the ziglang wheel")
    zig = [sys.executable, "-m", "ziglang", "cc", "-nostdlib", "-shared", "-target", *target.split()]
    source = [f"-I{INCLUDE}", str(HERE / "gemm_probe.c"), "-o", str(tmp_path / "probe.so")]
    subprocess.run([*zig, *FLAGS, *source], check=True)


@pytest.mark.full
def test_aarch64_build_is_right_under_emulation(tmp_path: Path) -> None:
    if not shutil.which("qemu-aarch64") or not importlib.util.find_spec("ziglang"):
        pytest.skip("needs qemu-aarch64 and the ziglang wheel")
    program = tmp_path / "probe"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    flags = [*FLAGS, "-DSMELT_VL=16", "-DPROBE_MAIN", f"-I{INCLUDE}"]
    subprocess.run([*zig, *flags, str(HERE / "gemm_probe.c"), "-o", str(program)], check=True)
    cases = [(m, n, depth) for m in (1, 2, 3, 4, 6, 7, 15) for n in (5, 16, 33, 100) for depth in (1, 17, 300)]
    inputs = [matrices(*case) for case in cases]
    sizes = [np.array(case, np.int64).tobytes() for case in cases]
    records = [size + a.tobytes() + pack.pack(b).tobytes() for size, (a, b) in zip(sizes, inputs, strict=True)]
    run = subprocess.run(["qemu-aarch64", str(program)], input=b"".join(records), capture_output=True, check=True)
    values, position = np.frombuffer(run.stdout, np.float32), 0
    for (m, n, _), (a, b) in zip(cases, inputs, strict=True):
        assert_close(values[position : position + m * n].reshape(m, n), a, b)
        position += m * n
    assert position == values.size


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 16), (7, 33), (2, 3, 40), (5, 0)])
def test_pack_round_trips_and_pads_with_zeros(shape: tuple[int, ...]) -> None:
    b = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    packed = pack.pack(b)
    assert packed.shape == pack.packed_shape(shape)
    assert np.array_equal(pack.unpack(packed, shape[-1]), b)
    assert np.count_nonzero(packed) == np.count_nonzero(b)


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1 << 20])
def test_streamed_packing_gives_the_same_bytes(chunk_bytes: int) -> None:
    b = np.random.default_rng(2).standard_normal((2, 9, 85), dtype=np.float32)
    streamed = b"".join(piece.tobytes() for piece in pack.iter_packed(b, chunk_bytes))
    assert streamed == pack.pack(b).tobytes()


def test_pack_reads_transposed_views_and_refuses_other_types() -> None:
    b = np.random.default_rng(3).standard_normal((20, 9), dtype=np.float32)
    assert np.array_equal(pack.pack(b.T), pack.pack(b.T.copy()))
    with pytest.raises(ValueError, match="float64"):
        pack.pack(b.astype(np.float64))
