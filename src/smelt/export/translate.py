"""FX graph of functional ATen ops -> ONNX model.

Input: a `torch.fx.GraphModule` whose nodes carry `meta["val"]` (AOTAutograd, torch.export, make_fx). Output: a
`Translation`. Invariant: one slot per placeholder and per result; every node is converted by the first of: a user's
converter, the table, torchlib, torch's decomposition; what none converts raises with the list of all such nodes.
"""

# What torch and sympy hand over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import Any, Final

import onnx_ir as ir
import sympy
import torch
import torch.fx
from torch._ops import OpOverload

import smelt.export.aten  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the table
from smelt.base.errors import ExportError
from smelt.export.assemble import assembled_model
from smelt.export.builder import Builder
from smelt.export.lower import Lowering, metas_of
from smelt.export.records import ExportOptions, ExportReport, InputSlot, Kind, OutputSlot, Refused, Translation
from smelt.export.sizes import Sizes, dim_of

_SYMBOLS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
_KINDS: Final[dict[type, tuple[Kind, ir.DataType]]] = {
    torch.SymInt: ("int", ir.DataType.INT64), int: ("int", ir.DataType.INT64),
    torch.SymFloat: ("float", ir.DataType.DOUBLE), float: ("float", ir.DataType.DOUBLE),
    torch.SymBool: ("bool", ir.DataType.BOOL), bool: ("bool", ir.DataType.BOOL),
}  # fmt: skip
_DEFAULTS: Final = ExportOptions()


def translate(gm: torch.fx.GraphModule, *, options: ExportOptions = _DEFAULTS) -> Translation:
    """Translate a functional ATen graph. Raises `ExportError` with every node that nothing converts."""
    return Translator(options).run(gm)


def reason_against(node: torch.fx.Node, options: ExportOptions = _DEFAULTS) -> str | None:
    """Why a node cannot be converted, or None when it can. Tried on the spot, with the node's own arguments."""
    if node.op != "call_function" or node.target is operator.getitem:
        return None if node.op in ("placeholder", "output", "call_function") else f"{node.op} nodes stay in torch"
    return Translator(options).unsupported(node)


