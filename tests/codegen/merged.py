"""Many small models as one, so that one compilation serves them all.

Input: models of one opset. Output: one model whose inputs and outputs are those of all, each prefixed, and `split`,
which gives the outputs back model by model. Invariant: names and symbolic dims of different models never meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx


def merge(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    merged = onnx.ModelProto(ir_version=max(m.ir_version for m in models))
    versions: dict[str, int] = {}
    for place, model in enumerate(models):
        assert not model.functions
        for item in model.opset_import:
            assert versions.setdefault(item.domain, item.version) == item.version
        _append(merged.graph, _prefixed(model.graph, f"m{place}_"))
    merged.graph.name = "merged"
    merged.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in versions.items())
    return merged


def feeds_of(models: Sequence[onnx.ModelProto], inputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The merged model's feeds, from each model's inputs in its own order."""
    out: dict[str, Any] = {}
    for place, (model, values) in enumerate(zip(models, inputs, strict=True)):
        constants = {i.name for i in model.graph.initializer}
        names = [i.name for i in model.graph.input if i.name not in constants]
        out |= {f"m{place}_{name}": value for name, value in zip(names, values, strict=True)}
    return out


def split(models: Sequence[onnx.ModelProto], outputs: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(outputs)
    for model in models:
        yield [next(rest) for _ in model.graph.output]


def _append(into: onnx.GraphProto, graph: onnx.GraphProto) -> None:
    for field in ("node", "input", "output", "initializer", "sparse_initializer", "value_info"):
        getattr(into, field).extend(getattr(graph, field))


def _prefixed(graph: onnx.GraphProto, prefix: str) -> onnx.GraphProto:
    out = onnx.GraphProto()
    out.CopyFrom(graph)
    _rename(out, prefix)
    return out


def _rename(graph: onnx.GraphProto, prefix: str) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = prefix + value.name
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = prefix + dim.dim_param
    for tensor in graph.initializer:
        tensor.name = prefix + tensor.name
    for node in graph.node:
        node.name = prefix + node.name if node.name else ""  # ONNX Runtime takes no name twice
        node.input[:] = [prefix + name if name else "" for name in node.input]
        node.output[:] = [prefix + name if name else "" for name in node.output]
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                _rename(inner, prefix)
