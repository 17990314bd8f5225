"""Models without their weights, to be shared, and the way back.

Input: a model. Output: the same model with a small node in place of each large tensor (`lighten`), or with tensors in
place of those nodes (`unlighten`). Invariant: a light model is valid and runs, with other numbers; names, shapes and
types are the original's. The original's tensors are put back only if their digests are those that were taken away;
without the original, tensors of the same statistics are made, the same ones for the same seed.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.errors import ModelError
from smelt.ir.walk import model_graphs

MIN_BYTES: Final = 1024
KEY: Final = "smelt.light"
_MIN_INTEGER_BYTES: Final = 64 << 10  # smaller ones are indices, masks and shapes: structure, not weights
_MARK: Final = "smelt.light."
_NODE: Final = "ConstantOfShape"
_INT64: Final = ir.TensorType(ir.DataType.INT64)
_MAX_ELEMENTS: Final = 1 << 34
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dropped:
    """A tensor that was taken away: the number of its graph, its name, and what is known about its elements."""

    graph: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    mean: float
    std: float
    low: float
    high: float


def lighten(model: ir.Model, min_bytes: int = MIN_BYTES) -> tuple[Dropped, ...]:
    """Take every large tensor away; what was taken is kept in the model's metadata."""
    if KEY in model.metadata_props:
        raise ModelError("SM-MODEL-010", "the model is light already", hint="Use it as it is.")
    dropped: list[Dropped] = []
    for number, graph in enumerate(model_graphs(model)):
        for value in list(graph.initializers.values()):
            if _is_weight(value, min_bytes):
                dropped.append(_described(number, value))
                _replace_by_node(graph, value, dropped[-1], len(dropped))
    if dropped:
        model.metadata_props[KEY] = json.dumps([asdict(d) for d in dropped], sort_keys=True)
    return tuple(dropped)


def unlighten(model: ir.Model, original: ir.Model | None = None, seed: int = 0) -> tuple[Dropped, ...]:
    """Put tensors back: the original's, or random ones of the same statistics."""
    dropped = _read(model)
    graphs = list(model_graphs(model))
    sources = list(model_graphs(original)) if original is not None else None
    for item in dropped:
        if item.graph >= len(graphs):
            raise _unreadable(f"it names a graph {item.graph}")
        tensor = _like(item, seed) if sources is None else _taken(item, sources)
        _replace_by_tensor(graphs[item.graph], item, tensor)
    model.metadata_props.pop(KEY, None)
    return dropped


# taking away


def _is_weight(value: ir.Value, min_bytes: int) -> bool:
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or not value.name or tensor.dtype == ir.DataType.STRING:
        return False
    counted = tensor.dtype.is_integer() or tensor.dtype == ir.DataType.BOOL
    return tensor.nbytes >= max(min_bytes, _MIN_INTEGER_BYTES if counted else 1)


def _described(graph: int, value: ir.Value) -> Dropped:
    tensor = value.const_value
    assert tensor is not None and value.name
    array = np.asarray(tensor.numpy())
    digest = hashlib.sha256(tensor.tobytes()).hexdigest()
    finite = array[np.isfinite(array.astype(np.float32))] if array.dtype.kind not in "iub" else array
    known = finite.astype(np.float64) if finite.size else np.zeros(1)
    numbers = (float(f(known)) for f in (np.mean, np.std, np.min, np.max))
    return Dropped(graph, value.name, tensor.dtype.name, tuple(int(n) for n in array.shape), digest, *numbers)


def _replace_by_node(graph: ir.Graph, value: ir.Value, item: Dropped, number: int) -> None:
    """A ConstantOfShape of the mean: standard, tiny, and of the right type."""
    name, uses = item.name, list(value.uses())
    shape = ir.Value(name=f"{_MARK}{item.graph}.{number}", shape=ir.Shape([len(item.shape)]), type=_INT64)
    shape.const_value = ir.tensor(np.array(item.shape, np.int64), name=shape.name)
    dtype = ir.DataType[item.dtype]
    fill = ir.Tensor(np.array([item.mean]).astype(dtype.numpy()), dtype=dtype, name="value")
    output = ir.Value(name=name, shape=ir.Shape(item.shape), type=ir.TensorType(dtype))
    node = ir.Node("", _NODE, [shape], [ir.AttrTensor("value", fill)], outputs=[output], name=shape.name)
    del graph.initializers[name]
    graph.register_initializer(shape)
    first = next(iter(graph), None)
    graph.append(node) if first is None else graph.insert_before(first, node)
    _rewire(graph, value, output, uses)


