"""Measures gemm.h against the FMA peak, ONNX Runtime's MatMul and the memory bandwidth, all in the same rounds.

Input: nothing but the machine. Output: one table per question. Invariant: everything compared is timed in interleaved
rounds, and a ratio is the median of the rounds' own ratios, so a noisy neighbour hits both sides. "Quiet" is the best
decile: what the code does when nobody else has the core and its caches.

    python bench/gemm.py [--rounds 31] [--levels v3,v4] [--cc gcc] [--only compute]
"""

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from smelt.codegen.c import pack

ROOT = Path(__file__).parent.parent
FLAGS = ["-std=gnu11", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-g0"]
LEVELS = {"v2": ("x86-64-v2", 16), "v3": ("x86-64-v3", 32), "v4": ("x86-64-v4", 64)}
SHAPES = [(128, k, n) for k, n in ((768, 768), (768, 3072), (3072, 768), (1024, 2816), (128, 512), (512, 128))]
WEIGHT_BYTES = 320 << 20


class Bench:
    """The compiled loops of one CPU level."""

    def __init__(self, level: str, compiler: str, folder: Path) -> None:
        march, vector_bytes = LEVELS[level]
        path = folder / f"gemm_{level}.so"
        wide = ["-mprefer-vector-width=512"] if level == "v4" else []
        source = ["-shared", "-pthread", f"-I{ROOT}/src/smelt/codegen/c/include", str(ROOT / "bench" / "gemm_bench.c")]
        target = [f"-march={march}", f"-DSMELT_VL={vector_bytes}", *wide]
        subprocess.run([compiler, *FLAGS, *target, *source, "-o", str(path)], check=True)
        self.level = level
        self.library = ctypes.CDLL(str(path))
        for name in ("bench_peak", "bench_read", "bench_one", "bench_team"):
            getattr(self.library, name).restype = ctypes.c_double
        self.library.bench_workspace.restype = ctypes.c_int64
        self.workspace = np.empty(self.library.bench_workspace(), np.float32)

    def call(self, name: str, *args) -> float:
        values = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else ctypes.c_int64(x) for x in args]
        return getattr(self.library, name)(*values)

    def peak(self) -> float:
        return self.call("bench_peak", 50_000)

    def one(self, a, packed, c, repeats: int, copies: int = 1) -> float:
        n, k = c.shape[1], a.shape[1]
        return self.call("bench_one", a, packed, copies, c, a.shape[0], n, k, repeats, self.workspace)

    def team(self, a, packed, c, repeats: int, threads: int) -> tuple[float, float]:
        """Seconds on the wall, and of CPU by all threads together."""
        busy, sizes = np.zeros(1), (a.shape[0], c.shape[1], a.shape[1])
        return self.call("bench_team", a, packed, c, *sizes, repeats, threads, busy), float(busy[0])


