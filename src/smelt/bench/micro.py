"""Small models that show one thing each, built by onnx.helper alone.

Input: a name. Output: a ModelProto and its feeds. Invariant: values stay finite and normal at every node (denormals
and infinities would time the hardware's slow paths instead of the code), and the graphs are spelled as torch exports
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from smelt.base import ConfigError

Array = np.ndarray[Any, Any]
_OPSET: Final = 18
_IR_VERSION: Final = 8


class Graph:
    """Nodes in the order of their calls; each call returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.rng = np.random.default_rng(0)

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], f"n{len(self.nodes)}", **attributes))
        return output

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, np.float32)
        return name

    def normal(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> str:
        return self.constant(self.rng.standard_normal(shape, np.float32) * scale + shift)

    def layer_norm(self, x: str, width: int) -> str:
        weight, bias = self.normal(width, scale=0.1, shift=1.0), self.normal(width, scale=0.1)
        return self("LayerNormalization", x, weight, bias, axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """x * (1 + erf(x / sqrt 2)) / 2, in the five nodes that exporters write."""
        inner = self("Add", self("Erf", self("Div", x, self.constant(math.sqrt(2)))), self.constant(1.0))
        return self("Mul", self("Mul", x, inner), self.constant(0.5))

    def model(self, inputs: dict[str, tuple[str | int, ...]], output: str, rank: int) -> onnx.ModelProto:
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, [None] * rank)
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "micro", values, [result], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)


@dataclass(frozen=True)
class MicroModel:
    name: str
    about: str
    build: Callable[[], tuple[onnx.ModelProto, dict[str, Array]]]


def _normalize() -> tuple[onnx.ModelProto, dict[str, Array]]:
    graph, x, width = Graph(), "x", 3072
    for _ in range(8):
        x = graph("Add", x, graph.gelu(graph.layer_norm(x, width)))
    return graph.model({"x": ("batch", "seq", width)}, x, 3), {"x": _data(1, 128, width)}


def _chain() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Twenty nodes, each value below 10 in size."""
    graph, x = Graph(), "x"
    for _ in range(2):
        a = graph("Tanh", graph("Mul", x, graph.constant(0.7)))
        b = graph("Exp", graph("Neg", a))
        c = graph("Div", a, graph("Add", b, graph.constant(0.5)))
        d = graph("Sqrt", graph("Add", graph("Mul", c, c), graph.constant(0.1)))
        x = graph("Sub", d, graph.constant(0.3))
    return graph.model({"x": ("rows", "columns")}, x, 2), {"x": _data(128, 3072)}


def _softmax() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The mask is -30: at -1e4 the exponentials of some peers pass through denormals, at five times the cost."""
    graph, x = Graph(), "x"
    for _ in range(4):
        scaled = graph("Mul", x, graph.constant(0.125))
        x = graph("Softmax", graph("Add", scaled, "mask"), axis=-1)
    mask = np.where(np.random.default_rng(1).random((1, 128, 128)) < 0.2, -30.0, 0.0).astype(np.float32)
    shapes: dict[str, tuple[str | int, ...]] = {"x": ("heads", "seq", "keys"), "mask": (1, "seq", "keys")}
    return graph.model(shapes, x, 3), {"x": _data(12, 128, 128), "mask": mask}


def _mlp() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A transformer's feed-forward block."""
    graph, width, inner = Graph(), 768, 3072
    up = graph("MatMul", graph.layer_norm("x", width), graph.normal(width, inner, scale=0.03))
    down = graph("MatMul", graph.gelu(graph("Add", up, graph.normal(inner))), graph.normal(inner, width, scale=0.02))
    out = graph("Add", "x", graph("Add", down, graph.normal(width)))
    return graph.model({"x": ("batch", "seq", width)}, out, 3), {"x": _data(1, 128, width)}


def _exp() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Exp eight times; a shift between them keeps the values in range."""
    graph, x = Graph(), "x"
    for _ in range(8):
        x = graph("Exp", graph("Sub", x, graph.constant(1.5)))
    return graph.model({"x": ("rows", "columns")}, x, 2), {"x": _data(128, 3072) * 0.2}


def _resize() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A step up between convolutions, whose images come and go in NCHW."""
    graph, channels = Graph(), 64
    made = graph("Conv", "x", graph.normal(channels, channels, 3, 3, scale=0.04), pads=[1, 1, 1, 1])
    wide = graph("Resize", made, "", graph.constant([1, 1, 2, 2]), mode="linear")
    out = graph("Conv", wide, graph.normal(channels // 2, channels, 3, 3, scale=0.04), pads=[1, 1, 1, 1])
    return graph.model({"x": ("batch", channels, 56, 56)}, out, 4), {"x": _data(1, channels, 56, 56)}


def _data(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


_MODELS: Final = (
    MicroModel("normalize", "8 x (LayerNorm, erf-GELU, residual) on (1,128,3072)", _normalize),
    MicroModel("chain", "20 element-wise nodes with exp, tanh, division on (128,3072)", _chain),
    MicroModel("softmax", "4 x masked softmax on (12,128,128)", _softmax),
    MicroModel("mlp", "LayerNorm, 768x3072, erf-GELU, 3072x768, residual on (1,128,768)", _mlp),
    MicroModel("exp", "8 x Exp on (128,3072)", _exp),
    MicroModel("resize", "3x3 Conv, linear Resize to twice the size, 3x3 Conv on (1,64,56,56)", _resize),
)
MICRO: Final[dict[str, MicroModel]] = {model.name: model for model in _MODELS}


def find_micro(name: str) -> MicroModel:
    found = MICRO.get(name)
    if found is None:
        raise ConfigError("SM-CONFIG-005", f"there is no micro model {name!r}", hint=f"Known are {', '.join(MICRO)}.")
    return found
