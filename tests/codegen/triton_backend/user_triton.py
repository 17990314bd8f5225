"""Triton kernels as users write them, with launchers and references, for the tests of `smelt.kernel(triton=...)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language import exp as exponential

SHIFT = tl.constexpr(1.0)
NUMBER = 2.0


@triton.jit
def shifted(x):
    return x + SHIFT


@triton.jit
def softmax_kernel(x, y, n, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, mask=c < n, other=float("-inf")).to(tl.float32) * scale
    e = exponential(v - tl.max(v, 0))
    tl.store(y + row * n + c, e / tl.sum(e, 0), mask=c < n)


def softmax(x: Any, scale: float = 1.0) -> Any:
    y = torch.empty_like(x)
    n = x.shape[-1]
    softmax_kernel[(x.numel() // n,)](x, y, n, scale, BLOCK=triton.next_power_of_2(n))
    return y


def softmax_reference(x: Any, scale: float = 1.0) -> Any:
    e = np.exp(x * scale - (x * scale).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


SOFTMAX_C = """
void softmax(const float *x, float *y, int64_t n, float scale) {
  float top = -INFINITY, total = 0;
  for (int64_t i = 0; i < n; i++) top = fmaxf(top, x[i] * scale);
  for (int64_t i = 0; i < n; i++) total += expf(x[i] * scale - top);
  for (int64_t i = 0; i < n; i++) y[i] = expf(x[i] * scale - top) / total;
}
"""


@triton.jit
def tile_kernel(x, y, rows, columns, down, BLOCK: tl.constexpr):
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (r < rows) & (c < columns)
    v = shifted(tl.load(x + r * down + c, mask=inside, other=0.0))
    tl.store(y + c * rows + r, v, mask=inside)


def transposed_twice(x: Any) -> Any:
    """Two launches by a grid of two axes, with memory between them."""
    rows, columns = x.shape
    between = torch.empty((columns, rows), dtype=x.dtype, device=x.device)
    y = torch.empty_like(x)
    tile_kernel[lambda meta: (triton.cdiv(columns, meta["BLOCK"]), triton.cdiv(rows, meta["BLOCK"]))](
        x, between, rows, columns, x.stride(0), BLOCK=16
    )
    grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 16))
    tile_kernel[grid](between, y, columns, rows, between.stride(0), BLOCK=16, num_warps=2)
    return y


@triton.jit
def split_kernel(x, top, bottom, n, BLOCK: tl.constexpr, KIND: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(top + i, v > 0, mask=i < n)
    tl.store(bottom + i, v.to(KIND), mask=i < n)


def split(x: Any) -> Any:
    """Two results, of other types."""
    top = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    bottom = x.new_empty(x.shape, dtype=torch.int32)
    split_kernel[(triton.cdiv(x.numel(), 128),)](x.view(-1), top, bottom, x.numel(), 128, KIND=tl.int32)
    return top, bottom


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def doubled_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def doubled(x: Any) -> Any:
    y = torch.empty_like(x)
    doubled_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


@triton.jit
def beyond_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n + 1)


@triton.jit
def over_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(x + i, v + 1, mask=i < n)
    tl.store(y + i, v, mask=i < n)


@triton.jit
def read_beyond_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i + 1, mask=i < n), mask=i < n)


@triton.jit
def unknown_function(x):
    y = x + 1
    return tl.no_such_function(y)


@triton.jit
def broken_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, unknown_function(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def number_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * NUMBER, mask=i < n)


@triton.jit
def large_kernel(x, y, n, BLOCK: tl.constexpr):
    r, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(x + r * BLOCK + c, mask=r * BLOCK + c < n, other=0.0)
    tl.store(y + r * BLOCK + c, tl.dot(a, a, input_precision="ieee"), mask=r * BLOCK + c < n)


def launching(kernel: Any, block: int = 64) -> Any:
    """A launcher of one program."""

    def launch(x: Any) -> Any:
        y = torch.empty_like(x)
        kernel[(1,)](x, y, x.numel(), BLOCK=block)
        return y

    return launch


@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def even_kernel(x, y, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y + i, tl.load(x + i))
    else:
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def evenly(block: int) -> Any:
    def launch(x: Any) -> Any:
        y = torch.empty_like(x)
        even_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
        return y

    return launch
