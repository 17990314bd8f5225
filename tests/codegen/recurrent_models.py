"""Models of one recurrent layer, by seed: every attribute, operand and output that ONNX has for it, or not.

Input: a seed. Output: a model and its inputs. Invariant: what ONNX Runtime accepts, unless
more is asked for (batch first).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTS = {"RNN": 1, "GRU": 2, "LSTM": 3}
NAMES = (
    "Sigmoid", "Tanh", "Relu", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign",
    "Softplus", "Affine",
)  # fmt: skip


@dataclass
class Layer:
    op: str = "LSTM"
    steps: int = 4
    rows: int = 3
    width: int = 5
    hidden: int = 7
    directions: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    bias: bool = True
    lengths: list[int] | None = None
    state: bool = False
    peephole: bool = False
    constant: bool = True
    free: bool = True
    outputs: tuple[bool, ...] = (True, True, True)
    seed: int = 0
    scale: float = 0.5

    def arrays(self) -> list[np.ndarray | None]:
        """x, W, R, B, sequence_lens, initial_h, initial_c, P."""
        rng = np.random.default_rng(self.seed)
        make = lambda *s: (rng.standard_normal(s) * self.scale).astype(np.float32)  # noqa: E731
        d, h, wide = self.directions, self.hidden, GATES[self.op] * self.hidden
        first = self.options.get("layout", 0)
        x = make(self.rows, self.steps, self.width) if first else make(self.steps, self.rows, self.width)
        states = [make(self.rows, d, h) if first else make(d, self.rows, h) for _ in range(2)]
        lens = None if self.lengths is None else np.array(self.lengths, np.int32)
        out: list[np.ndarray | None] = [x, make(d, wide, self.width), make(d, wide, h)]
        out += [make(d, 2 * wide) if self.bias else None, lens, states[0] if self.state else None]
        if self.op == "LSTM":
            out += [states[1] if self.state else None, make(d, 3 * h) if self.peephole else None]
        return out

    def model(self) -> tuple[onnx.ModelProto, list[np.ndarray]]:
        """The model, and the arrays of its inputs in order."""
        arrays = self.arrays()
        names = ["" if a is None else n for n, a in zip("xwrblhcp", arrays, strict=False)]
        while not names[-1]:
            names.pop()
        wanted = self.outputs[: 3 if self.op == "LSTM" else 2]
        outs = [n if keep else "" for n, keep in zip(("Y", "Y_h", "Y_c"), wanted, strict=False)]
        fixed = [n for n in ("w", "r", "b", "p") if self.constant and n in names]
        by_name = {n: a for n, a in zip("xwrblhcp", arrays, strict=False) if a is not None}
        fed = [n for n in by_name if n not in fixed]
        node = helper.make_node(self.op, names, outs, hidden_size=self.hidden, **self.options)
        graph = helper.make_graph(
            [node], "layer", [_info(n, by_name[n], self.free) for n in fed],
            [helper.make_tensor_value_info(o, onnx.TensorProto.FLOAT, None) for o in outs if o],
            [numpy_helper.from_array(by_name[n], n) for n in fixed],
        )  # fmt: skip
        opset = 14 if "layout" in self.options else 7
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(opset, 13))], ir_version=8)
        return made, [by_name[n] for n in fed]


def _info(name: str, array: np.ndarray, free: bool) -> onnx.ValueInfoProto:
    shape = [None] * array.ndim if free and name in "xlhc" else list(array.shape)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def random_layer(seed: int) -> Layer:
    """Sizes around the edges of panels, tiles and vectors; each option on its own."""
    rng = np.random.default_rng([7, seed])
    pick = lambda *values: values[int(rng.integers(len(values)))]  # noqa: E731
    op = pick("LSTM", "GRU", "RNN")
    direction = pick("forward", "reverse", "bidirectional")
    layer = Layer(
        op=op, steps=pick(1, 2, 5), rows=pick(1, 2, 3, 7, 9), width=pick(1, 4, 17),
        hidden=pick(1, 3, 8, 16, 19, 33, 64),
        directions=2 if direction == "bidirectional" else 1, options={"direction": direction}, bias=bool(pick(0, 1, 1)),
        state=bool(pick(0, 1)), peephole=bool(pick(0, 0, 1)), constant=bool(pick(0, 1, 1)), free=bool(pick(0, 1)),
        seed=seed,
    )  # fmt: skip
    layer.outputs = pick((True, True, True), (True, False, False), (False, True, True), (True, False, True))
    if not any(layer.outputs[: 3 if op == "LSTM" else 2]):
        layer.outputs = (True, True, True)
    if pick(0, 1):
        layer.lengths = [int(rng.integers(0, layer.steps + 1)) for _ in range(layer.rows)]
    if pick(0, 0, 1):
        layer.options["clip"] = float(pick(0.1, 0.7))
    if op == "GRU":
        layer.options["linear_before_reset"] = pick(0, 1)
    if op == "LSTM" and pick(0, 0, 0, 1):
        layer.options["input_forget"] = 1
    if pick(0, 0, 1):
        _other_activations(layer, rng)
    return layer


def _other_activations(layer: Layer, rng: np.random.Generator) -> None:
    names = [NAMES[int(rng.integers(len(NAMES)))] for _ in range(ACTS[layer.op] * layer.directions)]
    layer.options["activations"] = names
    layer.options["activation_alpha"] = [0.3] * len(names)
    layer.options["activation_beta"] = [0.6] * len(names)
