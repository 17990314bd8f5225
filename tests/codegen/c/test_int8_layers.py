"""8-bit convolutions, depthwise ones and products of rows against numpy in int64, on every CPU level at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.codegen.c.function_probe import BUILDS, FunctionProbe, built, runs_here

from smelt.codegen.c.layout.int8_panels import CHANNELS, NR, int8_panels, layer_panel_bytes
from smelt.codegen.c.layout.int8_reference import reference

TYPES = (np.uint8, np.int8)
KINDS = {"i32": np.int32, "f32": np.float32, "u8": np.uint8, "i8": np.int8}


@dataclass
class Case:
    """A layer: x in NHWC, weights (M, C, KH, KW); `result` names the type of the result."""

    x: np.ndarray
    w: np.ndarray
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    after: tuple[int, int] = (0, 0)
    groups: int = 1
    result: str = "i32"
    x_zero: np.ndarray | None = None
    w_zero: np.ndarray | None = None
    x_scale: np.ndarray | None = None
    w_scale: np.ndarray | None = None
    bias: np.ndarray | None = None
    bias_scale: np.ndarray | None = None
    y_scale: np.ndarray | None = None
    y_zero: np.ndarray | None = None
    residual: np.ndarray | None = None
    r_scale: np.ndarray | None = None
    r_zero: np.ndarray | None = None
    z_scale: np.ndarray | None = None
    z_zero: np.ndarray | None = None
    shift: np.ndarray | None = None
    second_scale: np.ndarray | None = None
    second_zero: np.ndarray | None = None
    table: np.ndarray | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)
    nchw: bool = False
    processors: int = 1

    @property
    def depthwise(self) -> bool:
        return self.groups == self.x.shape[3] == self.w.shape[0] > 1 and self.w.shape[1] == 1

    @property
    def layout(self) -> str:
        if self.depthwise:
            return "int8:depthwise"
        return "int8:lines" if self.nchw or self.x.shape[3] // self.groups % 4 else f"int8:taps:{self.groups}"

    @property
    def out(self) -> tuple[int, int]:
        return tuple(
            (n + b + a - d * (k - 1) - 1) // s + 1
            for n, b, a, d, k, s in zip(
                self.x.shape[1:3], self.before, self.after, self.dilation, self.w.shape[2:], self.stride, strict=True
            )
        )

    def sums(self) -> np.ndarray:
        """From the weights as they are, tap by tap."""
        left = self.x.astype(np.int64) - (0 if self.x_zero is None else int(self.x_zero[0]))
        zeros = np.zeros(1, np.int64) if self.w_zero is None else self.w_zero.astype(np.int64)
        right = self.w.astype(np.int64) - zeros.reshape(-1, 1, 1, 1)
        (high, wide), (sh, sw), (dh, dw) = self.out, self.stride, self.dilation
        padded = np.pad(left, ((0, 0), *zip(self.before, self.after, strict=True), (0, 0)))
        total = np.zeros((len(left), high, wide, len(right)), np.int64)
        each, depth = len(right) // self.groups, right.shape[1]
        for i in range(right.shape[2]):
            for j in range(right.shape[3]):
                seen = padded[:, i * dh :: sh, j * dw :: sw][:, :high, :wide]
                for g in range(self.groups):
                    channels, columns = slice(g * depth, (g + 1) * depth), slice(g * each, (g + 1) * each)
                    total[..., columns] += seen[..., channels] @ right[columns, :, i, j].T
        return total

    def arrays(self) -> list[np.ndarray | None]:
        x = np.ascontiguousarray(self.x.transpose(0, 3, 1, 2)) if self.nchw else self.x
        return [
            x, int8_panels(self.w, self.layout), self.x_scale, self.x_zero, self.w_scale, self.w_zero, self.bias,
            self.bias_scale, self.y_scale, self.y_zero, self.residual, self.r_scale, self.r_zero, self.z_scale,
            self.z_zero, self.shift, self.second_scale, self.second_zero, self.table,
        ]  # fmt: skip

    def numbers(self) -> list[int]:
        rows, groups = len(self.w), 1 if self.depthwise else self.groups
        windows = [*self.w.shape[2:], *self.stride, *self.dilation, *self.before]
        signed = [int(of.dtype == np.int8) for of in (self.x, self.w)]
        counts = [1 if of is None else of.size for of in (self.w_scale, self.w_zero, self.bias, self.bias_scale)]
        kind = list(KINDS).index(self.result)
        step = layer_panel_bytes(self.w.shape, self.layout)
        signed_residual = int(self.residual is not None and self.residual.dtype == np.int8)
        return [
            *self.x.shape, *self.out, rows // groups, groups, *windows, int(self.layout == "int8:lines"), *signed, step,
            kind, *counts, signed_residual, int(self.nchw), 1 if self.shift is None else self.shift.size,
        ]  # fmt: skip

    def factors(self) -> list[float]:
        return [*self.limits, -math.inf, math.inf]


class Probe(FunctionProbe):
    def run(self, case: Case) -> np.ndarray:
        numbers, shape = case.numbers(), (len(case.x), *case.out, len(case.w))
        y = np.full(math.prod(shape) + 64, 77, KINDS[case.result])
        padded = -(-len(case.w) // CHANNELS) * CHANNELS * NR * max(case.groups, 1)
        image = (case.x.shape[1] + 32) * (case.x.shape[2] + 32) * case.x.shape[3] * len(case.x)
        scratch = np.zeros((padded + case.w.size + image + 4096) * 4, np.uint8)
        scratch = scratch[-scratch.ctypes.data % 64 :]
        name = "probe_depthwise" if case.depthwise else "probe_conv"
        self.call(name, [*case.arrays(), y, scratch], numbers, case.processors, case.factors())
        assert (y[-64:] == 77).all()
        return y[:-64].reshape(shape)


@pytest.fixture(scope="module", params=BUILDS)
def library(request, tmp_path_factory) -> Path:
    return built("int8_layer", BUILDS[request.param], tmp_path_factory.mktemp("int8"))


@pytest.fixture(scope="module", params=["all-features", "of-the-build"])
def probe(request, library: Path) -> Iterator[Probe]:
    found = Probe(library)
    found.use_features(request.param == "all-features")
    yield found


def whole(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def random_case(seed: int) -> Case:
    """Any sizes, strides, dilations, padding, groups, types and zero points."""
    rng = np.random.default_rng([16, seed])
    left, right = TYPES[seed % 2], TYPES[seed // 2 % 2]
    kernel = tuple(int(k) for k in rng.integers(1, 6, 2)) if seed % 3 else (1, 1)
    dilation = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
    before, after = (tuple(int(p) for p in rng.integers(0, 3, 2)) for _ in range(2))
    stride = tuple(int(s) for s in rng.integers(1, 4, 2))
    size = [int(rng.integers(1, 9)) + d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    form, groups, nchw = seed % 5, 1, False
    channels, rows = int(rng.integers(1, 12)) * 4, int(rng.integers(1, 70))
    if form == 1:  # depthwise
        groups = rows = channels = int(rng.integers(2, 150))
    elif form == 2:  # lines of the kernel, from either order
        channels, dilation, nchw = int(rng.integers(1, 8)), (dilation[0], 1), seed % 2 == 1
    elif form == 3:
        groups = int(rng.integers(2, 4))
        channels, rows = groups * 4 * int(rng.integers(1, 4)), groups * 4 * int(rng.integers(1, 6))
    x = whole(rng, left, int(rng.integers(1, 3)), *size, channels)
    w = whole(rng, right, rows, channels // groups, *kernel)
    if seed % 7 == 0:  # small enough for products of bytes
        w = (w.astype(np.int16) // 2 + (64 if right is np.uint8 else 0)).astype(right)
    x_zero = whole(rng, left, 1) if seed % 4 else None
    w_zero = whole(rng, right, (1, rows)[seed % 2]) if seed // 2 % 3 == 1 else None
    return Case(x, w, stride, dilation, before, after, groups, "i32", x_zero, w_zero, nchw=nchw,
                processors=int(rng.integers(1, 5)))  # fmt: skip


def scaled_case(seed: int, result: str) -> Case:
    """The same with scales, bias, limits, a residual, a second quantization and a table."""
    case = random_case(seed)
    rng = np.random.default_rng([17, seed])
    rows, size = len(case.w), float(np.abs(case.sums()).max() or 1)
    case.result = result
    case.x_scale = rng.uniform(0.01, 0.1, 1).astype(np.float32)
    case.w_scale = rng.uniform(0.001, 0.01, (1, rows)[seed % 2]).astype(np.float32)
    if seed % 3 == 1:
        case.bias = rng.uniform(-1, 1, rows).astype(np.float32)
    elif seed % 3 == 2:
        case.bias = rng.integers(-int(size), int(size) + 1, rows).astype(np.int32)
        case.bias_scale = case.x_scale * case.w_scale if seed % 2 else np.float32([0.003])
    if seed % 4 == 0:
        case.limits = (0.0, float(size * case.x_scale[0] * 0.002))
    if result in ("u8", "i8"):
        case.y_scale = np.float32([size * float(case.x_scale[0]) * 0.005 / 100])
        case.y_zero = whole(rng, KINDS[result], 1)
        if seed % 5 in (0, 4) and seed % 2:
            case.residual = whole(rng, TYPES[seed // 2 % 2], len(case.x), *case.out, rows)
            case.r_scale, case.r_zero = np.float32([0.03]), whole(rng, case.residual.dtype, 1)
            case.z_scale, case.z_zero = np.float32([float(case.y_scale[0]) * 1.7]), whole(rng, KINDS[result], 1)
        if seed % 3 == 0 and not case.depthwise:
            case.shift = (rng.uniform(-20, 20, (1, rows)[seed % 2]) * case.y_scale[0]).astype(np.float32)
            case.second_scale, case.second_zero = case.y_scale * np.float32(1.3), whole(rng, KINDS[result], 1)
        if seed % 4 == 1 and not case.depthwise:
            case.table = ~np.arange(256, dtype=np.uint8)
    return case


def check_sums(probe: Probe, case: Case, message: str) -> None:
    expected = case.sums().astype(np.int32)
    np.testing.assert_array_equal(probe.run(case), expected, err_msg=message)
    np.testing.assert_array_equal(reference(case.arrays(), case.numbers(), case.factors())[0], expected)


def test_sums_are_those_of_int64(probe: Probe) -> None:
    for seed in range(60):
        check_sums(probe, random_case(seed), f"seed {seed}")


@pytest.mark.full
def test_many_sums_are_those_of_int64(probe: Probe) -> None:
    for seed in range(1000, 21000):
        check_sums(probe, random_case(seed), f"seed {seed}")


@pytest.mark.parametrize("result", ["f32", "u8", "i8"])
def test_results_are_those_of_separate_steps(probe: Probe, result: str) -> None:
    """Quantized results may be one step off where the number lies at a tie."""
    for seed in range(30):
        case = scaled_case(seed, result)
        expected = reference(case.arrays(), case.numbers(), case.factors())[0]
        got = probe.run(case)
        if result == "f32":
            size = float(np.abs(expected).max(initial=0.0))
            np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-6 * size, err_msg=f"seed {seed}")
            continue
        apart = np.abs(got.astype(int) - expected.astype(int))
        assert apart.max(initial=0) <= 1, f"seed {seed}"
        assert apart.mean() <= 1e-3 + 1 / apart.size, f"seed {seed}"


@pytest.mark.parametrize("groups", [1, 2])
def test_taps_of_many_channels(probe: Probe, groups: int) -> None:
    """Tiles within a line are read in place, those at borders and ends of lines are copied; columns end in a panel."""
    for seed in range(8):
        rng = np.random.default_rng([18, seed])
        left, right, wide = TYPES[seed % 2], TYPES[seed // 2 % 2], 34 + 3 * seed
        x, w = whole(rng, left, 2, 6, wide, 64 * groups), whole(rng, right, 44 * groups, 64, 3, 3)
        padding = (seed % 3 % 2, seed % 3)
        case = Case(x, w, (1, 1 + seed // 4), (1 + seed % 2, 1), padding, padding, groups, processors=1 + seed % 3)
        case.x_zero = whole(rng, left, 1)
        case.w_zero = whole(rng, right, 44 * groups) if seed % 3 == 1 else None
        check_sums(probe, case, f"seed {seed}")


def test_extremes_do_not_saturate(probe: Probe) -> None:
    """255 * -128 twice is beyond int16, where a product of bytes that saturates stops."""
    for depthwise in (False, True):
        for left in TYPES:
            for right in TYPES:
                for a in (np.iinfo(left).min, np.iinfo(left).max):
                    for b in (np.iinfo(right).min, np.iinfo(right).max):
                        x = np.full((1, 4, 5, 64), a, left)
                        w = np.full((64, 1, 3, 3) if depthwise else (17, 64, 3, 3), b, right)
                        zero = np.array([np.iinfo(left).max if a < 1 else np.iinfo(left).min], left)
                        case = Case(x, w, groups=64 if depthwise else 1, x_zero=zero)
                        check_sums(probe, case, f"{left} {right} {a} {b}")


def test_all_levels_quantize_alike(tmp_path: Path) -> None:
    """The same bytes at every width of vectors, ties included."""
    results: list[list[bytes]] = []
    for build in filter(runs_here, BUILDS.values()):
        made = Probe(built("int8_layer", build, tmp_path))
        for features in (True, False):
            made.use_features(features)
            results.append([made.run(scaled_case(seed, "u8")).tobytes() for seed in range(15)])
    assert all(other == results[0] for other in results[1:])
