"""Sparse constants of a ModelProto -> dense ones, as ONNX Runtime makes them when it loads a model.

Input: a parsed, untrusted ModelProto. Output: the same, or a copy without sparse tensors. Invariant: every index lies
in its tensor; nothing larger than `MAX_DENSE_BYTES` is made: a sparse tensor of a few bytes may stand for any number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx

from smelt.base.errors import LoadError, ModelError

MAX_DENSE_BYTES: Final = 1 << 30
_SPARSE: Final = (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS)


def without_sparse(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The proto itself where it has no sparse tensor."""
    if not any(graph.sparse_initializer for graph in _graphs(proto)) and not any(True for _ in _constants(proto)):
        return proto
    dense = onnx.ModelProto()
    dense.CopyFrom(proto)
    for graph in _graphs(dense):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name))
        graph.ClearField("sparse_initializer")
    for attribute in _constants(dense):
        made = _dense(attribute.sparse_tensor, "")
        attribute.Clear()
        attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
        attribute.t.CopyFrom(made)
    return dense


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    pending = [proto.graph, *_bodies_of(node for function in proto.functions for node in function.node)]
    while pending:
        graph = pending.pop()
        yield graph
        pending += _bodies_of(graph.node)


def _bodies_of(nodes: Any) -> list[onnx.GraphProto]:
    attributes = [attribute for node in nodes for attribute in node.attribute]
    single = [attribute.g for attribute in attributes if attribute.type == onnx.AttributeProto.GRAPH]
    return single + [graph for attribute in attributes for graph in attribute.graphs]


def _constants(proto: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    """The attribute `sparse_value` of Constant nodes."""
    nodes = [node for graph in _graphs(proto) for node in graph.node]
    nodes += [node for function in proto.functions for node in function.node]
    for node in nodes:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            yield from (a for a in node.attribute if a.type in _SPARSE and a.name == "sparse_value")


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    shape, shown = tuple(sparse.dims), repr(name[:80])
    if any(dim < 0 for dim in shape):
        raise ModelError("SM-MODEL-004", f"sparse tensor {shown} has a negative dimension")
    if sparse.values.data_location == onnx.TensorProto.EXTERNAL or sparse.values.data_type == onnx.TensorProto.STRING:
        raise LoadError("SM-LOAD-007", f"sparse tensor {shown} has external data or holds strings")
    try:
        values, indices = onnx.numpy_helper.to_array(sparse.values), onnx.numpy_helper.to_array(sparse.indices)
    except Exception as error:  # it was made for tensors that are sound
        raise ModelError("SM-MODEL-004", f"sparse tensor {shown} cannot be read: {str(error)[:200]}") from error
    count = math.prod(shape)
    if count * max(values.dtype.itemsize, 1) > MAX_DENSE_BYTES:
        raise LoadError("SM-LOAD-007", f"sparse tensor {shown} stands for {count:,} elements")
    places = _places(indices, shape, values.size)
    if places is None or ((places < 0) | (places >= count)).any():
        raise ModelError("SM-MODEL-004", f"the indices of sparse tensor {shown} do not fit its shape")
    dense = np.zeros(count, values.dtype)
    dense[places] = values.reshape(-1)
    made = onnx.TensorProto(name=name, data_type=sparse.values.data_type, dims=shape)
    made.raw_data = dense.tobytes()
    return made


def _places(indices: np.ndarray[Any, Any], shape: tuple[int, ...], count: int) -> np.ndarray[Any, Any] | None:
    """Positions in the flattened tensor."""
    if indices.dtype.kind != "i":
        return None
    if indices.ndim == 1:
        return indices.astype(np.int64) if indices.size == count else None
    if indices.shape != (count, len(shape)) or ((indices < 0) | (indices >= np.array(shape))).any():
        return None
    return np.asarray(indices.astype(np.int64) @ np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))]))
