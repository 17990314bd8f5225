"""Models to examine, made from the prepared model and its regions.

Input: the prepared model and the code of its regions. Output: rewritten copies, and each region as a model of its own.
Invariant: the prepared model is unchanged; names inside a region's own models are generated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from smelt.check.copies import copy_model
from smelt.check.op_types import op_types_of
from smelt.codegen import attach_packed, panel_nodes, with_inputs
from smelt.ir.backend import Generated, Packed, RegionCode
from smelt.ir.records import Plan, Region
from smelt.ir.walk import model_nodes
from smelt.partition import rewrite
from smelt.passes import run_passes


@dataclass(frozen=True)
class Alone:
    """A region as two models: one custom op, and the nodes that it replaces. Inputs are named by place, i0, i1 ...

    `inputs` and `plain_inputs` are the values of the prepared model that feed them; constants are inside.
    """

    index: int
    entry: str
    custom: ir.Model
    plain: ir.Model
    inputs: tuple[ir.Value, ...]
    plain_inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    op_types: tuple[str, ...]


class Variants:
    """Copies of the model with some regions replaced. Packed constants are made once and shared."""

    def __init__(self, model: ir.Model, generated: Generated) -> None:
        self.model = model
        self.generated = generated
        self._is_packed = False

    def rewritten(self, keep: Collection[int] | None = None) -> tuple[ir.Model, dict[str, int]]:
        """A copy where the regions in `keep` (all when None) are custom ops, and the region of each such node."""
        chosen = [
            (region, code, entry)
            for region, code, entry in self._regions()
            if keep is None or region.index in keep
        ]  # fmt: skip
        copied = copy_model(self.model, [region for region, _, _ in chosen])
        copy, values = copied.model, copied.values
        codes = [_moved_code(code, values) for _, code, _ in chosen]
        back = {new: old for old, new in values.items()}
        packed = attach_packed(copy, codes, self.generated.packed, back)
        self._is_packed = self._is_packed or keep is None
        regions = [with_inputs(region, code, packed) for region, code in zip(copied.regions, codes, strict=True)]
        names = {region.index: entry for region, _, entry in chosen}
        domain = self.generated.source.domain
        rewrite(copy, Plan(tuple(regions), ()), domain, names)
        run_passes(copy, only=("remove-unused",))
        return copy, _custom_nodes(copy, domain, regions)

    def alone(self) -> list[Alone]:
        """Every region as models of its own."""
        if not self._is_packed:
            self.rewritten()  # packs the constants
        return [self._alone(r, code, entry) for r, code, entry in self._regions()]

    def nested(self) -> tuple[int, ...]:
        """Regions inside bodies of control flow, of which a call takes one branch, and loops many turns."""
        graph = self.model.graph
        return tuple(region.index for region, _, _ in self._regions() if region.nodes[0].graph is not graph)

    def _regions(self) -> Iterable[tuple[Region, RegionCode, str]]:
        return zip(self.generated.regions, self.generated.codes, self.generated.entry_of, strict=True)

    def _alone(self, region: Region, code: RegionCode, entry: str) -> Alone:
        types = {e.name: e.out_types for e in self.generated.source.entries}[entry]
        outputs = [ir.Value(name=f"o{i}", type=ir.TensorType(ir.DataType(t))) for i, t in enumerate(types)]
        builder = _Builder()
        inputs: list[ir.Value] = []
        nodes: list[ir.Node] = []
        operands = [self._operand(v, builder, inputs, nodes) for v in code.inputs]
        nodes.append(ir.Node(self.generated.source.domain, entry, operands, outputs=outputs))
        custom = builder.model(nodes, outputs, {self.generated.source.domain: 1, "": self.model.opset_imports[""]})
        plain, plain_inputs = _plain_model(region, dict(self.model.opset_imports))
        op_types = tuple(op_types_of(region.nodes))
        return Alone(region.index, entry, custom, plain, tuple(inputs), plain_inputs, region.outputs, op_types)

    def _operand(
        self, wanted: ir.Value | Packed, builder: _Builder, inputs: list[ir.Value], nodes: list[ir.Node]
    ) -> ir.Value:
        """What a region alone reads: a constant, an input of its model, or a weight that its model lays out first."""
        source = wanted.source if isinstance(wanted, Packed) else wanted
        if isinstance(wanted, Packed) and (source, wanted.layout) in self.generated.packed:
            return builder.operand(self.generated.packed[(source, wanted.layout)])
        if source.const_value is not None:
            return builder.operand(source.const_value)
        inputs.append(source)
        given = builder.operand(source)
        if not isinstance(wanted, Packed):
            return given
        made, value = panel_nodes(source, given, wanted.layout, f"p{len(inputs)}")
        nodes += made
        return value


class _Builder:
    """Collects the inputs and constants of a small model."""

    def __init__(self) -> None:
        self.inputs: dict[ir.Value, ir.Value] = {}
        self.order: list[ir.Value] = []
        self.constants: list[ir.Value] = []

    def operand(self, source: ir.Value | ir.TensorProtocol) -> ir.Value:
        if isinstance(source, ir.Value):
            made = ir.Value(name=f"i{len(self.order)}", type=ir.TensorType(source.dtype or ir.DataType.FLOAT))
            self.order.append(made)
            return made
        made = ir.Value(
            name=f"c{len(self.constants)}", type=ir.TensorType(source.dtype), shape=ir.Shape(source.shape.numpy())
        )
        made.const_value = source
        self.constants.append(made)
        return made

    def model(self, nodes: list[ir.Node], outputs: list[ir.Value], opsets: dict[str, int]) -> ir.Model:
        graph = ir.Graph(
            self.order, outputs, nodes=nodes, initializers=self.constants, opset_imports=opsets, name="region"
        )
        return ir.Model(graph, ir_version=10)


def _plain_model(region: Region, opsets: dict[str, int]) -> tuple[ir.Model, tuple[ir.Value, ...]]:
    """The region's nodes as a model. Values are renamed: their own names may be anything."""
    builder = _Builder()
    known: dict[ir.Value, ir.Value] = {}
    feeding: list[ir.Value] = []
    nodes: list[ir.Node] = []
    for node in region.nodes:
        operands: list[ir.Value | None] = []
        for value in node.inputs:
            if value is not None and value not in known:
                known[value] = builder.operand(value.const_value or value)
                if value.const_value is None:
                    feeding.append(value)
            operands.append(None if value is None else known[value])
        place = len(nodes)
        outputs = [ir.Value(name=f"n{place}_{i}" if v.name else "", type=v.type) for i, v in enumerate(node.outputs)]
        known.update(zip(node.outputs, outputs, strict=True))
        attributes: list[Any] = list(node.attributes.values())
        nodes.append(_copied(node, operands, attributes, outputs))
    return builder.model(nodes, [known[v] for v in region.outputs], opsets), tuple(feeding)


def _moved_code(code: RegionCode, values: dict[ir.Value, ir.Value]) -> RegionCode:
    inputs = tuple(replace(v, source=values[v.source]) if isinstance(v, Packed) else values[v] for v in code.inputs)
    return replace(code, inputs=inputs, outputs=tuple(values[v] for v in code.outputs))


def _custom_nodes(model: ir.Model, domain: str, regions: Sequence[Region]) -> dict[str, int]:
    by_output = {region.outputs[0].name: region.index for region in regions}
    return {
        node.name or "": by_output[node.outputs[0].name]
        for node in model_nodes(model)
        if node.domain == domain and node.outputs[0].name in by_output
    }


def _copied(
    node: ir.Node, operands: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], outputs: Sequence[ir.Value]
) -> ir.Node:
    """With its marks (ir/narrowed.py), which tell how precise its result is."""
    marks = dict(node.metadata_props)
    return ir.Node(
        node.domain, node.op_type, operands, attributes, outputs=outputs, version=node.version, metadata_props=marks
    )
