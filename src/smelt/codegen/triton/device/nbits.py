"""Products with weights of 2, 4 or 8 bits that are quantized in blocks along K, for Triton.

Input: activations [M, K], weights [N, blocks, block * bits / 8] with the low bits first, scales and zero points [N,
blocks], a bias. Output: [M, N]. Invariant: weights are widened in registers and sums are float32; `level` 4 rounds
activations to 8 bits in the blocks of the weights, as ONNX Runtime's accuracy level does. This file is text for the
compiler: it needs triton alone.
"""

import triton
import triton.language as tl


@triton.jit
def rounded_activations(v):
    """To 127ths of the largest of the block, half to even."""
    most = tl.max(tl.abs(v), axis=1, keep_dims=True)
    inverse = tl.where(most > 1e-35, 127.0 / tl.where(most > 1e-35, most, 1.0), 0.0)
    scaled = tl.abs(v * inverse)
    whole = (scaled + 8388608.0) - 8388608.0
    return tl.where(v < 0, -whole, whole) * (most / 127.0)


@triton.jit
def block_of_activations(a, m, k, rows, depth, level: tl.constexpr):
    v = tl.load(a + m * depth + k, mask=(m < rows) & (k < depth), other=0.0).to(tl.float32)
    if level == 4:
        v = rounded_activations(v)
    return v


@triton.jit
def zero_points(zeros, n, place, columns, blocks, bits: tl.constexpr, kind: tl.constexpr):
    """Packed like the weights (1), of their own as floats (2), or the middle of the range (0)."""
    if kind == 1:
        row = (blocks * bits + 7) // 8
        held = tl.load(zeros + n * row + (place * bits) // 8, mask=n < columns, other=0).to(tl.int32)
        return ((held >> ((place * bits) % 8)) & ((1 << bits) - 1)).to(tl.float32)
    if kind == 2:
        return tl.load(zeros + n * blocks + place, mask=n < columns, other=0.0).to(tl.float32)
    return tl.zeros_like(n).to(tl.float32) + (1 << (bits - 1))


@triton.jit
def block_of_weights(
    weights, scales, zeros, n, i, place, columns, blocks, bits: tl.constexpr, block: tl.constexpr, kind: tl.constexpr
):
    """Columns n by elements i of one block, widened."""
    each = block * bits // 8
    held = tl.load(weights + (n * blocks + place) * each + (i * bits) // 8, mask=n < columns, other=0).to(tl.int32)
    q = ((held >> ((i * bits) % 8)) & ((1 << bits) - 1)).to(tl.float32)
    scale = tl.load(scales + n * blocks + place, mask=n < columns, other=0.0).to(tl.float32)
    return (q - zero_points(zeros, n, place, columns, blocks, bits, kind)) * scale


@triton.jit
def nbits_gemv(
    a, weights, scales, zeros, bias, y, rows, depth, columns, bits: tl.constexpr, block: tl.constexpr,
    kind: tl.constexpr, level: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    """One row and `tile_columns` columns: each weight is read once."""
    m = tl.program_id(1).to(tl.int64) + tl.zeros((1, 1), tl.int64)
    n = tl.program_id(0).to(tl.int64) * tile_columns + tl.arange(0, tile_columns)[:, None]
    i = tl.arange(0, block)[None, :]
    blocks = (depth + block - 1) // block
    total = tl.zeros((tile_columns, 1), tl.float32)
    for place in range(blocks):
        v = block_of_activations(a, m, place * block + i, rows, depth, level)
        w = block_of_weights(weights, scales, zeros, n, i, place, columns, blocks, bits, block, kind)
        total += tl.sum(v * w, axis=1, keep_dims=True)
    if bias is not None:
        total += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)
    tl.store(y + m * columns + n, total, mask=(n < columns) & (m < rows))


@triton.jit
def nbits_gemm(
    a, weights, scales, zeros, bias, y, rows, depth, columns, bits: tl.constexpr, block: tl.constexpr,
    kind: tl.constexpr, level: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    """A tile: its weights are widened once for `tile_rows` rows."""
    m = tl.program_id(1).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)[:, None]
    n = tl.program_id(0).to(tl.int64) * tile_columns + tl.arange(0, tile_columns)[:, None]
    i = tl.arange(0, block)[None, :]
    blocks = (depth + block - 1) // block
    total = tl.zeros((tile_rows, tile_columns), tl.float32)
    for place in range(blocks):
        v = block_of_activations(a, m, place * block + i, rows, depth, level)
        w = block_of_weights(weights, scales, zeros, n, i, place, columns, blocks, bits, block, kind)
        total = tl.dot(v, tl.trans(w), total, input_precision="ieee")
    c = tl.program_id(0).to(tl.int64) * tile_columns + tl.arange(0, tile_columns)[None, :]
    if bias is not None:
        total += tl.load(bias + c, mask=c < columns, other=0.0).to(tl.float32)
    tl.store(y + m * columns + c, total, mask=(m < rows) & (c < columns))
