"""RNN, GRU and LSTM with numpy: the yardstick, and what the function in C computes.

Input: arrays and attributes as ONNX states them. Output: Y, Y_h and, for LSTM, Y_c. Invariant: computed in the type of
the operands, float64 where smelt verifies; one step for all rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
KINDS: Final = {"RNN": 0, "GRU": 1, "LSTM": 2}
ACTIVATIONS: Final = (
    "sigmoid", "tanh", "relu", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu", "softsign",
    "softplus",
)  # fmt: skip


def _activate(code: int, alpha: float, beta: float, x: Array) -> Array:
    table: dict[str, Callable[[], Array]] = {
        "sigmoid": lambda: np.exp(-np.logaddexp(0, -x)),
        "tanh": lambda: np.tanh(x),
        "relu": lambda: np.maximum(x, 0),
        "affine": lambda: alpha * x + beta,
        "leakyrelu": lambda: np.where(x < 0, alpha * x, x),
        "thresholdedrelu": lambda: np.where(x <= alpha, 0, x),
        "scaledtanh": lambda: alpha * np.tanh(beta * x),
        "hardsigmoid": lambda: np.clip(alpha * x + beta, 0, 1),
        "elu": lambda: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "softsign": lambda: x / (1 + np.abs(x)),
        "softplus": lambda: np.logaddexp(0, x),
    }
    return table[ACTIVATIONS[code]]()


@dataclass
class _Direction:
    """One direction: weights (gate, out, in), biases (2, gate, unit), states (row, unit)."""

    kind: int
    modified: bool
    clip: float
    acts: Sequence[tuple[int, float, float]]
    weights: Array
    bias: Array
    h: Array
    c: Array
    peephole: Array | None

    def act(self, place: int, x: Array, *, clipped: bool = True) -> Array:
        return _activate(*self.acts[place], np.clip(x, -self.clip, self.clip) if clipped else x)

    def step(self, x: Array) -> tuple[Array, Array]:
        """The next states from one step's input products (row, gate, unit)."""
        if self.kind == KINDS["LSTM"]:
            return self._lstm(x)
        again = self._again()
        if self.kind == KINDS["RNN"]:
            return self.act(0, x[:, 0] + again[:, 0] + self.bias.sum(0)[0]), self.c
        z, r = (self.act(0, x[:, g] + again[:, g] + self.bias.sum(0)[g]) for g in (0, 1))
        if self.modified:
            inner = r * (again[:, 2] + self.bias[1, 2])
        else:
            inner = (r * self.h) @ self.weights[2].T + self.bias[1, 2]
        return (1 - z) * self.act(1, x[:, 2] + self.bias[0, 2] + inner) + z * self.h, self.c

    def _again(self) -> Array:
        """The state's products with the weights of all gates (row, gate, unit)."""
        gates, hidden, _ = self.weights.shape
        return (self.h @ self.weights.reshape(gates * hidden, hidden).T).reshape(-1, gates, hidden)

    def _lstm(self, x: Array) -> tuple[Array, Array]:
        sums = x + self._again() + self.bias.sum(0)
        i = self.act(0, self._peeped(sums, 0, self.c))
        f = 1 - i if self.modified else self.act(0, self._peeped(sums, 2, self.c))
        c = f * self.c + i * self.act(1, sums[:, 3])
        o = self.act(0, self._peeped(sums, 1, c))
        return o * self.act(2, c, clipped=False), c

    def _peeped(self, sums: Array, gate: int, c: Array) -> Array:
        """No peephole is not one of zeros: a cell may be infinite."""
        return sums[:, gate] if self.peephole is None else sums[:, gate] + self.peephole[gate] * c


