"""Transpose of a Transpose -> one Transpose.

Input: a model. Output: the model where such pairs are one node, which the elimination of no-ops may then remove.
Invariant: the first Transpose stays if something else uses it.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import ints_attribute, is_op


class FuseTransposes:
    """Compose the permutations of two transposes in a row."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        for graph in model_graphs(model):
            for node in graph:
                source = node.inputs[0] if is_op(node, "Transpose") and node.inputs else None
                inner = source.producer() if source is not None else None
                if inner is None or not is_op(inner, "Transpose"):
                    continue
                first, second = _order(inner), _order(node)
                if first is None or second is None or len(first) != len(second):
                    continue
                if sorted(first) != list(range(len(first))) or sorted(second) != sorted(first):
                    continue
                node.attributes["perm"] = ir.AttrInt64s("perm", [first[axis] for axis in second])
                node.replace_input_with(0, inner.inputs[0])
                changes["Transpose pair fused"] += 1
        return Outcome(changes)


def _order(node: ir.Node) -> list[int] | None:
    """The permutation; without one the axes are reversed, which takes a known rank."""
    stated = ints_attribute(node, "perm")
    if stated is not None:
        return list(stated)
    known = [v.shape for v in (*node.inputs, *node.outputs) if v is not None and v.shape is not None]
    return list(range(len(known[0])))[::-1] if known else None
