"""What a model has to do at given inputs: flops and bytes.

Input: a model file and feeds. Output: `Work`. Invariant: sizes are those of a real run (ONNX Runtime's profile of the
graph as given, optimizers off); each input, output and weight is counted once, as if nothing in between touched
memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, Any]

# Multiply-adds that a float32 polynomial of full accuracy takes, as flops, per element of the output. Powers
# are squares and cubes in practice.
_FUNCTIONS: Final = {
    "Exp": 16, "Tanh": 24, "Erf": 24, "Sigmoid": 20, "Gelu": 28, "FastGelu": 28, "BiasGelu": 29, "QuickGelu": 22,
    "Softmax": 20, "LogSoftmax": 22, "Log": 20, "Sin": 16, "Cos": 16, "Softplus": 36, "Swish": 21, "Mish": 60,
    "Elu": 18, "Selu": 19, "Pow": 2, "HardSwish": 4, "HardSigmoid": 3, "LayerNormalization": 8,
    "SkipLayerNormalization": 9, "RMSNormalization": 5, "SimplifiedLayerNormalization": 5,
    "SkipSimplifiedLayerNormalization": 6,
    "InstanceNormalization": 8, "GroupNormalization": 8, "GroupNorm": 8, "BatchNormalization": 2, "RotaryEmbedding": 3,
    "QuantizeLinear": 3, "DequantizeLinear": 2,
}  # fmt: skip
# The profile does not show the shapes of weights that a kernel has packed for itself.
_WITH_WEIGHT_SHAPES: Final = {"session.disable_prepacking": "1"}
_ONE_EACH: Final = frozenset(
    ("Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "Neg", "Abs", "Relu", "LeakyRelu", "PRelu", "Clip", "Max", "Min",
     "Where", "Sum", "Mean", "CumSum")
)  # fmt: skip
# One flop per element that is read, since the output has fewer.
_REDUCTIONS: Final = ("Reduce", "GlobalAveragePool", "GlobalMaxPool")


@dataclass(frozen=True)
class Work:
    """`products` are the flops of matrix products and convolutions, `flops` all; `bytes` cross to memory once."""

    flops: float
    products: float
    bytes: float

    def limit_s(self, fma: float, bandwidth: float) -> float:
        """The time that no code can beat: the slower of arithmetic and memory."""
        return max(self.flops / fma, self.bytes / bandwidth)


@dataclass(frozen=True)
class _Node:
    """One node as it ran: its kind, the shapes that it read and wrote, and its attributes where the file has them."""

    kind: str
    inputs: list[list[int]]
    outputs: list[list[int]]
    attributes: Mapping[str, Any]

    def size(self, place: int = 0) -> float:
        return float(np.prod(self.outputs[place])) if len(self.outputs) > place else 0.0


def count_work(model: Path, feeds: Mapping[str, Array]) -> Work:
    """Runs the model once under the profiler."""
    with tempfile.TemporaryDirectory(prefix="smelt-work-") as folder:
        settings = SessionSettings(
            threads=1, optimization="disable", profile_prefix=Path(folder) / "run", config=_WITH_WEIGHT_SHAPES
        )
        session = session_for(model, None, settings)
        outputs = session.run(None, feeds)
        events = cast("list[dict[str, Any]]", json.loads(Path(session.end_profiling()).read_bytes()))
    graph = _graph(model)
    nodes = _nodes(events, graph)
    products = sum(_product(node) for node in nodes)
    others = sum(_element_wise(node) for node in nodes)
    moved = sum(a.nbytes for a in feeds.values()) + sum(int(getattr(a, "nbytes", 0)) for a in outputs)
    return Work(products + others, products, moved + _weight_bytes(graph))


def _graph(model: Path) -> Any:
    import onnx

    return onnx.load(str(model), load_external_data=False).graph


def _nodes(events: Sequence[Mapping[str, Any]], graph: Any) -> list[_Node]:
    suffix = "_kernel_time"
    stated = {node.name: node for node in graph.node if node.name}
    found: list[_Node] = []
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(suffix):
            facts = cast("Mapping[str, Any]", event["args"])
            kind, node = str(facts.get("op_name", "")), stated.get(name.removesuffix(suffix))
            attributes = _attributes(node) if node is not None and node.op_type == kind else {}
            found.append(
                _Node(kind, _shapes(facts, "input_type_shape"), _shapes(facts, "output_type_shape"), attributes)
            )
    return found


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _shapes(node: Mapping[str, Any], key: str) -> list[list[int]]:
    described = cast("list[dict[str, list[int]]]", node.get(key, []))
    return [shape for entry in described for shape in entry.values()]


# products: two flops a term


def _product(node: _Node) -> float:
    rule = _PRODUCTS.get(node.kind)
    return rule(node) if rule is not None and len(node.inputs) >= 1 and node.outputs else 0.0


def _matmul(node: _Node) -> float:
    depth = node.inputs[0][-2 if node.attributes.get("transA") and len(node.inputs[0]) > 1 else -1]
    return 2 * node.size() * depth


def _gemm(node: _Node) -> float:
    return 2 * node.size() * float(np.prod(node.inputs[0])) / max(1, node.outputs[0][0])


def _conv(node: _Node) -> float:
    """The weight's shape has the channels of one group: groups are counted right."""
    return 2 * node.size() * float(np.prod(node.inputs[1][1:]))


