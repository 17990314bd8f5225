"""A module and the arguments of one call -> a graph for all calls of that kind.

Input: a module, arguments, which sizes may vary. Output: `Captured`: a functional ATen graph, where its leading inputs
come from in the module, and a `Guard` that says which calls it serves. Invariant: a call that passes the guard gives
the same results as tracing it anew; sizes that tracing did not fix are free.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from smelt.frontends.tracing import all_free, named_arguments, quiet

from .guard import CaptureError, Guard


@dataclass(frozen=True)
class Captured:
    """`owned`: where the graph's leading inputs lie in the module, by kind and name. `written`: buffers whose new
    values are the graph's leading results. `results`: the user's results: a place among the rest, or a constant."""

    program: ExportedProgram
    owned: tuple[tuple[InputKind, str], ...]
    fed: tuple[int, ...]
    written: tuple[str, ...]
    results: tuple[tuple[bool, Any], ...]
    out_spec: Any
    guard: Guard

    @property
    def graph(self) -> torch.fx.GraphModule:
        return self.program.graph_module


def capture(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: bool) -> Captured:
    """Trace the module. Every size is free that the module leaves free, if `dynamic`."""
    try:
        with torch.no_grad(), quiet(), named_arguments(module, args, kwargs):
            shapes = all_free(module, args, kwargs) if dynamic else None
            program = export(module, tuple(args), dict(kwargs), dynamic_shapes=shapes, strict=False)
            program = program.run_decompositions({})
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise CaptureError(f"{type(error).__name__}: {first[:300]}") from error
    return captured(program)


def captured(program: ExportedProgram) -> Captured:
    signature = program.graph_signature
    owned: list[tuple[InputKind, str]] = []
    fed: list[int] = []
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            fed.append(len(fed))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            owned.append((spec.kind, str(spec.target)))
        else:
            raise CaptureError(f"inputs of the kind {spec.kind.name} are not supported")
    written: list[str] = []
    results: list[tuple[bool, Any]] = []
    for spec in signature.output_specs:
        if spec.kind == OutputKind.BUFFER_MUTATION:
            written.append(str(spec.target))
        elif spec.kind != OutputKind.USER_OUTPUT:
            raise CaptureError("the module writes to its arguments")
        elif isinstance(spec.arg, ConstantArgument):
            results.append((True, spec.arg.value))
        else:
            results.append((False, len(results)))
    guard = Guard.of(program)
    spec = program.call_spec.out_spec
    return Captured(program, tuple(owned), tuple(fed), tuple(written), tuple(results), spec, guard)
