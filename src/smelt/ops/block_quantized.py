"""Products with weights that are quantized in blocks along K: MatMulNBits, MatMulBnb4.

Input: operands of the ops. Output: the product with its bias, as a function written in C (`nbits_unit.h`).
Invariant: weights, scales and zero points are constants, which a backend packs ahead of time; sums are float32 over
float32 activations, but for `accuracy_level` 4, which quantizes activations to 8 bits in blocks. The order of operands
and numbers is that of the enums in the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel import Function, Map, Stored, Tensor, Unsupported, ix, product
from smelt.ir.kernel.bit_fields import swapped, unpack_bits, unpack_zeros
from smelt.ir.kernel.tensor import Arrays

from .registry import Call, op
from .work import matmul_work

Array = np.ndarray[Any, Any]
UNIT: Final = "#include <smelt/nbits/nbits_unit.h>\n"
LINKS: Final = ("tiles",)
MICROSOFT: Final = "com.microsoft"
BITS: Final = (2, 4, 8)
INT8_ACTIVATIONS: Final = 4  # the accuracy level
BLOCKS: Final = (16, 256)  # the least and the most, powers of two
ZERO_KINDS: Final = {"": 0, "u8": 1, "f32": 2}
# Of bitsandbytes, by the attribute quant_type; in place of zero points they have the kinds 3 and 4.
CODEBOOKS: Final = tuple(
    np.array(numbers, np.float32)
    for numbers in (
        [
            0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
            -0.0, -5.208333333e-03, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25,
        ],
        [
            -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
            -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
            0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
            0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
        ],
    )
)  # fmt: skip
_FIRST_CODEBOOK: Final = 3


class Number(IntEnum):
    """The numbers of the function."""

    ROWS = 0
    K = 1
    N = 2
    BITS = 3
    BLOCK = 4
    ZERO_KIND = 5
    FAST = 6


class _Product:
    """One MatMulNBits being lowered, or a MatMulBnb4 with its codebook."""

    def __init__(self, call: Call, codebook: int | None = None) -> None:
        self.call, self.a, self.codebook = call, call.x(0), codebook
        self.depth, self.columns = call.int("K"), call.int("N")
        self.bits, self.block = call.int("bits", 4), call.int("block_size")
        self.blocks = -(-self.depth // self.block) if self.block > 0 else 0
        self._check()

    def _check(self) -> None:
        if self.bits not in BITS:
            raise Unsupported(f"weights of {self.bits} bits")
        least, most = BLOCKS
        if not least <= self.block <= most or self.block & (self.block - 1):
            raise Unsupported(f"blocks of {self.block}, not a power of two from {least} to {most}")
        if self.a.dtype != "f32":
            raise Unsupported(f"activations of {self.a.dtype} times weights of {self.bits} bits")
        if self.a.rank < 1 or self.depth < 1 or self.columns < 1:
            raise Unsupported("a product without rows, terms or columns")
        if self.call.maybe(4) is not None:
            raise Unsupported("g_idx, unless it is constant and its groups are whole blocks")
        if self.codebook is not None and (self.depth % self.block or not 0 <= self.codebook < len(CODEBOOKS)):
            raise Unsupported("4-bit weights whose blocks are not those of columns, or of an unknown codebook")
        if self.codebook is not None and not self.call.int("transB", 1):
            raise Unsupported("4-bit weights of bitsandbytes that are not transposed")

    def lower(self) -> Tensor:
        call, fast = self.call, self.call.int("accuracy_level", 0) == INT8_ACTIVATIONS
        call.k.require_equal(self.a.shape[-1], ix(self.depth), "the inner sizes of a product must agree")
        rows = product(self.a.shape[:-1])
        weights = self._given(1, self.columns * self.blocks * (self.block * self.bits // 8), ("u8",))
        scales, zeros = self._given(2, self.columns * self.blocks, ("f32",)), self._zeros()
        kind = ZERO_KINDS["" if zeros is None else zeros.dtype]
        if self.codebook is not None:
            kind = _FIRST_CODEBOOK + self.codebook
        sizes = (rows, self.depth, self.columns, self.bits, self.block, kind, int(fast))
        function = Function(
            name="smelt_nbits_product",
            text=UNIT,
            links=LINKS,
            operands=(self.a, weights, scales, zeros, self._bias()),
            results=(((*self.a.shape[:-1], ix(self.columns)), "f32"),),
            numbers=tuple(ix(n) for n in sizes),
            factors=(),
            scratch_bytes=ix(0),
            flops=rows * (self.depth * self.columns * 2),
            reference=reference,
        )
        return call.k.function(function)[0]

    def _given(self, place: int, elements: int, dtypes: Sequence[str]) -> Tensor:
        """A constant of so many elements."""
        x = self.call.x(place)
        if x.dtype not in dtypes:
            raise Unsupported(f"input {place} of type {x.dtype}")
        if x.elements.const != elements:
            raise Unsupported(f"input {place} has {x.elements} elements, not {elements}")
        if not is_constant(x):
            raise Unsupported(f"input {place} is no constant: quantized weights are packed ahead of time")
        return x

    def _zeros(self) -> Tensor | None:
        zeros = self.call.maybe(3)
        if zeros is None:
            return None
        if zeros.dtype == "u8":
            return self._given(3, self.columns * -(-self.blocks * self.bits // 8), ("u8",))
        return self._given(3, self.columns * self.blocks, ("f32",))

    def _bias(self) -> Tensor | None:
        bias = self.call.maybe(5)
        if bias is not None and (bias.dtype != "f32" or bias.elements.const != self.columns):
            raise Unsupported("a bias that is not one number for each column")
        return bias


def is_constant(x: Tensor) -> bool:
    """Also behind the widening of a narrow type."""
    definition = x.definition
    if isinstance(definition, Map) and len(definition.args) == 1:
        definition = definition.args[0].definition
    value = definition.buffer.weight if isinstance(definition, Stored) else None
    return isinstance(value, ir.Value) and value.const_value is not None


def reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[Array, ...]:
    """By numpy in float64."""
    a, weights, scales, zeros, bias = arrays
    assert a is not None and weights is not None and scales is not None
    depth, columns, bits, block = numbers[Number.K], numbers[Number.N], numbers[Number.BITS], numbers[Number.BLOCK]
    shape, kind = (columns, -(-depth // block), block), numbers[Number.ZERO_KIND]
    if kind >= _FIRST_CODEBOOK:
        matrix = looked_up(weights, scales, kind - _FIRST_CODEBOOK, shape)
    else:
        matrix = dequantized(weights, scales, zeros, bits, shape)[:, :depth]
    left = quantized_activations(a, block) if numbers[Number.FAST] else a.astype(np.float64)
    made = left.reshape(-1, depth) @ matrix.T + (0 if bias is None else bias)
    return (made.reshape(*a.shape[:-1], columns),)


def dequantized(weights: Array, scales: Array, zeros: Array | None, bits: int, shape: tuple[int, int, int]) -> Array:
    """The matrix (N, K) in float64; `shape` is N, blocks and their size."""
    columns, blocks, _ = shape
    zero: Array = np.full((1, 1), 1 << (bits - 1))
    if zeros is not None:
        zero = unpack_zeros(zeros, bits, blocks) if zeros.dtype == np.uint8 else zeros.reshape(columns, blocks)
    q = unpack_bits(weights.reshape(columns, -1), bits).reshape(shape)
    made = (q - zero.astype(np.float64)[..., None]) * scales.astype(np.float64).reshape(columns, blocks)[..., None]
    return made.reshape(columns, -1)


def looked_up(weights: Array, scales: Array, codebook: int, shape: tuple[int, int, int]) -> Array:
    """The matrix (N, K) of MatMulBnb4 in float64: high bits first."""
    q = unpack_bits(swapped(weights).reshape(-1), 4).reshape(shape)
    made = CODEBOOKS[codebook][q].astype(np.float64) * scales.astype(np.float64).reshape(*shape[:2], 1)
    return made.reshape(shape[0], -1)


def quantized_activations(a: Array, block: int) -> Array:
    """What activations are worth after quantization to 8 bits in blocks along the last axis."""
    depth = a.shape[-1]
    rows = np.pad(a.reshape(-1, depth).astype(np.float32), ((0, 0), (0, -depth % block))).reshape(-1, block)
    most = np.abs(rows).max(-1, keepdims=True) if rows.size else rows[:, :1]
    with np.errstate(all="ignore"):
        inverse = np.where(most > np.float32(1e-35), np.float32(127) / most, np.float32(0))
        bytes_of = np.rint(rows * inverse)
        made = np.where(np.isfinite(most), bytes_of.astype(np.float64) * (most / np.float32(127)), np.nan)
    return made.reshape(*a.shape[:-1], depth + -depth % block)[..., :depth]


def node_reference(
    a: Array, weights: Array, scales: Array, zeros: Array | None = None, g_idx: Array | None = None,
    bias: Array | None = None, *, block_size: int, bits: int = 4, accuracy_level: int = 0, **sizes: Any,
) -> Array:  # fmt: skip
    """The node from its own operands; `g_idx` says of which block the scale of each k is."""
    depth, columns = int(sizes["K"]), int(sizes["N"])
    shape = (columns, -(-depth // block_size), block_size)
    if g_idx is not None and g_idx.size:
        q = unpack_bits(weights.reshape(columns, -1), bits)[:, :depth]
        ones = np.ones((columns, shape[1]), np.float64)
        zero = -dequantized(np.zeros_like(weights), ones, zeros, bits, shape).reshape(shape)[..., 0]
        matrix = (q - zero[:, g_idx]) * scales.astype(np.float64).reshape(columns, -1)[:, g_idx]
    else:
        matrix = dequantized(weights, scales, zeros, bits, shape)[:, :depth]
    fast = accuracy_level == INT8_ACTIVATIONS
    left = quantized_activations(a, block_size) if fast else a.astype(np.float64)
    return left @ matrix.T + (0 if bias is None else bias)


@op("MatMulNBits", domain=MICROSOFT, kind="function", cost="heavy", work=matmul_work, reference=node_reference)
def matmul_n_bits(call: Call) -> Tensor:
    return _Product(call).lower()


def codebook_reference(
    a: Array, weights: Array, absmax: Array, *, block_size: int, quant_type: int, **sizes: Any
) -> Array:  # fmt: skip
    """MatMulBnb4 from its own operands."""
    shape = (int(sizes["N"]), int(sizes["K"]) // block_size, block_size)
    return a.astype(np.float64) @ looked_up(weights, absmax, quant_type, shape).T


@op("MatMulBnb4", domain=MICROSOFT, kind="function", cost="heavy", work=matmul_work, reference=codebook_reference)
def matmul_bnb4(call: Call) -> Tensor:
    return _Product(call, call.int("quant_type")).lower()
