"""Types and shapes of intermediate values.

Input: a model whose value_info may be absent or wrong. Output: shapes derived from the graph inputs; a declared shape
survives only where nothing can be derived, and a declared name where derivation only invents one; and marks of what was
derived (ir/sizes.py), in which no name of the file has a part. Invariant: a declared size never overrules a derived
one; a shape declared for an input or output of the model stays as it is, and one of a body learns only sizes that are
numbers: a loop of no turns takes the sizes of its result from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache

import onnx
import onnx_ir as ir
from onnx_ir import serde

from smelt.ir.proto import bodies_of, to_proto
from smelt.ir.sizes import Mark, mark_sizes
from smelt.ir.walk import model_graphs, nested_graphs, subgraphs
from smelt.passes.pool_sizes import infer_with_pools
from smelt.passes.rewriter.outcome import Outcome

LARGE = 1024


class InferShapes:
    """Derive shapes anew, so that a wrong declaration cannot lead a later pass to a wrong answer."""

    def __call__(self, model: ir.Model) -> Outcome:
        declared = _declared(model)
        results = {value: value.shape for value in _results(model)}
        for value in (*declared, *results):
            value.shape = None
        own = _own_names(model)
        inferred = _inferred(model, own)
        for value in _made(model):
            mark_sizes(value, None)
        if inferred is not None:
            _merge(model, inferred, {name: dim for dims in own.values() for name, dim in dims.items()})
        changes: Counter[str] = Counter()
        inputs = {dim for value in model.graph.inputs for dim in value.shape or ()}
        for value, shape in declared.items():
            value.shape = _resolved(value.shape, shape, inputs)
            if value.shape != shape:
                changes["shape derived"] += 1
        for value, shape in results.items():
            value.shape = _with_numbers(shape, value.shape)
        return Outcome(changes)


def _own_names(model: ir.Model) -> dict[str, dict[str, int | ir.SymbolicDim]]:
    """By input: a name for each axis whose size is free, and what the file calls it. Marks the inputs with them."""
    found: dict[str, dict[str, int | ir.SymbolicDim]] = {}
    for place, value in enumerate(model.graph.inputs):
        dims = list(value.shape) if value.shape is not None else []
        names = [dim if isinstance(dim, int) and dim >= 0 else f"in{place}.{axis}" for axis, dim in enumerate(dims)]
        mark_sizes(value, tuple(names) if value.shape is not None else None)
        found[value.name or ""] = {name: dim for name, dim in zip(names, dims, strict=True) if isinstance(name, str)}
    return found


def _made(model: ir.Model) -> list[ir.Value]:
    return [value for graph in model_graphs(model) for node in graph for value in node.outputs]


def _results(model: ir.Model) -> list[ir.Value]:
    """What the bodies of control flow make and give."""
    bodies = [graph for graph in nested_graphs(model.graph) if graph is not model.graph]
    return [v for graph in bodies for v in graph.outputs if v.graph is graph and v.producer() is not None]


def _with_numbers(declared: ir.Shape | None, derived: ir.Shape | None) -> ir.Shape | None:
    if declared is None or derived is None or declared.rank() != derived.rank():
        return declared
    dims = [b if isinstance(b, int) and not isinstance(a, int) else a for a, b in zip(declared, derived, strict=True)]
    return ir.Shape(dims)


def _declared(model: ir.Model) -> dict[ir.Value, ir.Shape | None]:
    return {value: value.shape for value in _made(model) if not value.is_graph_output()}


def _inferred(model: ir.Model, own: Mapping[str, Mapping[str, object]]) -> onnx.ModelProto | None:
    """A copy of the model, without its weights, in which onnx has filled in what it can; None if it cannot.

    Every free axis of an input has a name of its own there, and results have no shapes: the file may be wrong."""
    with _without_weights(model):
        proto = to_proto(model)
    for value in proto.graph.input:
        free = iter(own.get(value.name, ()))
        for dim in value.type.tensor_type.shape.dim if value.name in own else ():
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                dim.dim_param = next(free)
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    _forget_names(proto.graph)
    try:
        return infer_with_pools(proto)
    except Exception:
        # onnx refuses some models that ONNX Runtime takes; shapes then stay as declared.
        return None


def _forget_names(graph: onnx.GraphProto) -> None:
    """What bodies of control flow are given has no names that the file made up."""
    bodies = [
        b for node in graph.node for a in node.attribute for b in (*([a.g] if a.HasField("g") else ()), *a.graphs)
    ]
    for body in bodies:
        for value in body.input:
            for dim in value.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
        _forget_names(body)


@contextmanager
def _without_weights(model: ir.Model) -> Generator[None, None, None]:
    """Make large initializers of the main graph inputs for a while: inference needs their shapes only."""
    graph = model.graph
    inputs, initializers = list(graph.inputs), list(graph.initializers.values())
    for value in initializers:
        if value.const_value is not None and value.const_value.size > LARGE and value.name is not None:
            del graph.initializers[value.name]
            if not value.is_graph_input():
                graph.inputs.append(value)
    try:
        yield
    finally:
        graph.inputs[:] = inputs
        graph.initializers.clear()
        for value in initializers:
            graph.register_initializer(value)


def _merge(model: ir.Model, inferred: onnx.ModelProto, names: Mapping[str, int | ir.SymbolicDim]) -> None:
    """Both have the same nodes in the same order. `names` is what the file calls sizes."""
    read = _reader()
    pending = [(model.graph, inferred.graph)]
    while pending:
        graph, counterpart = pending.pop()
        found = {info.name: info.type for info in (*counterpart.value_info, *counterpart.output)}
        for node, other in zip(graph, counterpart.node, strict=True):
            for value in node.outputs:
                if value.name in found:
                    _learn(value, *read(found[value.name]), names)
            if node.attributes:
                pending.extend(zip(subgraphs(node), bodies_of(other), strict=True))


def _learn(
    value: ir.Value, kind: ir.TypeProtocol | None, marks: tuple[Mark, ...] | None,
    names: Mapping[str, int | ir.SymbolicDim],
) -> None:  # fmt: skip
    if value.type is None:
        value.type = kind
    if marks is None:
        return
    mark_sizes(value, marks)
    if value.shape is None:
        value.shape = ir.Shape([_called(mark, names) for mark in marks])


def _reader() -> Callable[[onnx.TypeProto], tuple[ir.TypeProtocol | None, tuple[Mark, ...] | None]]:
    """Reads the type and the sizes of a proto; equal ones, of which long models have many, once."""

    @cache
    def read(content: bytes) -> tuple[ir.TypeProtocol | None, tuple[Mark, ...] | None]:
        proto = onnx.TypeProto.FromString(content)
        try:
            shape = serde.deserialize_type_proto_for_shape(proto)
            kind = serde.deserialize_type_proto_for_type(proto)
        except Exception:  # a type that the Model does not hold
            return None, None
        return kind, None if shape is None else tuple(dim if isinstance(dim, int) else dim.value for dim in shape)

    return lambda proto: read(proto.SerializeToString())


def _called(mark: Mark, names: Mapping[str, int | ir.SymbolicDim]) -> int | ir.SymbolicDim:
    """A free axis of an input as the file calls it; a size of -1 has no name."""
    called = mark if isinstance(mark, int) else names.get(mark or "", ir.SymbolicDim(mark))
    return ir.SymbolicDim(None) if isinstance(called, int) and called < 0 else called


def _resolved(
    derived: ir.Shape | None, declared: ir.Shape | None, inputs: set[int | ir.SymbolicDim]
) -> ir.Shape | None:
    if derived is None or declared is None:
        return declared if derived is None else derived
    if derived.rank() != declared.rank():
        return derived
    return ir.Shape([_dim(*dims, inputs) for dims in zip(derived, declared, strict=True)])


def _dim(
    derived: int | ir.SymbolicDim, declared: int | ir.SymbolicDim, inputs: set[int | ir.SymbolicDim]
) -> int | ir.SymbolicDim:
    """Exporters know that two dimensions are equal where onnx can only make up a new name."""
    if isinstance(derived, int) or derived in inputs or isinstance(declared, int):
        return derived
    return declared if declared.value else derived
