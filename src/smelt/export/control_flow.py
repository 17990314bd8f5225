"""torch's control flow -> If, Loop, Scan.

Input: a higher-order call: nested graphs and operands. Output: one ONNX node with subgraphs. Invariant: a subgraph
reads values from around it freely; nothing made inside it, sizes included, is known outside. Graphs that torch merely
wraps (`set_grad_enabled`, `autocast`, `invoke_subgraph`) are lowered in place.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir
import sympy
import torch
import torch.fx

from smelt.export.dtypes import BOOL, INT64
from smelt.export.records import Refused

if TYPE_CHECKING:
    from smelt.export.lower import Lowering

_NO_LIMIT: Final = (1 << 63) - 1


def lower_higher_order(lowering: Lowering, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The results of a higher-order call: a list of values."""
    rule = _RULES.get(name)
    if rule is None:
        raise Refused(f"control flow of the kind {name} has no form in ONNX")
    return rule(lowering, *args, **kwargs)


def _cond(lowering: Lowering, predicate: Any, then: Any, otherwise: Any, operands: Sequence[Any] = ()) -> Any:
    if isinstance(predicate, bool):
        return lowering.inlined(then if predicate else otherwise, list(operands))
    branches = [_graph(lowering, name, gm, operands) for name, gm in (("then", then), ("else", otherwise))]
    count = len(branches[0].outputs)
    if count != len(branches[1].outputs):
        raise Refused("the branches give different numbers of results")
    return _node(
        lowering,
        "If",
        [_flag(lowering, predicate)],
        branches[0].outputs,
        then_branch=branches[0],
        else_branch=branches[1],
    )


def _while(lowering: Lowering, test: Any, body: Any, carried: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    """The test runs once before the loop and then at the end of each round."""
    start = [_value(lowering, item) for item in carried]
    first = _flag(lowering, _single(lowering.inlined(test, [*start, *extra])))
    builder = lowering.builder
    round_number = _inner(lowering, "round", INT64, [])
    going = _inner(lowering, "going", BOOL, [])
    state = [_like(lowering, value) for value in start]
    with lowering.inside() as scope:
        new = [_value(lowering, item) for item in lowering.inlined(body, [*state, *extra])]
        again = _flag(lowering, _single(lowering.inlined(test, [*new, *extra])))
        results = [_own(lowering, value) for value in (again, *new)]
    graph = ir.Graph([round_number, going, *state], results, nodes=scope.nodes, name=builder.unique("body"))
    limit = builder.constant(_NO_LIMIT, INT64)
    return _node(lowering, "Loop", [limit, first, *start], results[1:], body=graph)


def _scan(lowering: Lowering, step: Any, initial: Sequence[Any], rows: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    if not rows:
        raise Refused("a scan over nothing")
    start = [_value(lowering, item) for item in initial]
    scanned = [_value(lowering, item) for item in rows]
    state = [_like(lowering, value) for value in start]
    slices = [_row_of(lowering, value) for value in scanned]
    with lowering.inside() as scope:
        made = lowering.inlined(step, [*state, *slices, *extra])
        results = [_own(lowering, _value(lowering, item)) for item in made]
    graph = ir.Graph([*state, *slices], results, nodes=scope.nodes, name=lowering.builder.unique("body"))
    return _node(lowering, "Scan", [*start, *scanned], results, body=graph, num_scan_inputs=len(scanned))


def _map(lowering: Lowering, step: Any, rows: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    return _scan(lowering, step, [], rows, extra)


def _wrapped(lowering: Lowering, *args: Any, **_: Any) -> Any:
    """A graph among settings that say nothing to ONNX, and its operands."""
    at = next((index for index, arg in enumerate(args) if isinstance(arg, torch.fx.GraphModule)), None)
    if at is None:
        raise Refused("a wrapped call without a graph")
    operands = [arg for arg in args[at + 1 :] if not isinstance(arg, str)]
    return lowering.inlined(args[at], operands)


_RULES: Final[dict[str, Callable[..., Any]]] = {
    "cond": _cond, "while_loop": _while, "scan": _scan, "map_impl": _map, "wrap_with_set_grad_enabled": _wrapped,
    "wrap_with_autocast": _wrapped, "invoke_subgraph": _wrapped, "wrap": _wrapped,
}  # fmt: skip


# Values


def _value(lowering: Lowering, item: Any) -> ir.Value:
    return item if isinstance(item, ir.Value) else lowering.sizes.scalar(item)


def _single(results: Any) -> Any:
    return results[0] if isinstance(results, (list, tuple)) else results


def _flag(lowering: Lowering, predicate: Any) -> ir.Value:
    """A condition as a 0-d bool."""
    if isinstance(predicate, (bool, sympy.Basic)):
        return lowering.sizes.scalar(predicate, BOOL)
    value = lowering.builder.cast(_value(lowering, predicate), BOOL)
    if value.shape is not None and len(value.shape) == 0:
        return value
    return lowering.builder.op("Reshape", value, lowering.builder.constant([], INT64), shape=[])


def _inner(lowering: Lowering, name: str, dtype: ir.DataType | None, dims: Sequence[Any]) -> ir.Value:
    kind = ir.TensorType(dtype) if dtype is not None else None
    return ir.Value(name=lowering.builder.unique(name), type=kind, shape=ir.Shape(dims))


def _like(lowering: Lowering, value: ir.Value) -> ir.Value:
    """An input of a subgraph for what the value holds round by round."""
    return _inner(lowering, f"{lowering.builder.prefix}.state", value.dtype, _dims(value))


def _row_of(lowering: Lowering, value: ir.Value) -> ir.Value:
    return _inner(lowering, f"{lowering.builder.prefix}.row", value.dtype, _dims(value)[1:])


def _dims(value: ir.Value) -> list[Any]:
    if value.shape is None:
        raise Refused(f"the rank of {value.name} is not known")
    return list(value.shape.dims)


def _graph(lowering: Lowering, name: str, gm: Any, operands: Sequence[Any]) -> ir.Graph:
    """A branch: a subgraph without inputs of its own."""
    with lowering.inside() as scope:
        made = lowering.inlined(gm, list(operands))
        items = made if isinstance(made, (list, tuple)) else [made]
        results = [_own(lowering, _value(lowering, item)) for item in items]
    return ir.Graph([], results, nodes=scope.nodes, name=lowering.builder.unique(name))


def _own(lowering: Lowering, value: ir.Value) -> ir.Value:
    """A result that the subgraph itself makes, and makes for this result alone."""
    copied = lowering.builder.op("Identity", value)
    copied.shape = value.shape
    return copied


def _node(
    lowering: Lowering, op_type: str, inputs: list[ir.Value], results: Sequence[ir.Value], **attributes: Any
) -> Any:
    """The node; its results have the types of the subgraph's."""
    made = lowering.builder.raw(op_type, inputs, [value.dtype for value in results], **attributes)
    return list(made)
