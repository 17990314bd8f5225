"""Nodes whose inputs are all constant -> initializers.

Input: a model. Output: the model with such nodes replaced by their results. Invariant: no result is larger than a limit
that is checked before it is computed, so a model cannot make the compiler use more memory than it brought along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

import onnx_ir as ir

from smelt.ir.narrowed import is_narrowed
from smelt.ir.walk import model_graphs, subgraphs
from smelt.passes._evaluate import FOLDABLE, Case, evaluate
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import ONNX, Array, Names, add_constant, array_of, drop_node, tensor_of

SMALL = 1 << 16
WEIGHT = 1 << 24
TOTAL = 1 << 28
# Standardized and normalized weights. Results are no larger than their operands.
_COMPUTED_OPS = frozenset(("BatchNormalization", "ReduceMean", "Add", "Sub", "Mul", "Div", "Sqrt", "ReduceSum"))
_LAYOUT_OPS = frozenset(("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Cast"))


class FoldConstants:
    """Evaluate constant nodes with numpy, in topological order."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        opset = model.opset_imports.get(ONNX, 0)
        budget = TOTAL
        for graph in model_graphs(model):
            fixed = _fixed(graph)
            for node in graph:
                result = _result(node, opset, budget, fixed)
                if result is None:
                    continue
                budget -= result.size
                replace_by_constant(node, graph, result, names)
                changes[f"{node.op_type} folded"] += 1
        return Outcome(changes)


def _fixed(graph: ir.Graph) -> set[ir.Value]:
    """What follows from constants alone, by ops that have a rule."""
    found: set[ir.Value] = set()
    for node in graph:
        known = all(v is None or v in found or tensor_of(v) is not None for v in node.inputs)
        if known and node.op_type in FOLDABLE and node.domain == ONNX:
            found.update(node.outputs)
    return found


def _result(node: ir.Node, opset: int, budget: int, fixed: Container[ir.Value]) -> Array | None:
    output_is_fixed = not node.outputs or node.outputs[0].is_graph_output()
    output_is_fixed |= any(value.uses() or value.is_graph_output() for value in node.outputs[1:])
    if is_narrowed(node):
        return None
    if node.domain != ONNX or output_is_fixed or not node.inputs or any(True for _ in subgraphs(node)):
        return None
    limit = min(_limit(node, fixed), budget)
    inputs: list[Array | None] = []
    for value in node.inputs:
        array = array_of(value, limit)
        if value is not None and array is None:
            return None
        inputs.append(array)
    result = evaluate(Case(node, inputs, opset, limit))
    expected = node.outputs[0].dtype
    if result is None or (expected is not None and expected.numpy() != result.dtype):
        return None
    return result


def _limit(node: ir.Node, fixed: Container[ir.Value]) -> int:
    """A weight may change its layout at compile time if the original then goes away, and be computed from others whose
    users are all folded."""
    if node.op_type in _COMPUTED_OPS and all(v is None or _is_only_folded(v, fixed) for v in node.inputs):
        return WEIGHT
    first = node.inputs[0]
    if node.op_type in _LAYOUT_OPS and first is not None and tensor_of(first) is not None and len(first.uses()) == 1:
        return WEIGHT
    return SMALL


def _is_only_folded(value: ir.Value, fixed: Container[ir.Value]) -> bool:
    tensor = tensor_of(value)
    small = tensor is not None and tensor.size <= SMALL
    return small or all(user.outputs and user.outputs[0] in fixed for user, _ in value.uses())


def _name(node: ir.Node) -> str | None:
    """A weight in another layout is still known by its name."""
    source = node.inputs[0]
    if (
        node.op_type not in _LAYOUT_OPS
        or source is None
        or not source.is_initializer()
        or (source.name or "").startswith("smelt_")
    ):
        return None
    return f"{source.name}.{node.op_type.lower()}"


def replace_by_constant(node: ir.Node, graph: ir.Graph, result: Array, names: Names) -> None:
    """Put the result in the node's place; constants that nothing reads any more go."""
    constant = add_constant(graph, result, names, _name(node))
    for user, index in node.outputs[0].uses():
        user.replace_input_with(index, constant)
    sources = [value for value in node.inputs if value is not None]
    drop_node(node)
    for value in sources:
        home = value.graph
        dead = value.is_initializer() and not (value.uses() or value.is_graph_output() or value.is_graph_input())
        if dead and home is not None and value.name is not None:
            home.initializers.pop(value.name, None)
