"""`torch.export.ExportedProgram` -> ONNX model.

Input: an exported program. Output: a `Translation` whose inputs and outputs are the user's alone. Invariant:
parameters, buffers and lifted constants become initializers that share torch's memory; the program itself is not
changed; the whole-program decomposition of torch runs only when in-place ops need it, and keeps what the table has.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, OutputKind

from smelt.export.inplace import made_functional
from smelt.export.records import ExportOptions, Translation
from smelt.export.registry import find
from smelt.export.translate import Translator

_USER = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def translate_program(program: Any, *, options: ExportOptions | None = None) -> Translation:
    """Translate an ExportedProgram. What it writes to its buffers or inputs is left out."""
    options = options or ExportOptions()
    program, gm = _functional(program)
    signature = program.graph_signature
    # By order: a copied graph may have other names.
    placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    specs = dict(zip(placeholders, signature.input_specs, strict=True))
    held = {name: _held(program, spec) for name, spec in specs.items()}
    constants = {name: tensor for name, tensor in held.items() if tensor is not None}
    results = [index for index, spec in enumerate(signature.output_specs) if spec.kind in _USER]
    translator = Translator(replace(options, constants={**constants, **options.constants}))
    translation = translator.run(gm, results)
    slots = zip(specs.values(), translation.inputs, strict=True)
    kept = tuple(slot for spec, slot in slots if spec.kind == InputKind.USER_INPUT)
    return replace(translation, inputs=kept)


def _held(program: Any, spec: Any) -> Any:
    if spec.kind == InputKind.PARAMETER or (spec.kind == InputKind.BUFFER and spec.persistent is not False):
        return program.state_dict[spec.target]
    if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
        return program.constants[spec.target]
    return None


def _functional(program: Any) -> tuple[Any, torch.fx.GraphModule]:
    """The program and a graph of it without in-place ops."""
    gm = program.graph_module
    if not any(_mutable(node) for node in gm.graph.nodes):
        return program, gm
    copied = torch.fx.GraphModule(gm, _copied(gm.graph))
    if made_functional(copied.graph):
        return program, copied
    program = program.run_decompositions(_needed())
    return program, program.graph_module


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    new = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    output = new.graph_copy(graph, made)
    if output is not None:
        new.output(output)
    return new


def _mutable(node: torch.fx.Node) -> bool:
    schema: Any = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def _needed() -> Any:
    """torch's decompositions without those of ops that have a converter."""
    table: Any = torch.export.default_decompositions()
    for target in list(table):
        if isinstance(target, torch._ops.OpOverload) and find(target.name()) is not None:  # pyright: ignore[reportPrivateUsage]
            del table[target]
    return table