class Translator:
    def __init__(self, options: ExportOptions) -> None:
        self.options = options
        self.builder = Builder(options.opset, runtime_types=options.runtime_types)
        self.sizes = Sizes(self.builder)
        self.report = ExportReport()
        self.lowering = Lowering(self.builder, self.sizes, options, self.report)
        self.inputs: list[ir.Value] = []
        self.slots: list[InputSlot] = []

    def run(self, gm: torch.fx.GraphModule, wanted: Sequence[int] | None = None) -> Translation:
        """`wanted`: which elements of the FX output to give, by default all."""
        start = time.perf_counter()
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        env: dict[torch.fx.Node, Any] = {}
        self._place(placeholders, env)
        failures = self.lowering.graph(gm, env)
        if failures:
            raise _failed(failures)
        outputs, slots = self._results(gm, env, placeholders, wanted)
        model, kept = assembled_model(self.builder, self.inputs, outputs)
        self.report.seconds = time.perf_counter() - start
        return Translation(model, tuple(self._fed(kept)), slots, self.report)

    def unsupported(self, node: torch.fx.Node) -> str | None:
        env: dict[torch.fx.Node, Any] = {}
        try:
            for source in node.all_input_nodes:
                if source.op == "get_attr":
                    self.lowering.node(source, env)
                else:
                    self._stand_in(source, env)
            for source in node.all_input_nodes:
                self._learn(source, env)
            self.lowering.node(node, env)
        except Refused as refused:
            return str(refused)
        return None

    # Inputs

    def _place(self, placeholders: list[torch.fx.Node], env: dict[torch.fx.Node, Any]) -> None:
        given = iter(self.options.input_names or ())
        for node in placeholders:
            if node.name in self.options.constants:
                env[node] = self.lowering.tensor_constant(node.name, self.options.constants[node.name])
                self.slots.append(InputSlot(node.name, "constant"))
            else:
                self._stand_in(node, env, next(given, node.name))
        for node in placeholders:
            self._learn(node, env)

    def _stand_in(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any], name: str | None = None) -> None:
        """A graph input in place of a node's result."""
        name = name or node.name
        meta = node.meta.get("val")
        if isinstance(meta, (list, tuple)):
            env[node] = [self._input(f"{name}_{index}", item) for index, item in enumerate(meta)]
            return
        env[node] = self._input(name, meta)
        if isinstance(meta, _SYMBOLS) and env[node] is not None and name != node.name:
            self.sizes.learn_scalar(env[node], dim_of(meta))

    def _input(self, name: str, meta: Any) -> ir.Value | None:
        if isinstance(meta, torch.Tensor):
            value = self.lowering.described(ir.Value(name=self.builder.unique(name)), meta)
            kind: Kind = "tensor"
        elif type(meta) in _KINDS:
            kind, dtype = _KINDS[type(meta)]
            value = ir.Value(name=self.builder.unique(name), type=ir.TensorType(dtype), shape=ir.Shape([]))
        else:
            self.slots.append(InputSlot(name, "unused"))
            return None
        self.slots.append(InputSlot(value.name or name, kind, len(self.inputs)))
        self.inputs.append(value)
        return value

    def _learn(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> None:
        """Sizes come from tensors first; `described` has seen those. A scalar input tells only what they do not."""
        meta = node.meta.get("val")
        if isinstance(meta, _SYMBOLS):
            expr = dim_of(meta)
            if isinstance(expr, sympy.Basic):
                self.sizes.learn_scalar(env[node], expr)
                env[node] = expr
            else:
                env[node] = expr

    def _fed(self, kept: list[ir.Value]) -> list[InputSlot]:
        places = {id(value): index for index, value in enumerate(kept)}
        slots: list[InputSlot] = []
        for slot in self.slots:
            place = None if slot.index is None else places.get(id(self.inputs[slot.index]))
            slots.append(
                slot
                if slot.index is None
                else InputSlot(slot.name, slot.kind if place is not None else "unused", place)
            )
        return slots

    # Outputs

    def _results(
        self,
        gm: torch.fx.GraphModule,
        env: dict[torch.fx.Node, Any],
        placeholders: list[torch.fx.Node],
        wanted: Sequence[int] | None,
    ) -> tuple[list[ir.Value], tuple[OutputSlot, ...]]:
        results = next(node for node in gm.graph.nodes if node.op == "output").args[0]
        items: Any = results if isinstance(results, (list, tuple)) else (results,)
        items = items if wanted is None else [items[index] for index in wanted]
        positions = {node: index for index, node in enumerate(placeholders)}
        outputs: list[ir.Value] = []
        slots: list[OutputSlot] = []
        told: dict[Any, OutputSlot] = {}  # a node that is returned twice is one output
        for index, item in enumerate(items):
            slot = told.get(item) or self._slot(index, item, env, positions, outputs)
            slots.append(slot)
            if isinstance(item, torch.fx.Node):
                told[item] = slot
        return outputs, tuple(slots)

    def _slot(
        self, index: int, item: Any, env: dict[torch.fx.Node, Any], positions: dict[torch.fx.Node, int],
        outputs: list[ir.Value],
    ) -> OutputSlot:  # fmt: skip
        names = self.options.output_names or ()
        name = names[index] if index < len(names) else getattr(item, "name", f"output_{index}")
        if item in positions if isinstance(item, torch.fx.Node) else False:
            return OutputSlot(name, "input", positions[item])
        result = env.get(item) if isinstance(item, torch.fx.Node) else item
        if result is None:
            return OutputSlot(name, "none")
        if not isinstance(result, (ir.Value, sympy.Basic)):
            return OutputSlot(name, "constant", value=result)
        meta: Any = item.meta.get("val") if isinstance(item, torch.fx.Node) else None
        kind: Kind = _KINDS.get(type(meta), ("tensor", None))[0]
        place = self._output(result, name, bool(names), outputs, _is_fresh(item))
        return OutputSlot(name, kind, place, dtype=meta.dtype if isinstance(meta, torch.Tensor) else None)

    def _output(self, result: Any, name: str, rename: bool, outputs: list[ir.Value], fresh: bool) -> int:
        value = result if isinstance(result, ir.Value) else self.sizes.scalar(result)
        again = next((index for index, known in enumerate(outputs) if known is value), None)
        if again is not None and not fresh:
            return again
        if value.producer() is None or again is not None:
            copied = self.builder.op("Identity", value)
            copied.shape = value.shape
            value = copied
        if rename or not isinstance(result, ir.Value):
            value.name = self.builder.unique(name)
        outputs.append(value)
        return len(outputs) - 1


def _is_fresh(item: Any) -> bool:
    """Whether torch promises memory of its own: two copies of one value are two outputs."""
    target = item.target if isinstance(item, torch.fx.Node) else None
    if not isinstance(target, OpOverload):
        return False
    schema: Any = target._schema  # pyright: ignore[reportPrivateUsage]
    return all(result.alias_info is None for result in schema.returns)


def _failed(failures: list[tuple[torch.fx.Node, str]]) -> ExportError:
    lines = [f"{node.name} ({node.target}): {reason}" for node, reason in failures]
    shown = "\n    ".join(lines[:20])
    error = ExportError(
        "SM-EXPORT-001", f"{len(lines)} nodes cannot be said in ONNX:\n    {shown}", node=failures[0][0].name
    )
    error.reasons = tuple(reason for _, reason in failures)
    return error


__all__ = ["metas_of", "reason_against", "translate"]
