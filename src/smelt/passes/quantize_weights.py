"""Float32 weights of products -> weights of 4 or 8 bits in blocks, without data.

Input: a float32 model. Output: MatMul and Gemm with constant weights as MatMulNBits, and what that costs: the ratio of
signal to quantization noise of each matrix. Invariant: activations stay float32; small matrices and those with NaN or
infinities stay as they are; a block's scale is the best of a few in the mean of squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.narrowed import is_kept_wide
from smelt.ir.walk import model_graphs
from smelt.passes.block_quantized import Blocks, Product, product_of, replace_product
from smelt.passes.rewriter.surgery import Array, Names, tensor_of

BLOCKS: Final[Mapping[int, int]] = {8: 32, 4: 16}  # by bits
_LEAST: Final = 4096  # elements of a matrix that is worth it
_NARROWEST: Final = 32  # rows and columns of it
_SHRINKS: Final = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a block's range: outliers may be clipped
_REFITS: Final = 2  # least-squares scales for the numbers that were found
_DAMPING: Final = 0.01  # of the mean second moment
_LAZY: Final = 128  # k whose errors are taken from all others at once
_ROWS: Final = 512  # columns of a matrix that are quantized at a time


Moments = Mapping[str, Array]  # of the left operand, by the name of the node


@dataclass(frozen=True)
class Quantized:
    """One matrix: the node that multiplies by it and its ratio of signal to noise, in dB."""

    name: str
    elements: int
    sqnr: float


def quantize_weights(model: ir.Model, bits: int, moments: Moments | None = None) -> list[Quantized]:
    """Quantize all matrices of products in place; with error feedback where the `moments` of a node are known."""
    done: list[Quantized] = []
    names = Names(model)
    known: dict[tuple[ir.Value, bool], tuple[Blocks, list[ir.Value], float]] = {}
    for graph in model_graphs(model):
        for node in list(graph):
            product = None if is_kept_wide(node) else product_of(node)
            matrix = None if product is None else plain_matrix(product)
            if product is None or matrix is None:
                continue
            key = product.right, product.transposed
            if key not in known or known[key][1][0].graph is not graph:
                seen = (moments or {}).get(node.name or "")
                blocks = quantize(matrix, bits) if seen is None else with_feedback(matrix, bits, seen)
                known[key] = blocks, [], sqnr(matrix, blocks)
            blocks, held, ratio = known[key]
            done.append(Quantized(node.name or node.op_type, matrix.size, ratio))
            known[key] = blocks, replace_product(product, blocks, names, held), ratio
    return done


def weighted_products(model: ir.Model) -> dict[str, int]:
    """Products of the main graph whose matrices are worth it: K by the name of the node."""
    found = {node.name or "": product_of(node) for node in model.graph}
    matrices = {name: None if of is None else plain_matrix(of) for name, of in found.items()}
    return {name: matrix.shape[1] for name, matrix in matrices.items() if name and matrix is not None}


def plain_matrix(product: Product) -> Array | None:
    """The weights as (N, K); None for what stays."""
    tensor = tensor_of(product.right)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) != 2 or tensor.size < _LEAST:
        return None
    plain = np.asarray(tensor.numpy())
    matrix = plain if product.transposed else plain.T
    if product.bias is not None and product.bias.shape != ir.Shape([len(matrix)]):
        return None
    return matrix if min(matrix.shape) >= _NARROWEST and np.isfinite(matrix).all() else None


def with_feedback(matrix: Array, bits: int, moments: Array) -> Blocks:
    """GPTQ: what rounding the weights of one k leaves is made up for by those of the k behind it.

    `moments` (K, K) are sums of products of left operands: the error of the product is least by them, and not by the
    weights' own. Scales and zero points of a block are those of the weights that it has by then."""
    block = BLOCKS[bits]
    columns, depth = matrix.shape
    left = np.zeros((columns, -(-depth // block) * block), np.float32)
    left[:, :depth] = matrix
    factor = _inverse_factor(moments, left.shape[1])
    parts: list[_Parts] = []
    for first in range(0, left.shape[1], _LAZY):
        last = min(first + _LAZY, left.shape[1])
        errors = np.zeros((columns, last - first), np.float32)
        for k in range(first, last):
            if k % block == 0:
                parts.append(_quantized_rows(left[:, k : k + block], bits, block))
            numbers, scales, zeros = (part[:, 0] for part in parts[-1])
            q = np.clip(np.rint(left[:, k] / scales) + zeros, 0, (1 << bits) - 1)
            numbers[:, k % block] = q
            errors[:, k - first] = (left[:, k] - (q - zeros) * scales) / factor[k, k]
            left[:, k + 1 : last] -= errors[:, k - first : k - first + 1] * factor[k, k + 1 : last]
        left[:, last:] -= errors @ factor[first:last, last:]
    numbers, scales, zeros = (np.concatenate([part[i] for part in parts], axis=1) for i in range(3))
    return Blocks(numbers, scales, zeros, bits, depth)


def _inverse_factor(moments: Array, depth: int) -> Array:
    """The upper Cholesky factor of the inverse; unused k stand for themselves."""
    full = np.zeros((depth, depth))
    full[: len(moments), : len(moments)] = moments
    diagonal = np.diagonal(full).copy()
    unused = diagonal <= 0
    damped = _DAMPING * float(diagonal[~unused].mean()) if not unused.all() else 1.0
    full[np.diag_indices(depth)] = np.where(unused, damped, diagonal) + damped
    return np.linalg.cholesky(np.linalg.inv(full)).T.astype(np.float32)


def quantize(matrix: Array, bits: int, block: int = 0) -> Blocks:
    """Blocks of a matrix (N, K) with zero points."""
    block = block or BLOCKS[bits]
    columns, depth = matrix.shape
    parts = [_quantized_rows(matrix[i : i + _ROWS], bits, block) for i in range(0, columns, _ROWS)]
    numbers, scales, zeros = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return Blocks(numbers, scales, zeros, bits, depth)


_Parts = tuple[Array, Array, Array]  # numbers, scales, zero points


def _quantized_rows(matrix: Array, bits: int, block: int) -> _Parts:
    filled = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % block))).astype(np.float32)
    values = np.ascontiguousarray(filled).reshape(len(matrix), -1, block)
    most = np.float32((1 << bits) - 1)
    low, high = (np.minimum(values.min(-1), 0), np.maximum(values.max(-1), 0))
    best: _Parts | None = None
    least = np.full(low.shape, np.inf, np.float32)
    for shrink in _SHRINKS if bits < 8 else _SHRINKS[:1]:
        scale = np.where(high > low, (high - low) * np.float32(shrink) / most, np.float32(1))
        zero = np.clip(np.rint(-low * np.float32(shrink) / scale), 0, most)
        for _ in range(1 + _REFITS):
            q = np.clip(np.rint(values / scale[..., None]) + zero[..., None], 0, most)
            centered = q - zero[..., None]
            error = np.square(centered * scale[..., None] - values).sum(-1)
            new = q.astype(np.uint8), scale, zero.astype(np.uint8)
            best = new if best is None else _chosen(error < least, new, best)
            least = np.minimum(least, error)
            scale = _refit(centered, values, scale)
    assert best is not None
    return best


