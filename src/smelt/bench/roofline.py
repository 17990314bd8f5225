"""The machine's limits, measured in the run that they are compared with.

Input: a number of threads. Output: `Limits`. Invariant: the loops are compiled by the toolchain for the CPU level that
the kernels use; the best of several tries counts, since a limit is what the machine can do, not what it does on
average.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base import Config
from smelt.base.features import features_of
from smelt.base.target import host_features, host_level
from smelt.ir.records import Source, Unit
from smelt.toolchain import Cache, build, find_compiler

Array = np.ndarray[Any, Any]
_DRAM_BYTES: Final = 256 << 20
_CACHED_BYTES: Final = 3 << 20
_FMA_STEPS: Final = 5_000_000
_TRIES: Final = 5


@dataclass(frozen=True)
class Limits:
    """Flops per second of multiply-adds in float32, and bytes per second; `cached` is for arrays of 3 MB in and out.
    `dots` are operations per second in exact sums of products of bytes, 0 where no such instruction is known; `bf16`
    flops in sums of products of bfloat16."""

    threads: int
    fma: float
    read: float
    copy: float
    cached_copy: float
    dots: float = 0.0
    bf16: float = 0.0

    def best(self, other: Limits) -> Limits:
        """The higher of each."""
        return Limits(
            self.threads,
            max(self.fma, other.fma),
            max(self.read, other.read),
            max(self.copy, other.copy),
            max(self.cached_copy, other.cached_copy),
            max(self.dots, other.dots),
            max(self.bf16, other.bf16),
        )

    def __str__(self) -> str:
        rates = f"{self.fma / 1e9:.0f} GFLOP/s, memory read {self.read / 1e9:.1f} GB/s, copy {self.copy / 1e9:.1f} GB/s"
        rates += f", 8-bit {self.dots / 1e9:.0f} GOP/s" if self.dots else ""
        rates += f", bfloat16 {self.bf16 / 1e9:.0f} GFLOP/s" if self.bf16 else ""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads}: {rates}, copy in cache {self.cached_copy / 1e9:.0f} GB/s"


def measure_limits(threads: int, config: Config) -> Limits:
    """Raises NoCompilerError where there is no compiler."""
    library = _library(config)
    with ThreadPoolExecutor(threads) as pool:
        team = _Team(pool, threads)
        big, small = _pairs(threads, _DRAM_BYTES), _pairs(threads, _CACHED_BYTES)
        return Limits(
            threads,
            team.rate(_fma_flops(library), lambda _: library.limit_fma(ctypes.c_int64(_FMA_STEPS))),
            team.rate(_bytes(big[:1]), lambda i: _call(library.limit_read, big[i][1])),
            team.rate(2 * _bytes(big[:1]), lambda i: _call(library.limit_copy, *big[i])),
            team.rate(60 * _bytes(small[:1]), lambda i: [_call(library.limit_copy, *small[i]) for _ in range(30)]),
            team.rate(_dot_ops(library), lambda _: library.limit_dots(ctypes.c_int64(_FMA_STEPS), _dot_features())),
            team.rate(_bf16_flops(library), lambda _: library.limit_bf16(ctypes.c_int64(_FMA_STEPS), _has_bf16())),
        )


class _Team:
    """Threads that do the same at once."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int) -> None:
        self.pool, self.threads = pool, threads

    def rate(self, each: float, work: Callable[[int], object]) -> float:
        """The best of some tries at doing `work` in every thread, in units per second of the threads' own time.

        What other processes take from a thread is no limit of the machine.
        """

        def timed(place: int) -> float:
            started = time.thread_time()
            work(place)
            return each / max(time.thread_time() - started, 1e-9)

        return max(sum(self.pool.map(timed, range(self.threads))) for _ in range(_TRIES))


def _fma_flops(library: Any) -> float:
    return _FMA_STEPS * 24.0 * int(library.limit_lanes())


def _dot_ops(library: Any) -> float:
    return _FMA_STEPS * 24.0 * int(library.limit_dot_bytes())


def _bf16_flops(library: Any) -> float:
    return _FMA_STEPS * 48.0 * int(library.limit_bf16_lanes()) * _has_bf16()


def _has_bf16() -> bool:
    return "avx512bf16" in features_of(host_features())


def _dot_features() -> int:
    found = features_of(host_features())
    return ("avx512vnni" in found) | ("avxvnni" in found) << 1


def _pairs(threads: int, total_bytes: int) -> list[tuple[Array, Array]]:
    floats = total_bytes // 4 // 2 // threads
    return [(np.ones(floats, np.float32), np.ones(floats, np.float32)) for _ in range(threads)]


def _bytes(pairs: list[tuple[Array, Array]]) -> float:
    return float(sum(source.nbytes for _, source in pairs))


def _call(function: Any, *arrays: Array) -> None:
    function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays), ctypes.c_int64(arrays[-1].size))


@lru_cache(maxsize=4)
def _library(config: Config) -> Any:
    level = host_level()
    if level is None:
        raise RuntimeError("this CPU is below every level that code is made for")
    text = (Path(__file__).parent / "roofline.c").read_text(encoding="utf-8")
    source = Source((Unit("roofline", text),), ())
    built = build(source, (level,), find_compiler(config), Cache(config.cache_dir), config)
    library = ctypes.CDLL(str(built.path))
    for name in ("limit_fma", "limit_read", "limit_copy"):
        getattr(library, name).restype = ctypes.c_float
    for name in ("limit_lanes", "limit_dots", "limit_dot_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    return library
