"""DynamicQuantizeLSTM: an LSTM whose products multiply bytes.

Input: float32 sequences, 8-bit weights that are constants, their scales and zero points. Output: the layer, as a
function written in C (`int8_lstm_unit.h`); a backend packs the weights, and says so in the numbers `STRIDES`.
Invariant: X is quantized as a whole, the state of all rows at each step, as DynamicQuantizeLinear does; the order of
operands and numbers is that of the enums in the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Function, Tensor, Unsupported, ix
from smelt.ir.kernel.tensor import Arrays

from .block_quantized import is_constant
from .registry import Call, op

Array = np.ndarray[Any, Any]
MICROSOFT: Final = "com.microsoft"
UNIT: Final = "#include <smelt/int8/int8_lstm_unit.h>\n"
GATES: Final = 4
NAME: Final = "smelt_int8_lstm"
STRIDES: Final = (8, 9)  # places among the numbers that a backend sets for weights that it packs


@op("DynamicQuantizeLSTM", domain=MICROSOFT, kind="function", cost="heavy", steps=True)
def dynamic_quantize_lstm(call: Call) -> Sequence[Tensor]:
    directions, hidden = _check(call)
    x, k = call.x(0), call.k
    if not (is_constant(call.x(1)) and is_constant(call.x(2))):
        raise Unsupported("weights of a quantized LSTM that are no constants")
    steps, rows, width = x.shape
    state = (ix(directions), rows, ix(hidden))
    k.require_equal(call.x(1).shape[1], width, "the weights of a recurrent layer must fit its sizes")
    parameters = [_parameter(call, place, directions, hidden) for place in (8, 9, 10, 11)]
    counts = [ix(1) if found is None else found.elements // directions for found in parameters]
    signed = [int(call.x(place).dtype == "i8") for place in (1, 2)]
    backwards = int(call.str("direction", "forward").lower() == "reverse")
    function = Function(
        name=NAME,
        text=UNIT,
        operands=(x, call.x(1), call.x(2), *_optional(call, directions, hidden), *parameters),
        results=(((steps, *state), "f32"), (state, "f32"), (state, "f32")),
        numbers=tuple(ix(n) for n in (*x.shape, hidden, directions, backwards, *signed, 0, 0, *counts)),
        factors=(),
        scratch_bytes=steps * rows * (width + 3) + 64,
        flops=steps * rows * (width + hidden) * (2 * GATES * hidden * directions),
        reference=reference,
    )
    return k.function(function)[: call.n_outputs]


def _check(call: Call) -> tuple[int, int]:
    """Directions and the hidden size."""
    x, again = call.x(0), call.x(2)
    if (
        x.dtype != "f32"
        or x.rank != 3
        or any(call.x(p).dtype not in ("u8", "i8") or call.x(p).rank != 3 for p in (1, 2))
    ):
        raise Unsupported("a quantized LSTM of other than float32 sequences and 8-bit weights")
    usual = ("sigmoid", "tanh", "tanh")
    found = tuple(name.lower() for name in call.strs("activations", usual))
    clips = call.has("clip") and call.float("clip", 0.0) != 0
    if found[:3] != usual or found[3:] not in ((), usual) or clips or call.int("input_forget", 0):
        raise Unsupported("a quantized LSTM with activations of its own, a clip, or coupled gates")
    if call.maybe(4) is not None:
        raise Unsupported("a quantized LSTM with sequences of several lengths")
    sizes = [size.const for size in again.shape]
    directions = 2 if call.str("direction", "forward").lower() == "bidirectional" else 1
    if (
        None in sizes
        or sizes[0] != directions
        or sizes[2] != GATES * (sizes[1] or 0)
        or call.x(1).shape[2] != again.shape[2]
    ):
        raise Unsupported("weights that do not fit the hidden size")
    return directions, sizes[1] or 0


def _optional(call: Call, directions: int, hidden: int) -> list[Tensor | None]:
    """Bias, initial states, peepholes."""
    rows, many = call.x(0).shape[1], ix(directions)
    state = (many, rows, ix(hidden))
    wanted = {3: (many, ix(8 * hidden)), 5: state, 6: state, 7: (many, ix(3 * hidden))}
    for place, shape in wanted.items():
        found = call.maybe(place)
        if found is not None and (found.dtype != "f32" or found.rank != len(shape)):
            raise Unsupported(f"input {place} of a recurrent layer has another type or rank")
        for got, size in zip(found.shape if found is not None else (), shape, strict=False):
            call.k.require_equal(got, size, f"input {place} of a recurrent layer must fit its sizes")
    return [call.maybe(place) for place in wanted]


def _parameter(call: Call, place: int, directions: int, hidden: int) -> Tensor | None:
    """A scale or zero point: of each direction, or of each of its columns."""
    found, weights = call.maybe(place), call.x(1 if place < 10 else 2)
    if found is None and place in (8, 10):
        raise Unsupported("a quantized LSTM without scales")
    if found is None:
        return None
    if found.dtype != ("f32" if place in (8, 10) else weights.dtype):
        raise Unsupported("a zero point of another type than its weights, or a scale that is not float32")
    if [size.const for size in found.shape] not in ([directions], [directions, GATES * hidden]):
        raise Unsupported("scales that are neither of directions nor of columns")
    return found


def reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[Array, ...]:
    """By numpy: integers exactly, the rest in float64."""
    x, weights, again, bias, h0, c0, peephole, *parameters = arrays
    steps, rows, width, hidden, directions, backwards = numbers[:6]
    assert x is not None and weights is not None and again is not None
    y = np.zeros((steps, directions, rows, hidden))
    last = np.zeros((2, directions, rows, hidden))
    for d in range(directions):
        w, r = (
            _restored(q[d].astype(np.float64), *(_of(p, d) for p in parameters[2 * i : 2 * i + 2]))
            for i, q in enumerate((weights, again))
        )
        both: Array = np.zeros(4 * hidden) if bias is None else bias[d].reshape(2, -1).sum(0)
        of_x = _steps(x).reshape(steps, rows, width) @ w + both
        h, c = (
            np.zeros((rows, hidden)) if given is None or not steps else given[d].astype(np.float64)
            for given in (h0, c0)
        )
        for i in range(steps):
            at = steps - 1 - i if backwards or d else i
            z = (of_x[at] + _steps(h.astype(np.float32)) @ r).reshape(rows, 4, hidden)
            pi, po, pf = np.zeros((3, hidden)) if peephole is None else peephole[d].reshape(3, hidden)
            now = _sigmoid(z[:, 2] + pf * c) * c + _sigmoid(z[:, 0] + pi * c) * np.tanh(z[:, 3])
            h, c = _sigmoid(z[:, 1] + po * now) * np.tanh(now), now
            y[at, d] = h
        last[:, d] = h, c
    return tuple(made.astype(np.float32) for made in (y, *last))


def _of(parameter: Array | None, direction: int) -> Array:
    return np.zeros(1) if parameter is None else parameter[direction].astype(np.float64)


def _restored(q: Array, scale: Array, zero: Array) -> Array:
    return (q - zero) * scale


def _steps(x: Array) -> Array:
    """What x is worth after DynamicQuantizeLinear."""
    low, high = np.float32(min(x.min(initial=0), 0)), np.float32(max(x.max(initial=0), 0))
    scale = np.float32(1) if low == high else np.float32(high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * float(scale)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