def _refit(centered: Array, values: Array, scale: Array) -> Array:
    """The scale with the least squares of errors for these numbers; the old one where they are zeros."""
    squares = np.square(centered).sum(-1)
    fitted = (centered * values).sum(-1) / np.maximum(squares, np.float32(1))
    return np.where((squares > 0) & (fitted > 0), fitted, scale).astype(np.float32)


def _chosen(better: Array, new: _Parts, old: _Parts) -> _Parts:
    masks = (better[..., None], better, better)
    q, scale, zero = (np.where(mask, a, b) for mask, a, b in zip(masks, new, old, strict=True))
    return q, scale, zero


def sqnr(matrix: Array, blocks: Blocks) -> float:
    """Signal to quantization noise in dB."""
    return decibels(matrix, restored(blocks))


def restored(blocks: Blocks) -> Array:
    """The matrix (N, K) that blocks stand for."""
    zero = np.float32(1 << (blocks.bits - 1)) if blocks.zeros is None else blocks.zeros[..., None].astype(np.float32)
    return ((blocks.numbers - zero) * blocks.scales[..., None]).reshape(len(blocks.numbers), -1)[:, : blocks.depth]


def decibels(wanted: Array, made: Array) -> float:
    """Signal to noise in dB: infinite where nothing differs."""
    noise = float(np.square(made - wanted, dtype=np.float64).sum())
    signal = float(np.square(wanted, dtype=np.float64).sum())
    return float("inf") if noise == 0 else 10 * float(np.log10(signal / noise)) if signal else 0.0


def summary(done: list[Quantized], precision: str, how: str, what: str = "product") -> str:
    """For a report: how many matrices, and the least ratio among them; `how` says what became of them."""
    if not done:
        return f"--precision {precision}: nothing has constant float32 weights that are worth it, so all stay."
    worst = min(done, key=lambda one: one.sqnr)
    mean = sum(one.sqnr * one.elements for one in done) / sum(one.elements for one in done)
    count = " or ".join(word + ("s" if len(done) > 1 else "") for word in what.split(" or "))
    count = f"{len(done)} {count}"
    return (
        f"--precision {precision}: weights of {count} {how}; signal to quantization noise of the weights {mean:.1f} dB "
        f"on average, {worst.sqnr:.1f} dB at the least ({worst.name})."
    )
