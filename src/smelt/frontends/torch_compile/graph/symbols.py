"""Symbolic sizes of a graph as functions of its arguments, and what they were while tracing.

Input: the placeholders of an FX graph and shapes over their symbols. Output: a function from arguments to sizes, or
None where a size depends on data; marks of the sizes that tracing saw. Invariant: for the arguments that the graph was
traced for, the sizes are those that tracing saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx_ir as ir
import torch

from smelt.export import Translation
from smelt.frontends.torch_compile._torch import PythonPrinter, example_of
from smelt.ir.traced import mark_traced_shape, mark_traced_size

Shapes = Sequence[Sequence[int]]
Sizes = Callable[[Sequence[Any]], Shapes]
_NAME: Final = "size"


def sizes_of(placeholders: Sequence[torch.fx.Node], shapes: Sequence[Sequence[Any]]) -> Sizes | Shapes | None:
    """The shapes, or a function that tells them from the arguments; None when one cannot be told before the call."""
    if all(isinstance(size, int) for shape in shapes for size in shape):
        return tuple(tuple(shape) for shape in shapes)
    where = _places(placeholders)
    texts: list[str] = []
    used: dict[str, str] = {}
    for shape in shapes:
        parts = [_text(size, where, used) for size in shape]
        if any(part is None for part in parts):
            return None
        texts.append("(" + "".join(f"{part}, " for part in parts) + ")")
    return _function(used, f"({''.join(f'{text}, ' for text in texts)})")


def deciding_integers(placeholders: Sequence[torch.fx.Node]) -> list[int]:
    """Places of integer arguments that together decide the sizes of all tensors; nothing where they do not."""
    values = [node.meta.get("val") for node in placeholders]
    integers = {at: _expr(value) for at, value in enumerate(values) if isinstance(value, torch.SymInt)}
    known = set(integers.values())
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in (*value.shape, *value.stride())]
    symbols: list[Any] = [s for size in sizes if isinstance(size, torch.SymInt) for s in _expression(size).free_symbols]
    return list(integers) if {str(symbol) for symbol in symbols} <= known else []


def mark_traced(model: ir.Model, graph: torch.fx.GraphModule, translation: Translation) -> None:
    """Tell verification the numbers that tracing saw: integers that decide sizes fit few others."""
    values = {value.name: value for value in model.graph.inputs}
    inputs = translation.model.graph.inputs
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for slot, node in zip(translation.inputs, placeholders, strict=True):
        value = None if slot.index is None else values.get(inputs[slot.index].name)
        traced: Any = node.meta.get("val")
        if value is None:
            continue
        if slot.kind == "int" and isinstance(traced, torch.SymInt):
            example = example_of(traced)
            if example is not None:
                mark_traced_size(value, _expr(traced), example)
        elif isinstance(traced, torch.Tensor) and value.shape is not None:
            sizes = [example_of(size) for size in shape_in_session(traced)]
            if len(sizes) == len(value.shape) and None not in sizes:
                mark_traced_shape(value, [size for size in sizes if size is not None])


def shape_in_session(value: torch.Tensor) -> Sequence[Any]:
    """Of a complex tensor, that of pairs of real numbers."""
    return (*value.shape, 2) if value.is_complex() else value.shape


def _places(placeholders: Sequence[torch.fx.Node]) -> dict[str, str]:
    """Where each symbol is read: an integer argument, or a size of a tensor argument."""
    found: dict[str, str] = {}
    for place, node in enumerate(placeholders):
        value: Any = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            found.setdefault(_expr(value), f"args[{place}]")
    for place, node in enumerate(placeholders):
        value: Any = node.meta.get("val")
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                found.setdefault(_expr(size), f"args[{place}].shape[{axis}]")
    return found


def _expression(size: Any) -> Any:
    return size.node.expr


def _expr(size: Any) -> str:
    return str(size.node.expr)


def _text(size: Any, where: dict[str, str], used: dict[str, str]) -> str | None:
    if isinstance(size, int):
        return str(size)
    expr = size.node.expr
    if str(expr) in where:
        return where[str(expr)]
    for symbol in sorted(expr.free_symbols, key=str):
        if str(symbol) not in where:
            return None
        used.setdefault(str(symbol), where[str(symbol)])
    try:
        return str(PythonPrinter().doprint(expr))
    except NotImplementedError:
        return None


def _function(used: dict[str, str], result: str) -> Sizes | None:
    import math

    lines = [f"def {_NAME}(args):", *(f"    {name} = {text}" for name, text in used.items()), f"    return {result}"]
    space: dict[str, Any] = {"math": math}
    # The text is made of symbols that torch named and of integer arithmetic; nothing of the user's is in it.
    exec("\n".join(lines), space)  # noqa: S102
    return space[_NAME]
