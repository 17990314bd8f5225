"""Recurrent layers: RNN, GRU and LSTM.

Input: operands of the ONNX ops. Output: the layer, its products included, as a function written in C
(`recurrent_unit.h`). Invariant: float32 only; every attribute of the ops is kept; the order of operands, numbers and
factors is that of the enums in the header. Weights are as ONNX states them, and scratch memory is the backend's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, ix

from .recurrent_reference import ACTIVATIONS, KINDS, USUAL, activation_numbers, gru, lstm, recurrence, rnn
from .registry import Call, op

UNIT: Final = "#include <smelt/recurrent/recurrent_unit.h>\n"
LINKS: Final = ("tiles",)
GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class _Layer:
    """Sizes of a layer; `kind` is the op's name."""

    kind: str
    directions: int
    reverse: bool
    batch_first: bool
    steps: Ix
    rows: Ix
    hidden: Ix
    width: Ix

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    def state_shape(self) -> tuple[Ix, ...]:
        rows = (self.rows, ix(self.directions)) if self.batch_first else (ix(self.directions), self.rows)
        return (*rows, self.hidden)

    def every_shape(self) -> tuple[Ix, ...]:
        if self.batch_first:
            return (self.rows, self.steps, ix(self.directions), self.hidden)
        return (self.steps, ix(self.directions), self.rows, self.hidden)


@op("LSTM", since=7, kind="function", cost="heavy", reference=lstm)
@op("GRU", since=7, kind="function", cost="heavy", reference=gru)
@op("RNN", since=7, kind="function", cost="heavy", reference=rnn)
def recurrent(call: Call) -> Sequence[Tensor]:
    layer = _layer(call)
    codes, factors = _activations(call, layer)
    clip = call.float("clip", 0.0) if call.has("clip") else float("inf")
    modified = call.int("input_forget", 0) if layer.kind == "LSTM" else call.int("linear_before_reset", 0)
    numbers = (
        KINDS[layer.kind], layer.steps, layer.rows, layer.hidden, layer.directions, int(layer.reverse), modified,
        0, int(layer.batch_first), layer.width, 0, *codes,
    )  # fmt: skip
    results = [layer.every_shape(), layer.state_shape(), layer.state_shape()][: 3 if layer.kind == "LSTM" else 2]
    absent = () if layer.kind == "LSTM" else (layer.state_shape(),)
    function = Function(
        name="smelt_recurrent",
        text=UNIT,
        links=LINKS,
        operands=(call.x(0), call.x(1), call.x(2), *_optional(call, layer)),
        results=tuple((shape, "f32") for shape in (*results, *absent)),
        numbers=tuple(ix(n) for n in numbers),
        factors=(abs(clip) or float("inf"), *factors),
        scratch_bytes=ix(0),
        flops=layer.steps
        * layer.rows
        * layer.hidden
        * (layer.hidden + layer.width)
        * (2 * layer.gates * layer.directions),
        reference=recurrence,
    )
    return call.k.function(function)[: len(results)]


def _layer(call: Call) -> _Layer:
    x, weights, again = call.x(0), call.x(1), call.x(2)
    if any(t.rank != 3 for t in (x, weights, again)) or any(t.dtype != "f32" for t in (x, weights, again)):
        raise Unsupported("a recurrent layer of other than float32 sequences")
    direction = call.str("direction", "forward").lower()
    if direction not in ("forward", "reverse", "bidirectional"):
        raise Unsupported(f"the direction {direction!r}")
    batch_first = bool(call.int("layout", 0))
    directions = 2 if direction == "bidirectional" else 1
    hidden = ix(call.int("hidden_size")) if call.has("hidden_size") else again.shape[2]
    rows, steps = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    k, gates = call.k, GATES[call.op]
    for operand, last in ((weights, x.shape[2]), (again, hidden)):
        sizes = (ix(directions), hidden * gates, last)
        for found, wanted in zip(operand.shape, sizes, strict=True):
            k.require_equal(found, wanted, "the weights of a recurrent layer must fit its sizes")
    return _Layer(call.op, directions, direction == "reverse", batch_first, steps, rows, hidden, x.shape[2])


def _optional(call: Call, layer: _Layer) -> list[Tensor | None]:
    """Bias, lengths, initial states, peepholes; each of the size that the function takes for granted."""
    directions, wide = ix(layer.directions), layer.hidden
    wanted: list[tuple[str, tuple[Ix, ...]]] = [
        ("f32", (directions, wide * (2 * layer.gates))), ("i32", (layer.rows,)), ("f32", layer.state_shape()),
    ]  # fmt: skip
    if layer.kind == "LSTM":
        wanted += [("f32", layer.state_shape()), ("f32", (directions, wide * 3))]
    found = [_checked(call, 3 + place, *one) for place, one in enumerate(wanted)]
    return [*found, *[None] * (5 - len(found))]


def _checked(call: Call, position: int, dtype: str, shape: tuple[Ix, ...]) -> Tensor | None:
    operand = call.maybe(position)
    if operand is None:
        return None
    if operand.dtype != dtype or operand.rank != len(shape):
        raise Unsupported(f"input {position} of a recurrent layer has another type or rank")
    for found, wanted in zip(operand.shape, shape, strict=True):
        call.k.require_equal(found, wanted, f"input {position} of a recurrent layer must fit its sizes")
    return operand


def _activations(call: Call, layer: _Layer) -> tuple[list[int], list[float]]:
    """Three codes, and three pairs of factors, for each direction."""
    usual = USUAL[layer.kind]
    names = [name.lower() for name in call.strs("activations", usual * layer.directions)]
    if len(names) != len(usual) * layer.directions:
        raise Unsupported("another number of activations than the layer has")
    alphas, betas = call.floats("activation_alpha", ()), call.floats("activation_beta", ())
    if any(name not in ACTIVATIONS or (name == "scaledtanh" and not alphas) for name in names):
        raise Unsupported(f"activations {', '.join(names)}")
    return activation_numbers(layer.kind, names, alphas, betas)