def ort_matmul(b: np.ndarray, m: int, threads: int = 1) -> ort.InferenceSession:
    k, n = b.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "matmul",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [m, k])],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [m, n])],
        [numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


class OrtCall:
    """Repeated runs of one MatMul session with bound buffers."""

    def __init__(self, b: np.ndarray, a: np.ndarray, threads: int = 1) -> None:
        self.session = ort_matmul(b, a.shape[0], threads)
        self.binding = self.session.io_binding()
        self.a = ort.OrtValue.ortvalue_from_numpy(a)
        self.c = ort.OrtValue.ortvalue_from_numpy(np.empty((a.shape[0], b.shape[1]), np.float32))
        self.binding.bind_ortvalue_input("a", self.a)
        self.binding.bind_ortvalue_output("c", self.c)

    def wall(self, repeats: int) -> float:
        return self.seconds(repeats, time.perf_counter)

    def seconds(self, repeats: int, clock: Callable[[], float] = time.thread_time) -> float:
        """By default of this thread's own time, which is all there is when it works alone."""
        start = clock()
        for _ in range(repeats):
            self.session.run_with_iobinding(self.binding)
        return (clock() - start) / repeats


def aligned(source: np.ndarray) -> np.ndarray:
    """A copy on a page boundary, where an artifact's weights and ONNX Runtime's buffers start as well."""
    room = np.empty(source.nbytes + 4096, np.uint8)
    start = -room.ctypes.data % 4096
    copy = room[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
    copy[...] = source
    return copy


def median(values) -> float:
    return statistics.median(values)


def quiet(values) -> float:
    """The 90th percentile."""
    ordered = sorted(values)
    return ordered[int(0.9 * (len(ordered) - 1))]


def operands(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A, B, room for C, packed B."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    return aligned(a), b, aligned(np.empty((m, n), np.float32)), aligned(pack.pack(b))


def threads_table(benches: list[Bench], rounds: int) -> None:
    """Two threads: speed on the wall over one thread's, the same of ORT, and the CPU time of both over one thread's.

    Work near 1 means that sharing costs nothing; the wall shows it only when two cores are free.
    """
    print("\n2 threads    M,K,N          level  speedup   best  ORT speedup   best   work")
    for m, k, n in SHAPES:
        a, b, c, packed = operands(m, k, n)
        repeats = max(8, int(1e9 / (2.0 * m * n * k)))
        stock = [OrtCall(b, a, threads) for threads in (1, 2)]
        for bench in benches:
            samples = []
            for _ in range(rounds):
                alone = bench.team(a, packed, c, repeats, 1)
                both = bench.team(a, packed, c, repeats, 2)
                theirs = [call.wall(repeats) for call in stock]
                samples.append((alone[0] / both[0], theirs[0] / theirs[1], both[1] / alone[1]))
            ours, ort_speedup, work = ([s[i] for s in samples] for i in range(3))
            speedups = f"{median(ours):8.2f} {max(ours):6.2f} {median(ort_speedup):12.2f} {max(ort_speedup):6.2f}"
            print(f"{'':12}{f'{m},{k},{n}':14} {bench.level:>5} {speedups} {median(work):6.2f}", flush=True)


def compute_table(benches: list[Bench], rounds: int) -> None:
    """GFLOP/s, share of the FMA peak of the same rounds, speed relative to ORT (its call overhead taken off)."""
    idle = OrtCall(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32))
    print("\n1 thread     M,K,N       level  GFLOP/s  peak of peak  quiet  ORT GFLOP/s  of peak  quiet  vs ORT")
    for m, k, n in SHAPES:
        a, b, c, packed = operands(m, k, n)
        flops = 2.0 * m * n * k
        repeats = max(1, int(2e8 / flops))
        reference = OrtCall(b, a)
        rows: dict[str, list[tuple[float, float, float]]] = {bench.level: [] for bench in benches}
        for _ in range(rounds + 2):
            base = max(1e-9, reference.seconds(repeats) - idle.seconds(50))
            for bench in benches:
                before = bench.peak()
                ours = bench.one(a, packed, c, repeats)
                peak = max(before, bench.peak())
                rows[bench.level].append((flops / ours, peak, flops / base))
        for level, samples in rows.items():
            print_row(f"{m},{k},{n}", level, samples[2:])


def print_row(name: str, level: str, samples: list[tuple[float, float, float]]) -> None:
    speed, peak, stock = (median(s[i] for s in samples) / 1e9 for i in range(3))
    ours, theirs = [s[0] / s[1] for s in samples], [s[2] / s[1] for s in samples]
    ratio = median(s[0] / s[2] for s in samples)
    print(
        f"{'':12}{name:14} {level:>5} {speed:8.1f} {peak:5.0f} {median(ours):8.1%} {quiet(ours):6.1%}"
        f" {stock:12.1f} {median(theirs):8.1%} {quiet(theirs):6.1%} {ratio:6.2f}x",
        flush=True,
    )


def bandwidth_table(benches: list[Bench], rounds: int) -> None:
    """GB/s of weights for a few rows, over more weights than caches hold, against a plain read of the same memory."""
    print("\nrotating weights   M,K,N        level   GB/s  read GB/s  of read  vs 1-row ORT")
    for k, n in ((768, 3072), (4096, 4096)):
        copies = -(-WEIGHT_BYTES // (k * n * 4))
        weights = np.random.default_rng(0).standard_normal((copies, k, n), np.float32)
        packed = aligned(pack.pack(weights))
        sessions = [OrtCall(w, np.ones((1, k), np.float32)) for w in weights]
        for m in (1, 2, 4):
            a, c = np.ones((m, k), np.float32), np.empty((m, n), np.float32)
            for bench in benches:
                samples = []
                for _ in range(max(3, rounds // 3)):
                    read = packed.nbytes / bench.call("bench_read", packed, packed.size)
                    ours = k * n * 4 / bench.one(a, packed, c, copies, copies)
                    stock = k * n * 4 / (sum(s.seconds(1) for s in sessions) / copies)
                    samples.append((ours, read, ours / read, ours / stock))
                speed, read, share, ratio = (median(s[i] for s in samples) for i in range(4))
                rates = f"{speed / 1e9:7.2f} {read / 1e9:9.2f} {share:9.1%} {ratio:9.2f}x"
                print(f"{'':18}{f'{m},{k},{n}':14} {bench.level:>3} {rates}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--levels", default="v3,v4")
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--only", choices=("compute", "threads", "bandwidth"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        benches = [Bench(level, options.cc, Path(folder)) for level in options.levels.split(",")]
        if options.only in (None, "compute"):
            compute_table(benches, options.rounds)
        if options.only in (None, "threads"):
            threads_table(benches, max(3, options.rounds // 3))
        if options.only in (None, "bandwidth"):
            bandwidth_table(benches, options.rounds)


if __name__ == "__main__":
    main()