def _conv_transpose(node: _Node) -> float:
    return 2 * float(np.prod(node.inputs[0])) * float(np.prod(node.inputs[1][1:]))


def _einsum(node: _Node) -> float:
    """Every combination of indices is a term; an equation with an ellipsis is not counted."""
    equation = node.attributes.get("equation", b"")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    terms = text.split("->")[0].split(",")
    if "." in text or len(terms) < 2 or len(terms) != len(node.inputs):
        return 0.0
    pairs = zip(terms, node.inputs, strict=True)
    sizes = {letter: size for term, shape in pairs for letter, size in zip(term, shape, strict=True)}
    return 2 * float(np.prod(list(sizes.values()), dtype=np.float64))


def _attention(node: _Node) -> float:
    """Scores and their product with the values, over all keys, masked or not."""
    query, wide = node.inputs[0], node.outputs[0]
    if len(node.inputs) < 2 or len(query) not in (3, 4):
        return 0.0
    heads_first = len(query) == 4
    batch, rows = query[0], query[2] if heads_first else query[1]
    width = query[1] * query[3] if heads_first else query[2]
    out = wide[1] * wide[3] if len(wide) == 4 else wide[2]
    return 2.0 * batch * rows * _keys(node) * (width + out)


def _keys(node: _Node) -> int:
    """Keys that are attended to: with the past ones, where the node hands them on."""
    if len(node.outputs) > 1 and len(node.outputs[1]) == 4:
        return node.outputs[1][2]
    key = node.inputs[1]
    return key[2] if len(key) == 4 else key[1]


def _packed_attention(node: _Node) -> float:
    """ONNX Runtime's Attention: it projects its input to queries, keys and values first."""
    (batch, rows, depth), width = node.inputs[0], node.outputs[0][-1]
    keys = node.outputs[1][3] if len(node.outputs) > 1 and len(node.outputs[1]) == 5 else rows
    return 2.0 * batch * rows * depth * node.inputs[1][-1] + 4.0 * batch * rows * keys * width


def _any_attention(node: _Node) -> float:
    """Two ops have this name: one is given a weight, which is a matrix."""
    packed = len(node.inputs) > 1 and len(node.inputs[1]) == 2 and len(node.inputs[0]) == 3
    return _packed_attention(node) if packed else _attention(node)


_PRODUCTS: Final[dict[str, Callable[[_Node], float]]] = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "FusedConv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Attention": _any_attention,
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
}


def _element_wise(node: _Node) -> float:
    if node.kind in {"MaxPool", "AveragePool", "LpPool"}:
        window = cast("list[int]", node.attributes.get("kernel_shape", [1]))
        return node.size() * float(np.prod(window))
    if node.kind.startswith(_REDUCTIONS):
        return float(np.prod(node.inputs[0])) if node.inputs else 0.0
    return (_FUNCTIONS.get(node.kind) or (1 if node.kind in _ONE_EACH else 0)) * node.size()


def _weight_bytes(graph: Any) -> float:
    """Weights that are read whole; of an embedding table only the looked-up rows are, and they are few."""
    import onnx

    used = {name for node in graph.node for name in node.input[1 if node.op_type == "Gather" else 0 :]}
    tensors = cast("Sequence[onnx.TensorProto]", graph.initializer)
    sizes = {
        t.name: float(np.prod(t.dims)) * onnx.helper.tensor_dtype_to_np_dtype(t.data_type).itemsize for t in tensors
    }
    return sum(size for name, size in sizes.items() if name in used)
