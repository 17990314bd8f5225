"""Equal nodes -> one.

Input: a model. Output: the model where of two nodes of one graph with the same op, inputs and attributes one is left.
Invariant: random ops, control flow, calls of functions and ops of unknown domains stay; so do nodes that make graph
outputs.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import drop_node

_DOMAINS = frozenset(("", "com.microsoft"))
_RANDOM = frozenset(
    (
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout",
        "Sampling", "BiasDropout",
    )
)  # fmt: skip
_PLAIN = frozenset(
    (
        ir.AttributeType.INT,
        ir.AttributeType.FLOAT,
        ir.AttributeType.STRING,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRINGS,
    )
)


class CommonSubexpressions:
    """Compute equal things once."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        for graph in model_graphs(model):
            seen: dict[object, ir.Node] = {}
            for node in graph:
                key = _key(node, model)
                if key is None:
                    continue
                first = seen.setdefault(key, node)
                if first is not node and not any(value.is_graph_output() for value in node.outputs):
                    for old, new in zip(node.outputs, first.outputs, strict=True):
                        old.replace_all_uses_with(new)
                    drop_node(node)
                    changes[f"{node.op_type} merged"] += 1
        return Outcome(changes)


def _key(node: ir.Node, model: ir.Model) -> object | None:
    """What makes two nodes equal, or None for nodes that are never merged."""
    if node.domain not in _DOMAINS or node.op_type in _RANDOM or node.op_identifier() in model.functions:
        return None
    attributes: list[tuple[str, object]] = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.is_ref() or attribute.type not in _PLAIN:
            return None
        # Compared as text: 0.0 and -0.0 are equal as numbers, and NaN is not equal to itself.
        attributes.append((name, f"{attribute.type.name} {attribute.value!r}"))
    outputs = tuple(bool(value.name) for value in node.outputs)
    inputs = tuple(None if value is None else id(value) for value in node.inputs)
    return node.op_identifier(), inputs, outputs, tuple(attributes)