# putting back


def _replace_by_tensor(graph: ir.Graph, item: Dropped, tensor: ir.TensorProtocol) -> None:
    node = next((n for n in graph if n.outputs and n.outputs[0].name == item.name and n.op_type == _NODE), None)
    if node is None:
        raise _unreadable(f"no ConstantOfShape makes {item.name[:80]!r}")
    old, shape = node.outputs[0], node.inputs[0]
    value = ir.Value(name=item.name, shape=ir.Shape(item.shape), type=ir.TensorType(tensor.dtype))
    value.const_value = tensor
    _rewire(graph, old, value, list(old.uses()))
    graph.remove(node, safe=True)
    if shape is not None and shape.name and shape.name.startswith(_MARK):
        graph.initializers.pop(shape.name, None)
    graph.register_initializer(value)


def _rewire(graph: ir.Graph, old: ir.Value, new: ir.Value, uses: list[Any]) -> None:
    for user, place in uses:
        user.replace_input_with(place, new)
    for place, output in enumerate(graph.outputs):
        if output is old:
            graph.outputs[place] = new


def _taken(item: Dropped, sources: list[ir.Graph]) -> ir.TensorProtocol:
    found = sources[item.graph].initializers.get(item.name) if item.graph < len(sources) else None
    tensor = found.const_value if found is not None else None
    if tensor is None or hashlib.sha256(tensor.tobytes()).hexdigest() != item.sha256:
        what = "has no tensor" if tensor is None else "has another tensor"
        raise ModelError(
            "SM-MODEL-010",
            f"the original {what} {item.name[:80]!r}",
            hint="Give the file that the light one is made from.",
        )
    return tensor


def _like(item: Dropped, seed: int) -> ir.TensorProtocol:
    """Random elements of the same mean, deviation and range."""
    key = hashlib.sha256(f"{seed}\0{item.graph}\0{item.name}".encode()).digest()
    random = np.random.default_rng(int.from_bytes(key[:8], "little"))
    dtype = ir.DataType[item.dtype]
    count = math.prod(item.shape)
    if item.std == 0:
        array = np.full(count, item.mean)
    elif dtype == ir.DataType.BOOL:
        array = random.random(count) < item.mean
    else:
        array = np.clip(random.normal(item.mean, item.std, count), item.low, item.high)
        array = np.rint(array) if dtype.is_integer() else array
    return ir.Tensor(array.reshape(item.shape).astype(dtype.numpy()), dtype=dtype, name=item.name)


def _read(model: ir.Model) -> tuple[Dropped, ...]:
    text = model.metadata_props.get(KEY)
    if text is None:
        raise ModelError("SM-MODEL-010", "this is no light model", hint="Make one by `smelt lighten`.")
    try:
        return tuple(_checked(fields) for fields in json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _unreadable(str(error)[:200]) from error


def _checked(fields: dict[str, Any]) -> Dropped:
    name, dtype, shape = fields["name"], fields["dtype"], [int(n) for n in fields["shape"]]
    numbers = {key: float(fields[key]) for key in ("mean", "std", "low", "high")}
    sound = (
        all(math.isfinite(n) for n in numbers.values()) and numbers["std"] >= 0 and numbers["low"] <= numbers["high"]
    )
    if not sound or dtype not in ir.DataType.__members__ or not isinstance(name, str):
        raise ValueError(f"what it says about {str(name)[:80]!r} makes no sense")
    if int(fields["graph"]) < 0 or any(n < 0 for n in shape) or math.prod(shape) > _MAX_ELEMENTS:
        raise ValueError(f"the shape of {name[:80]!r} is not possible")
    return Dropped(int(fields["graph"]), name, dtype, tuple(shape), str(fields["sha256"]), **numbers)


def _unreadable(why: str) -> ModelError:
    return ModelError("SM-MODEL-010", f"what the light model says about its weights cannot be used: {why}")
