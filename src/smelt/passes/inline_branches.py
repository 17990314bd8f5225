"""If -> the branch that is taken.

Input: a model whose constants are folded and whose shapes are inferred. Output: the model without those If nodes whose
condition is a constant, or one of whose branches no run can take. Invariant: a branch goes only when its condition is
known, or when with it a node beside the If, which every run reaches that reaches the If, gets an operand of a rank that
its op forbids: whoever would take that branch gets an error there instead of later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from smelt.ir.body import body_model
from smelt.ir.walk import model_graphs, nested_graphs
from smelt.passes.fold_constants import FoldConstants
from smelt.passes.infer_shapes import InferShapes
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import ONNX, array_of, is_op, replace_value
from smelt.passes.simplify_shapes import SimplifyShapes

BRANCHES: Final = ("then_branch", "else_branch")
MOST_NODES: Final = 5000  # of a model that is tried with either branch
MOST_TRIED: Final = 16
ROUNDS: Final = 6
# Ranks that ONNX and ONNX Runtime demand of operands, by op and position.
RANKS: Final[dict[str, dict[int, int]]] = {
    "LSTM": {0: 3, 1: 3, 2: 3}, "GRU": {0: 3, 1: 3, 2: 3}, "RNN": {0: 3, 1: 3, 2: 3}, "Gemm": {0: 2, 1: 2},
}  # fmt: skip


class InlineBranches:
    """Put the branch of an If in its place where the other one is never taken."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        changes["constant condition"] += _inline_constant(model)
        if not changes["constant condition"]:
            changes["branch that no run can take"] += _inline_possible(model)
        return Outcome(+changes)


def _conditionals(root: ir.Graph) -> Iterator[tuple[ir.Node, dict[str, ir.Graph]]]:
    for graph in nested_graphs(root):
        for node in graph:
            if not is_op(node, "If") or len(node.inputs) != 1:
                continue
            branches = {name: node.attributes[name].as_graph() for name in BRANCHES if _has_graph(node, name)}
            if len(branches) == len(BRANCHES):
                yield node, branches


def _has_graph(node: ir.Node, name: str) -> bool:
    found = node.attributes.get(name)
    return found is not None and not found.is_ref() and found.type == ir.AttributeType.GRAPH


def _inline_constant(model: ir.Model) -> int:
    """Those whose condition is a constant, and those nested in what they leave."""
    count = 0
    while True:
        known = next(
            ((n, b, c) for n, b in _conditionals(model.graph) if (c := array_of(n.inputs[0], 1)) is not None), None
        )
        if known is None:
            return count
        node, branches, condition = known
        taken = bool(condition.reshape(-1)[0]) if condition.size else False
        _inline(model, node, branches["then_branch" if taken else "else_branch"])
        count += 1


def _inline(model: ir.Model, node: ir.Node, branch: ir.Graph) -> None:
    """Move the branch's nodes and constants to where the If stands."""
    graph = node.graph
    assert graph is not None
    outputs, constants, nodes = list(branch.outputs), list(branch.initializers.values()), list(branch)
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    _rename(model, [*constants, *(v for n in nodes for v in n.outputs)])
    for value in constants:
        graph.register_initializer(value)
    graph.insert_before(node, nodes)
    for old, new in zip(node.outputs, outputs, strict=False):
        if not replace_value(old, new):
            _copy_to(old, new, node)
    graph.remove(node, safe=True)


def _copy_to(old: ir.Value, new: ir.Value, node: ir.Node) -> None:
    """A graph output that is a constant, an outer value or another output as well."""
    copied = ir.Value(name=f"{old.name}.copy", type=old.type, shape=new.shape)
    identity = ir.Node(ONNX, "Identity", [new], outputs=[copied], name=f"{node.name}.copy")
    assert node.graph is not None
    node.graph.insert_before(node, identity)
    replace_value(old, copied)


def _rename(model: ir.Model, moved: list[ir.Value]) -> None:
    """Branches may use the names of other scopes, which one graph may not."""
    taken: set[str | None] = set()
    for graph in model_graphs(model, functions=True):
        taken.update(v.name for v in graph.inputs)
        taken.update(graph.initializers)
        taken.update(v.name for n in graph for v in n.outputs)
    for value in moved:
        name, number = value.name or "smelt_branch", 0
        while name in taken:
            name, number = f"{value.name or 'smelt_branch'}_{number}", number + 1
        if name != value.name:
            value.name = name
        taken.add(name)


# Branches that no run can take


def _inline_possible(model: ir.Model) -> int:
    """Of an If whose branches give other ranks: the one with which its graph is not refused."""
    candidates = [one for one in _conditionals(model.graph) if _differ(one) and _ranked(one)]
    if not candidates or sum(1 for graph in model_graphs(model) for _ in graph) > MOST_NODES:
        return 0
    count = 0
    for node, branches in reversed(candidates[:MOST_TRIED]):  # inner ones first
        possible = [name for name in BRANCHES if not _refused(model, node, name)]
        if len(possible) == 1:
            _inline(model, node, branches[possible[0]])
            count += 1
    return count


def _differ(one: tuple[ir.Node, dict[str, ir.Graph]]) -> bool:
    """Or are not known to be the same: what a branch gives need not be declared."""
    ranks = [[v.shape.rank() if v.shape is not None else None for v in g.outputs] for g in one[1].values()]
    return ranks[0] != ranks[1] or None in ranks[0]


def _ranked(one: tuple[ir.Node, dict[str, ir.Graph]]) -> bool:
    """Whether an op that demands ranks stands beside the If, or in a branch that would."""
    beside = one[0].graph
    assert beside is not None
    return any(_wanted(node) for graph in nested_graphs(beside) for node in graph)


def _refused(model: ir.Model, node: ir.Node, name: str) -> bool:
    """Whether, with this branch taken, a node beside the If gets an operand of a rank that its op forbids."""
    assert node.graph is not None
    place = next(place for place, (one, _) in enumerate(_conditionals(node.graph)) if one is node)
    trial = body_model(node.graph, model).model
    node, branches = list(_conditionals(trial.graph))[place]
    _inline(trial, node, branches[name])
    for _ in range(ROUNDS):
        _forget_shapes(trial)
        InferShapes()(trial)
        if any(_forbidden(one) for one in trial.graph):
            return True
        FoldConstants()(trial)
        SimplifyShapes()(trial)
        if not _inline_constant(trial):
            return False
    return False


def _forget_shapes(model: ir.Model) -> None:
    """Declared shapes are hints, from runs that took whichever branch."""
    for graph in model_graphs(model):
        for node in graph:
            for value in node.outputs:
                value.shape = None


def _wanted(node: ir.Node) -> dict[int, int]:
    return RANKS.get(node.op_type, {}) if node.domain in (ONNX, "ai.onnx") else {}


def _forbidden(node: ir.Node) -> bool:
    wanted = _wanted(node)
    operands = ((v, wanted[place]) for place, v in enumerate(node.inputs) if place in wanted)
    return any(v is not None and v.shape is not None and v.shape.rank() != rank for v, rank in operands)
