"""Families of the table that want sizes known beforehand give what eager PyTorch gives."""

# ruff: noqa: E501  # a case per line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from exported_programs import run, traced

import smelt
from smelt.base import ExportError
from smelt.export import ExportOptions, translate


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


X, Y, CUBE = floats(3, 4), floats(3, 4) + 0.1, floats(2, 3, 4)
PIXELS = torch.randint(-9, 9, (2, 4, 7, 6), generator=torch.Generator().manual_seed(0))
SQUARES = floats(2, 4, 4) + 2 * torch.eye(4)
HUGE = torch.tensor([[[1 << 62, 3, (1 << 53) + 1, 1]]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "convolution of ints": (lambda i, w, b: (F.conv2d(i, w, b, stride=2, padding=1, groups=2), F.conv2d(i, w, dilation=2, groups=2)), (PIXELS, PIXELS[:, :2, 1:4, 1:4].repeat(3, 1, 1, 1), torch.arange(6))),
    "transposed convolution of ints": (lambda i, w: F.conv_transpose2d(i, w, stride=3, padding=1, output_padding=2, groups=2), (PIXELS, PIXELS[0, :, :3, :2].reshape(4, 1, 3, 2))),
    "sums of ints wrap and are exact": (lambda i, w: F.conv1d(i, w), (HUGE, HUGE[:, :, :2])),
    "maxima of ints": (lambda i: F.max_pool2d(i, 3, 2, 1, return_indices=True), (PIXELS,)),
    "averages of ints": (lambda i: (F.avg_pool2d(i, 3, 2, 1, ceil_mode=True), F.avg_pool2d(i, 2, count_include_pad=False, divisor_override=3)), (PIXELS,)),
    "volumes on a grid": (lambda x, g: F.grid_sample(x, g, align_corners=False), (floats(1, 2, 3, 4, 5), floats(1, 2, 2, 2, 3).clamp(-1.2, 1.2))),
    "histogram": (lambda x: (*torch.histogram(x, 5), *torch.histogram(x, 4, range=(-1.0, 0.5), density=True)), (X,)),
    "histogram by edges": (lambda x, e, w: torch.histogram(x, e, weight=w), (X, torch.tensor([-2.0, -0.5, 0.1, 0.1, 3.0]), Y)),
    "histogram of points": (lambda x: torch.histogramdd(x, [2, 3])[0], (CUBE[..., :2],)),
    "segments": (lambda x, n, o: (torch.segment_reduce(x, "mean", lengths=n), torch.segment_reduce(x, "max", offsets=o, initial=0.5)), (X, torch.tensor([1, 0, 2]), torch.tensor([0, 2, 3]))),
    "inverses": (lambda a: torch.linalg.inv_ex(a), (SQUARES,)),
    "a singular matrix has no inverse": (lambda a: torch.linalg.inv_ex(a)[1], (torch.tensor([[1.0, 2.0], [2.0, 4.0]]),)),
    "LU": (lambda a: (*torch.linalg.lu(a), *torch.linalg.lu_factor_ex(a)), (floats(2, 5, 3),)),
    "LU of wide matrices": (lambda a: torch.linalg.lu(a), (floats(3, 5),)),
    "systems by LU": (lambda f, p, b: (torch.linalg.lu_solve(f, p, b), torch.linalg.lu_solve(f, p, b.mT, left=False, adjoint=True)), (*torch.linalg.lu_factor(SQUARES), floats(2, 4, 3))),
    "unpacked LU": (lambda f, p: torch.lu_unpack(f, p), torch.linalg.lu_factor(SQUARES)),
    "triangles": (lambda a, b: (torch.linalg.solve_triangular(a, b, upper=True), torch.linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True)), (SQUARES, floats(2, 4, 3))),
    "Cholesky": (lambda a: (*torch.linalg.cholesky_ex(a), *torch.linalg.cholesky_ex(a, upper=True)), (SQUARES @ SQUARES.mT,)),
    "a matrix that is not positive": (lambda a: torch.linalg.cholesky_ex(a)[1], (torch.tensor([[1.0, 0.0], [0.0, -4.0]]),)),
    "systems by Cholesky": (lambda f, b: (torch.cholesky_solve(b, f), torch.cholesky_inverse(f)), (torch.linalg.cholesky(SQUARES @ SQUARES.mT), floats(2, 4, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_fixed_sizes_gives_what_eager_gives(name: str):
    function, inputs = CASES[name]
    expected = function(*inputs)
    found = run(translate(traced(function, *inputs, mode="fake"), options=ExportOptions(standalone=True)), inputs)
    for a, b in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_matrices_stay_with_torch_where_it_is_there_and_large_ones_anyway():
    small, large = (traced(lambda a: torch.linalg.inv_ex(a)[0], floats(n, n), mode="fake") for n in (4, 33))
    with pytest.raises(ExportError, match="torch's own kernel is faster"):
        translate(small)
    with pytest.raises(ExportError, match="above 32"):
        translate(large, options=ExportOptions(standalone=True))


class Geometry(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spd = a @ a.mT
        sign, size = torch.linalg.slogdet(a)
        return (torch.inverse(a) @ b, torch.linalg.det(a), sign, size, torch.logdet(spd), torch.linalg.solve(a, b),
                torch.linalg.cholesky(spd), torch.linalg.solve(a, b.mT, left=False))  # fmt: skip


def test_a_model_with_small_matrices_is_exported():
    model, a, b = Geometry(), SQUARES, floats(2, 4, 3)
    with torch.no_grad():
        found, expected = smelt.export(model, (a, b)).run(a, b), model(a, b)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
