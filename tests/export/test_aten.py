"""Every family of the table gives what eager PyTorch gives: values, dtypes, shapes."""

# ruff: noqa: E501  # a case per line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from exported_programs import assert_same


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


X, Y, ROW = floats(3, 4), floats(3, 4) + 0.1, floats(4)
CUBE = floats(2, 3, 4)
INTS = torch.tensor([[-7, -2, 3], [5, 0, 8]])
SMALL = torch.tensor([[3, -2, 3], [5, 1, -8]])
FLAGS = torch.tensor([[True, False, True], [False, False, True]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add promotes": (lambda x, i: x[:2, :3] + i, (X, INTS)),
    "add alpha": (lambda x, y: torch.add(x, y, alpha=2.5), (X, Y)),
    "add of bool and int": (lambda b, i: b + i, (FLAGS, INTS)),
    "add of bools": (lambda b: b + b, (FLAGS,)),
    "mul by number": (lambda x: x * 3, (X,)),
    "int times float number": (lambda i: i * 1.5, (INTS,)),
    "0-d double does not widen": (lambda x, s: x * s, (X, torch.tensor(2.0, dtype=torch.float64))),
    "rsub": (lambda x: 3 - x, (X,)),
    "integer true divide": (lambda i, j: i / j, (INTS, SMALL)),
    "floor divide of ints": (lambda i, j: i // j, (INTS, SMALL)),
    "floor divide of floats": (lambda x, y: x // y, (X, Y)),
    "divide trunc": (lambda i, j: torch.div(i, j, rounding_mode="trunc"), (INTS, SMALL)),
    "divide trunc of floats": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X, Y)),
    "remainder of ints": (lambda i, j: i % j, (INTS, SMALL)),
    "remainder of floats": (lambda x, y: x % y, (X, Y)),
    "fmod": (lambda x, y: torch.fmod(x, y), (X, Y)),
    "pow": (lambda x, y: x.abs() ** y, (X, Y)),
    "pow of a number": (lambda x: 2.0**x, (X,)),
    "square, cube, root": (lambda x: (x**2, x**3, x.abs() ** 0.5, x**-1), (X,)),
    "int power": (lambda i: (i**2, i**0, i**7, i**70), (INTS,)),
    "int power of a number": (lambda i: (2 ** i.abs(), 3 ** (i.abs() * 9)), (INTS,)),
    "int power of ints": (lambda i, j: (i**j, j**i, (i[:, :1] ** j[0]), i[:0] ** j[:0]), (INTS, SMALL)),
    "int power below and at zero": (lambda i, j: i[:, None] ** j, (torch.tensor([-2, -1, 0, 1, 2]), torch.arange(-3, 4))),
    "powers of small integers": (lambda i, j: i.to(torch.uint8) ** j.to(torch.uint8).abs(), (INTS, SMALL)),
    "int power that wraps around": (lambda i, j: i**j, (INTS * 1000003, SMALL.abs() + 64)),
    "comparisons": (lambda x, y: (x > y, x <= 0, x == y, x != 1, x >= y, x < 2), (X, Y)),
    "compare int with float number": (lambda i: i > 2.5, (INTS,)),
    "logic": (lambda b, i: (b & (i > 0), b | (i > 0), ~b, torch.logical_xor(b, i > 0), torch.logical_and(i, b)), (FLAGS, INTS)),
    "bits": (lambda i, j: (i & j, i | j, i ^ j, ~i), (INTS, SMALL)),
    "unary": (lambda x: (x.sin(), x.cos(), x.exp(), x.tanh(), x.sigmoid(), x.erf(), x.abs(), x.neg(), x.sign()), (X,)),
    "unary of ints": (lambda i: (i.sin(), i.exp(), torch.sqrt(i.abs()), i.abs()), (INTS,)),
    "logs": (lambda x: (x.log1p(), x.expm1(), x.log2(), x.log10(), x.exp2()), (X.abs() * 1e-3,)),
    "rsqrt, reciprocal": (lambda x: (x.abs().rsqrt(), x.reciprocal()), (X,)),
    "atan2": (lambda x, y: torch.atan2(x, y), (X, Y)),
    "rounding": (lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), torch.round(x, decimals=1)), (X * 3,)),
    "rounding of ints": (lambda i: (i.floor(), i.round()), (INTS,)),
    "extremes": (lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y)), (X, Y)),
    "clamp": (lambda x, y: (x.clamp(-1, 1), x.clamp(min=0), torch.clamp(x, y, y + 1), x.clamp_max(0.5)), (X, Y)),
    "clamp of ints": (lambda i: (i.clamp(-3, 4), i.clamp(min=0)), (INTS,)),
    "where": (lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), torch.where(x > 0, 1, x)), (X, Y)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, float("-inf")), (X,)),
    "inf and nan": (lambda x: (x.isinf(), x.isnan(), x.isfinite()), (torch.tensor([1.0, float("inf"), float("nan")]),)),
    "addcmul, addcdiv, lerp": (
        lambda x, y: (torch.addcmul(x, x, y, value=2), torch.addcdiv(x, x, y.abs() + 1), torch.lerp(x, y, 0.3), torch.lerp(x, y, x)),
        (X, Y),
    ),
    "activations": (
        lambda x: (F.relu(x), F.silu(x), F.mish(x), F.selu(x), F.hardswish(x), F.leaky_relu(x, 0.2), F.elu(x), F.celu(x)),
        (X,),
    ),
    "more activations": (
        lambda x: (F.softplus(x), F.softplus(x, 2, 1), F.hardtanh(x), F.relu6(x), F.hardshrink(x), F.softshrink(x), F.logsigmoid(x), F.glu(x)),
        (X * 2,),
    ),
    "gelu": (lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), (X,)),
    "softmax": (lambda x: (x.softmax(-1), x.log_softmax(0), x.softmax(1)), (X,)),
    "prelu": (lambda x, w: F.prelu(x, w), (CUBE, floats(3))),
    "views": (lambda x: (x.view(-1, 6), x.reshape(2, 12), x.flatten(1), x.unsqueeze(1).squeeze(1), x.unflatten(2, (2, 2))), (CUBE,)),
    "transposes": (lambda x: (x.transpose(0, 2), x.permute(1, 2, 0), x.mT, x.movedim(0, -1)), (CUBE,)),
    "t": (lambda x: x.t(), (X,)),
    "expand": (lambda r: (r.expand(3, 4), r.unsqueeze(0).expand(3, -1), r.expand(2, 1, 4)), (ROW,)),
    "cat and stack": (lambda x, i: (torch.cat([x, x], 1), torch.stack([x, x], 1), torch.cat([x[:2, :3], i], 0)), (X, INTS)),
    "slices": (lambda x: (x[1:], x[:, :-1], x[:, ::2], x[-2:, 1:3], x[0], x[:, -1], x.narrow(1, 1, 2)), (X,)),
    "splits": (lambda x: (*x.split(2, 1), *x.chunk(3, 0), *x.unbind(1), *x.split([1, 3], 1)), (X,)),
    "flip, roll, repeat": (lambda x: (x.flip(0, 1), x.roll(1, 1), x.roll(2), x.repeat(2, 1, 3), x.tile(2)), (X,)),
    "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 1), value=2.0)), (X,)),
    "diagonal": (lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-1)), (X,)),
    "unfold": (lambda x: x.unfold(1, 2, 1), (X,)),
    "casts": (lambda x: (x.to(torch.int32), x.double(), x.bool(), x.half().float(), x.to(torch.int8)), (X * 5,)),
    "creation": (
        lambda x: (torch.zeros_like(x), torch.ones(2, 3), torch.full((2,), 7), torch.full_like(x, 2), x.new_zeros(3), torch.arange(5), torch.arange(1, 2, 0.25), torch.eye(3)),
        (X,),
    ),
    "sizes as tensors": (lambda x: (torch.arange(x.size(0)), torch.zeros(x.size(1), 2), torch.full((x.size(0),), 1.5)), (X,)),
    "triangles": (lambda x: (x.tril(), x.triu(1)), (X,)),
    "reductions": (
        lambda x: (x.sum(), x.sum(1), x.mean((0, 1)), x.mean(-1, keepdim=True), x.amax(1), x.amin(), x.prod(), x.prod(0), x.max(), x.min()),
        (X,),
    ),
    "integer reductions": (lambda i: (i.sum(), i.sum(0), i.prod(), i.amax(0), i.float().mean()), (INTS,)),
    "bool reductions": (lambda b: (b.any(), b.all(), b.any(1), b.all(0, keepdim=True), b.sum(), b.count_nonzero()), (FLAGS,)),
    "indices of extremes": (lambda x: (x.argmax(), x.argmin(1), *x.max(1), *x.min(0, keepdim=True)), (X,)),
    "scans": (lambda x, i: (x.cumsum(1), i.cumsum(0)), (X, INTS)),
    "variance": (lambda x: (x.var(), x.std(1), x.var(1, unbiased=False), *torch.var_mean(x, 0)), (X,)),
    "norms": (lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, 1), torch.linalg.vector_norm(x, float("inf")), torch.linalg.vector_norm(x, 3, 0)), (X,)),
    "logsumexp": (lambda x: (x.logsumexp(1), x.logsumexp((0, 1), keepdim=True)), (X,)),
    "products": (lambda x, y, r: (x @ y.t(), x @ r, torch.mm(x, y.t()), torch.outer(r, r), torch.dot(r, r)), (X, Y, ROW)),
    "batched products": (lambda c: (torch.bmm(c, c.mT), torch.baddbmm(c @ c.mT, c, c.mT, beta=0.5, alpha=2)), (CUBE,)),
    "addmm": (lambda x, y: (torch.addmm(x[:, :3], x, y.t()), torch.addmm(x[:, :3], x, y.t(), beta=2, alpha=0.5)), (X, Y)),
    "linear": (lambda x, c, w, b: (F.linear(x, w, b), F.linear(c, w, b), F.linear(c, w)), (X, CUBE, floats(5, 4), floats(5))),
    "int8 arithmetic wraps": (lambda i: i + i, (torch.tensor([100, -100, 3], dtype=torch.int8),)),
    "0-d": (lambda s: (s + 1, s.softmax(0), s.sum(), s.argmax()), (torch.tensor(2.0),)),
    "zero size": (lambda x: (x[:0] + 1, x[:0].sum(), x[:0].any()), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_exported_program_gives_what_eager_gives(name: str):
    function, inputs = CASES[name]
    assert_same(function, *inputs)
