"""Through which float16 or bfloat16 the outputs of a model come.

Input: a model. Output: for each output the coarsest such type that a node on its way gives, or a product of bfloat16
numbers rounds its rows to; "" where none does. Invariant: weights and inputs of such a type round nothing, and no
integer carries a rounding on.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from smelt.check.contract import PRODUCTS
from smelt.check.op_types import result_type
from smelt.ir.narrowed import reads_bfloat16
from smelt.ir.walk import nested_graphs, subgraphs

_COARSENESS: Final = {ir.DataType.FLOAT16: 1, ir.DataType.BFLOAT16: 2}
_NAMES: Final = ("", "float16", "bfloat16")


def rounded_types(model: ir.Model) -> list[str]:
    """By output."""
    found = _Roundings(model)
    found.follow(model.graph)
    return [_NAMES[found.coarseness.get(value, 0)] for value in model.graph.outputs]


class _Roundings:
    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.types: dict[ir.Value, ir.DataType] = {}
        self.coarseness: dict[ir.Value, int] = {}

    def follow(self, graph: ir.Graph) -> int:
        """The coarsest of all results of its nodes."""
        return max((self._follow_node(node) for node in graph), default=0)

    def _follow_node(self, node: ir.Node) -> int:
        inside = max((self.follow(body) for body in self._bodies(node)), default=0)
        read = max((self.coarseness.get(value, 0) for value in node.inputs if value is not None), default=0)
        carried = max(inside, read, _COARSENESS[ir.DataType.BFLOAT16] if _multiplies_bfloat16(node) else 0)
        return max((self._result(node, place, carried) for place in range(len(node.outputs))), default=0)

    def _result(self, node: ir.Node, place: int, carried: int) -> int:
        value = node.outputs[place]
        dtype = value.dtype or result_type(node, place, self.types)
        if dtype is not None:
            self.types[value] = dtype
            carried = max(carried, _COARSENESS.get(dtype, 0)) if dtype.is_floating_point() else 0
        self.coarseness[value] = carried
        return carried

    def _bodies(self, node: ir.Node) -> list[ir.Graph]:
        function = self.model.functions.get(node.op_identifier())
        called = [] if function is None else list(nested_graphs(function.graph))
        return [*subgraphs(node), *called]


def _multiplies_bfloat16(node: ir.Node) -> bool:
    return node.op_type in PRODUCTS and reads_bfloat16(node)
