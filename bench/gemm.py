"""Measures gemm.h alone against the FMA peak and the memory bandwidth.

Input: nothing but the machine. Output: one table per question. Invariant: every product is timed right between two
measurements of the peak by the same threads, milliseconds apart, so that clock and neighbours are the same for both.

On a virtual machine another guest may run on the other hardware thread of a core. The core then issues about half as
many instructions, which costs a matrix product more than a loop of nothing but multiply-adds. No-ops are counted
around every product, and rounds in which the cores were alone are told from those in which they were shared.

Products whose right operand changes from call to call, as in training, are timed in turns with torch.mm, which needs
torch: the forward product of a linear layer and the two of its gradients.

    python bench/gemm.py [--rounds 60] [--levels v3,v4] [--cc gcc] [--only compute]
"""

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smelt.codegen.c import pack

ROOT = Path(__file__).parent.parent
FLAGS = ["-std=gnu11", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-g0"]
LEVELS = {"v2": ("x86-64-v2", 16), "v3": ("x86-64-v3", 32), "v4": ("x86-64-v4", 64)}
SHAPES = [(128, k, n) for k, n in ((768, 768), (768, 3072), (3072, 768), (1024, 2816), (128, 512), (512, 128))]
WEIGHT_BYTES = 320 << 20
ALONE = 3.9  # no-ops a cycle above which a core is alone
SHARED = 3.6


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
        for name in ("bench_read", "bench_one", "bench_unpacked"):
            getattr(self.library, name).restype = ctypes.c_double

    def call(self, name: str, *args: object) -> float:
        values = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else ctypes.c_int64(x) for x in args]
        return getattr(self.library, name)(*values)

    def one(self, a: np.ndarray, weights: np.ndarray, copies: int, c: np.ndarray) -> float:
        """Seconds of a product, over all copies of the weights."""
        m, k, n = a.shape[0], a.shape[1], c.shape[1]
        return self.call("bench_one", a, weights, copies, c, m, n, k, copies)

    def unpacked(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, sets: int, threads: int) -> float:
        """Seconds of a product of operands where they lie; the first axis of B and C counts sets of them."""
        a_steps, b_steps = [s // 4 for s in a.strides], [s // 4 for s in (*b.strides[1:], b.strides[0])]
        sizes = a.shape[0], b.shape[2], a.shape[1]
        return self.call("bench_unpacked", a, *a_steps, b, *b_steps, c, *sizes, sets, sets, threads)

    def team(self, a: np.ndarray, weights: np.ndarray, c: np.ndarray, rounds: int, threads: int) -> np.ndarray:
        """Per round: share of the peak, flops a second, the peak, no-ops a cycle."""
        out = np.zeros((rounds, 4))
        m, k, n = a.shape[0], a.shape[1], c.shape[1]
        self.call("bench_team", a, weights, len(weights), c, m, n, k, rounds, threads, out)
        return out[1:]


def aligned(shape: Sequence[int]) -> np.ndarray:
    """Room on a page boundary, where an artifact's weights and ONNX Runtime's buffers start as well."""
    size = int(np.prod(shape)) * 4
    room = np.empty(size + 4096, np.uint8)
    start = -room.ctypes.data % 4096
    return room[start : start + size].view(np.float32).reshape(shape)


def operands(m: int, k: int, n: int, copies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, packed sets of weights, room for C."""
    rng = np.random.default_rng(0)
    a, weights, c = aligned((m, k)), aligned((copies, *pack.packed_shape((k, n)))), aligned((m, n))
    a[...] = rng.standard_normal((m, k), np.float32)
    weights[...] = pack.pack(rng.standard_normal((k, n), np.float32))
    return a, weights, c


def spell(shares: np.ndarray) -> str:
    """Median and upper quartile of some rounds, and how many there were."""
    if len(shares) < 3:
        return f"{'-':>6} {'-':>6} {len(shares):4}"
    return f"{np.median(shares):6.1%} {np.quantile(shares, 0.75):6.1%} {len(shares):4}"


def compute_table(benches: list[Bench], rounds: int) -> None:
    """Share of the FMA peak: weights in cache, and weights that come from memory as in a model."""
    print(
        "share of the FMA peak of the same milliseconds: median, upper quartile, rounds\n"
        f"{'M,K,N':14} level threads weights   {'all rounds':20} {'cores alone':20} {'cores shared':20} GFLOP/s   peak"
    )
    for m, k, n in SHAPES:
        streamed = -(-WEIGHT_BYTES // (k * n * 4))
        a, weights, c = operands(m, k, n, streamed)
        for bench in benches:
            for threads in (1, 2):
                for about, sets in (("cached", weights[:1]), ("memory", weights)):
                    found = bench.team(a, sets, c, rounds, threads)
                    share, wide = found[:, 0], found[:, 3]
                    kinds = [spell(part) for part in (share, share[wide > ALONE], share[wide < SHARED])]
                    rates = f"{np.median(found[:, 1]) / 1e9:7.0f} {np.median(found[:, 2]) / 1e9:6.0f}"
                    name = f"{m},{k},{n}"
                    print(f"{name:14} {bench.level:5} {threads:7} {about:9} {'   '.join(kinds)} {rates}", flush=True)


def bandwidth_table(benches: list[Bench], rounds: int) -> None:
    """GB/s of weights for a few rows, over more weights than caches hold, against a plain read of the same memory."""
    print("\nrotating weights   M,K,N        level   GB/s  read GB/s  of read")
    for k, n in ((768, 3072), (4096, 4096)):
        copies = -(-WEIGHT_BYTES // (k * n * 4))
        _, weights, _ = operands(1, k, n, copies)
        for m in (1, 2, 4):
            a, c = np.ones((m, k), np.float32), np.empty((m, n), np.float32)
            for bench in benches:
                samples = []
                for _ in range(max(3, rounds // 8)):
                    read = weights.nbytes / bench.call("bench_read", weights, weights.size)
                    ours = k * n * 4 / bench.one(a, weights, copies, c)
                    samples.append((ours, read, ours / read))
                speed, read, share = (statistics.median(s[i] for s in samples) for i in range(3))
                rates = f"{speed / 1e9:7.2f} {read / 1e9:9.2f} {share:9.1%}"
                print(f"{'':18}{f'{m},{k},{n}':14} {bench.level:>3} {rates}", flush=True)


def training_table(benches: list[Bench], rounds: int) -> None:
    """Speed of products with run-time operands against torch.mm's; weights come from memory."""
    import torch

    print(f"\n{'product':9} {'in,out':10} level threads  GFLOP/s torch.mm  ratio")
    for inner, outer in ((768, 768), (768, 3072), (3072, 768)):
        sets = -(-WEIGHT_BYTES // (8 * inner * outer))
        weights, gradients = torch.randn(sets, outer, inner), torch.empty(sets, outer, inner)
        x, dy = torch.randn(128, inner), torch.randn(128, outer)
        products = {
            "forward": (x, weights.transpose(1, 2), torch.empty(sets, 128, outer)),
            "input": (dy, weights, torch.empty(sets, 128, inner)),
            "weight": (dy.t(), x.expand(sets, *x.shape), gradients),
        }
        for name, (a, b, c) in products.items():
            for bench in benches:
                for threads in (1, 2):
                    ours, theirs = _against_torch(bench, (a, b, c), rounds // 6, threads)
                    flops, ratio = 2e-9 * 128 * inner * outer, statistics.median(map(float.__truediv__, theirs, ours))
                    rates = "  ".join(f"{flops / statistics.median(times):7.0f}" for times in (ours, theirs))
                    print(
                        f"{name:9} {f'{inner},{outer}':10} {bench.level:5} {threads:7}  {rates}  {ratio:5.2f}",
                        flush=True,
                    )


def _against_torch(bench: Bench, product: Sequence["torch.Tensor"], rounds: int, threads: int) -> tuple[list, list]:  # noqa: F821
    """Seconds of a product, round by round, in turns."""
    import torch

    torch.set_num_threads(threads)
    a, b, c = product
    arrays = [x.numpy() for x in product]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(max(3, rounds)):
        ours.append(bench.unpacked(*arrays, len(c), threads))
        started = time.perf_counter()
        for place in range(len(c)):
            torch.mm(a, b[place], out=c[place])
        theirs.append((time.perf_counter() - started) / len(c))
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--levels", default="v3,v4")
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--only", choices=("compute", "bandwidth", "training"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        benches = [Bench(level, options.cc, Path(folder)) for level in options.levels.split(",")]
        if options.only in (None, "compute"):
            compute_table(benches, options.rounds)
        if options.only in (None, "bandwidth"):
            bandwidth_table(benches, options.rounds)
        if options.only in (None, "training"):
            training_table(benches, options.rounds)


if __name__ == "__main__":
    main()