def recurrence(
    arrays: Sequence[Array | None], numbers: Sequence[int], factors: Sequence[float]
) -> tuple[Array, Array, Array]:
    """What `smelt_recurrent` computes, from the same operands in the same order."""
    kind, steps, rows, hidden, directions, reverse, modified, _, batch_first, width, *more = numbers
    codes = more[1:]
    inputs, input_weights, weights, bias, lengths, first_h, first_c, peephole = arrays
    assert inputs is not None and input_weights is not None and weights is not None
    gates, dtype = (1, 3, 4)[kind], inputs.dtype
    sizes = (rows, steps) if batch_first else (steps, rows)
    x = inputs.reshape(-1, width) @ input_weights.reshape(-1, width).T
    x = x.reshape(*sizes, directions, gates, hidden)
    x = np.swapaxes(x, 0, 1) if batch_first else x
    every = np.zeros((steps, directions, rows, hidden), dtype)
    last = [np.zeros((directions, rows, hidden), dtype) for _ in range(2)]
    ends = np.full(rows, steps) if lengths is None else lengths
    for d in range(directions):
        states = [np.zeros((rows, hidden), dtype) if s is None else np.array(s[:, d] if batch_first else s[d])
                  for s in (first_h, first_c)]  # fmt: skip
        acts = [(codes[3 * d + i], factors[1 + 6 * d + 2 * i], factors[2 + 6 * d + 2 * i]) for i in range(3)]
        one = _Direction(
            kind, bool(modified), factors[0], acts, weights[d].reshape(gates, hidden, hidden),
            np.zeros((2, gates, hidden), dtype) if bias is None else bias[d].reshape(2, gates, hidden),
            states[0], states[1], None if peephole is None else peephole[d].reshape(3, hidden),
        )  # fmt: skip
        _run(one, x[:, :, d], ends, bool(reverse or d), every[:, d])
        for kept, state in zip(last, (one.h, one.c), strict=True):
            kept[d] = np.where((ends > 0)[:, None], state, 0)
    if batch_first:
        return every.transpose(2, 0, 1, 3), np.swapaxes(last[0], 0, 1), np.swapaxes(last[1], 0, 1)
    return every, last[0], last[1]


def _run(one: _Direction, x: Array, ends: Array, reverse: bool, every: Array) -> None:
    """All steps; each row has its own end, from which it goes back where the direction is reverse."""
    rows = np.arange(int(x.shape[1]))
    for step in range(x.shape[0]):
        active = step < ends
        at = np.where(active & reverse, ends - 1 - step, step)
        h, c = one.step(x[at, rows])
        one.h, one.c = np.where(active[:, None], h, one.h), np.where(active[:, None], c, one.c)
        every[at, rows] = np.where(active[:, None], h, 0)


# What an activation's alpha and beta are where the layer does not say; None: it has no such factor.
FACTORS: Final[dict[str, tuple[float | None, float | None]]] = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, None), "thresholdedrelu": (1.0, None), "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None), "scaledtanh": (1.0, 1.0),
}  # fmt: skip
USUAL: Final = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
MOST_ACTIVATIONS: Final = 3  # of a direction


def activation_numbers(
    kind: str, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Three codes, and three pairs of factors, for each direction; alphas and betas go to those that take them."""
    usual, given = len(USUAL[kind]), [iter(alphas), iter(betas)]
    codes, factors = list[int](), list[float]()
    for place, name in enumerate(names):
        codes.append(ACTIVATIONS.index(name))
        sides = zip(given, FACTORS.get(name, (None, None)), strict=True)
        factors += [0.0 if d is None else float(next(side, d)) for side, d in sides]
        if (place + 1) % usual == 0:
            codes += [0] * (MOST_ACTIVATIONS - usual)
            factors += [0.0] * (2 * (MOST_ACTIVATIONS - usual))
    return codes, factors


def _layer(kind: str, operands: Sequence[Array | None], attributes: dict[str, Any]) -> tuple[Array, Array, Array]:
    """ONNX's operands and attributes as the recurrence takes them."""
    x, weights, again, *rest = operands
    assert x is not None and weights is not None and again is not None
    rest = [*rest, *[None] * (5 - len(rest))]
    directions, hidden = weights.shape[0], again.shape[2]
    batch_first = int(attributes.get("layout", 0))
    steps, rows = x.shape[:2][::-1] if batch_first else x.shape[:2]
    names = [str(n).lower() for n in attributes.get("activations") or USUAL[kind] * directions]
    alphas, betas = (attributes.get(f"activation_{side}") or () for side in ("alpha", "beta"))
    codes, factors = activation_numbers(kind, names, alphas, betas)
    modified = attributes.get("input_forget" if kind == "LSTM" else "linear_before_reset", 0)
    reverse = str(attributes.get("direction", "forward")).lower() == "reverse"
    numbers = (
        KINDS[kind], steps, rows, hidden, directions, int(reverse), int(modified), 0, batch_first, x.shape[2], 0,
        *codes,
    )  # fmt: skip
    clip = abs(float(attributes.get("clip") or 0.0)) or float("inf")
    return recurrence((x, weights, again, *rest), numbers, (clip, *factors))


def lstm(*operands: Array | None, **attributes: Any) -> tuple[Array, Array, Array]:
    return _layer("LSTM", operands, attributes)


def gru(*operands: Array | None, **attributes: Any) -> tuple[Array, Array]:
    return _layer("GRU", operands, attributes)[:2]


def rnn(*operands: Array | None, **attributes: Any) -> tuple[Array, Array]:
    return _layer("RNN", operands, attributes)[:2]
