"""What a model should give, by the float64 reference, within a budget of work.

Input: a model and its inputs. Output: its outputs. Invariant: whether there is a reference depends on the model and the
sizes alone, never on a clock: work is counted before it is done, in operations of the numpy rules that do it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir

from smelt.ir.proto import load_file, to_proto
from smelt.ir.walk import subgraphs
from smelt.ops.reference import NoReferenceError, evaluate_nodes

Array = np.ndarray[Any, Any]

# About two seconds of one core: products run in BLAS, the rest in numpy.
BUDGET: Final = 4e10
_PER_ELEMENT: Final = 60.0  # one pass over an array costs as much as so many multiply-adds of a product
_PER_NODE: Final = 1e6  # a node of a few elements, which goes through Python alone
_CHEAP: Final = 0.05  # of the budget: less work than that is done without a look at the rest
_MOST_COPIED_BYTES: Final = 1 << 25
_LOOPED: Final = {"LSTM": 4.0, "GRU": 3.0, "RNN": 1.0}
_FILTERS: Final = frozenset(("Conv", "ConvTranspose", "FusedConv", "ConvInteger", "QLinearConv"))
_PRODUCTS: Final = frozenset(
    ("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "QLinearMatMul", "MatMulNBits", "Einsum")
)


class TooCostlyError(NoReferenceError):
    """The reference would take longer than it is worth."""


def evaluate_model(path: Path, inputs: Sequence[Any], budget: float = BUDGET) -> list[Any]:
    """The outputs of a model for inputs in its order."""
    model = load_file(path)
    return evaluate_loaded(model, dict(zip(model.graph.inputs, inputs, strict=True)), budget)


def evaluate_loaded(
    model: ir.Model, env: dict[ir.Value, Any], budget: float = BUDGET, *, wide: bool = True
) -> list[Any]:
    """Node by node; a value is dropped after its last use, so that long models fit. Where it is not `wide`, each value
    is rounded to its own type."""
    uses = Counter(v for node in model.graph for v in node.inputs if v is not None)
    uses.update(model.graph.outputs)
    nested = any(True for node in model.graph for _ in subgraphs(node))  # bodies read values of the graph around them
    given, left, is_forecast = dict(env), budget, False
    for node in model.graph:
        left -= work_of(node, env)
        if left < 0:
            raise TooCostlyError("it would take too long")
        if left < (1 - _CHEAP) * budget and not is_forecast:
            is_forecast = True
            if forecast(model, given) > budget:
                raise TooCostlyError("it would take too long")
        try:
            evaluate_nodes([node], env, model.opset_imports, wide=wide)
        except (NoReferenceError, MemoryError):
            raise
        except Exception as error:  # a rule that does not know this form of its op
            raise NoReferenceError(f"{node.op_type}: {' '.join(str(error).split())[:300]}") from error
        for value in () if nested else node.inputs:
            if value is not None:
                uses[value] -= 1
                if not uses[value]:
                    env.pop(value, None)
    return [env[v] if v in env else _constant(v) for v in model.graph.outputs]


def holds_half(model: ir.Model) -> bool:
    """Whether any value is a float16."""
    casts = (node.attributes.get("to") for node in model.graph if node.op_type == "Cast")
    values = (value for node in model.graph for value in (*node.inputs, *node.outputs) if value is not None)
    return any(value.dtype == ir.DataType.FLOAT16 for value in values) or any(
        to is not None and to.as_int() == ir.DataType.FLOAT16 for to in casts
    )


def forecast(model: ir.Model, env: Mapping[ir.Value, Any]) -> float:
    """What evaluating the model on these inputs costs, by the shapes that can be told before it is done; those of
    other nodes count as nothing, and so does a file with large weights inside, which would be copied."""
    weights = (value.const_value for value in model.graph.initializers.values())
    if sum(w.nbytes for w in weights if w is not None and not isinstance(w, ir.ExternalTensor)) > _MOST_COPIED_BYTES:
        return 0.0
    proto = to_proto(model)
    given = {value.name: np.shape(array) for value, array in env.items() if not isinstance(array, list)}
    for value in proto.graph.input:
        if value.name in given:
            del value.type.tensor_type.shape.dim[:]
            for size in given[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
    for declared in proto.graph.output:  # what a file says of them may be wrong
        declared.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    try:
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except Exception:  # whatever it does not know
        return 0.0
    shapes = {v.name: v.type.tensor_type.shape for v in (*graph.input, *graph.value_info, *graph.output)}
    known = {n: [d.dim_value for d in s.dim] for n, s in shapes.items() if all(d.HasField("dim_value") for d in s.dim)}
    every = {value for node in model.graph for value in (*node.inputs, *node.outputs) if value is not None}
    # Arrays of one element that is repeated: nothing but their shape is asked for.
    seen = {v: np.broadcast_to(np.float32(0), known[v.name]) for v in every if v.name in known}
    return sum(work_of(node, seen) for node in model.graph)


def _constant(value: ir.Value) -> Array:
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy())


def work_of(node: ir.Node, env: Mapping[ir.Value, Any]) -> float:
    """What evaluating the node costs, in multiply-adds of a product."""
    shapes = [_shape(value, env) for value in node.inputs]
    elements = sum(prod(shape) for shape in shapes)
    return _PER_NODE + _PER_ELEMENT * elements + _multiply_adds(node, shapes)


def _multiply_adds(node: ir.Node, shapes: Sequence[tuple[int, ...]]) -> float:
    kind = node.op_type
    if kind in _FILTERS and len(shapes) > 1 and len(shapes[0]) > 2:
        x, weight = shapes[0], max(shapes[1:], key=len)
        strides = node.attributes.get("strides")
        shrink = prod(strides.as_ints()) if strides is not None and kind != "ConvTranspose" else 1
        taps = prod(weight) * prod(x[2:]) * x[0] / max(shrink, 1)
        group = node.attributes.get("group")
        return taps / max(group.as_int() if group is not None and kind == "ConvTranspose" else 1, 1)
    if kind in _LOOPED and shapes and len(shapes[0]) == 3:
        steps, batch, width = shapes[0]
        hidden = node.attributes.get("hidden_size")
        size = hidden.as_int() if hidden is not None else width
        return steps * (_PER_NODE + _LOOPED[kind] * batch * size * (width + size) * 2)
    if kind in _PRODUCTS and len(shapes) > 1 and shapes[0] and shapes[1]:
        left = prod(shapes[0])
        return float(left) * max(shapes[1][-1] if len(shapes[1]) > 1 else 1, prod(shapes[1]) // max(shapes[0][-1], 1))
    if "Attention" in kind and shapes and len(shapes[0]) >= 3:
        return float(prod(shapes[0])) * 4 * max(max(shape, default=1) for shape in shapes)
    if kind in ("Loop", "Scan"):
        return 1e9
    return 0.0


def _shape(value: ir.Value | None, env: Mapping[ir.Value, Any]) -> tuple[int, ...]:
    if value is None:
        return ()
    known = env.get(value)
    if known is not None:
        return tuple(np.shape(known)) if not isinstance(known, list) else ()
    return tuple(value.const_value.shape.numpy()) if value.const_value is not None else ()


def moved(arrays: Sequence[Any], seed: int = 11) -> list[Any]:
    """Every float, but zeros, moved by one unit in its last place, up or down."""
    rng = np.random.default_rng(seed)
    out: list[Any] = []
    for array in arrays:
        if getattr(array, "dtype", np.dtype(bool)).kind != "f":
            out.append(array)
            continue
        towards = rng.choice(np.array([-np.inf, np.inf], array.dtype), array.shape)
        made = array.copy()
        with np.errstate(all="ignore"):
            np.nextafter(array, towards, out=made, where=np.isfinite(array) & np.not_equal(array, 0))
        out.append(made)
    return out
