"""Runs many one-node models through generated C at once: one library, one ONNX Runtime session."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper

from smelt.base.config import Config
from smelt.base.target import select_targets
from smelt.codegen import Backends, attach_packed, find_backends, with_inputs
from smelt.ir.records import Plan, Region
from smelt.ops import LONG, Facts, analyze
from smelt.partition import rewrite
from smelt.toolchain import Cache, build, find_compiler, hash_headers


@dataclass
class Batch:
    """One-node models of one opset. `run` gives the outputs of each, computed by one CPU level's kernels."""

    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[list[str]] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> None:
        prefix = f"j{len(self.outputs)}_"
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for item in (*copy.graph.input, *copy.graph.initializer, *copy.graph.output):
            item.name = prefix + item.name
        for node in copy.graph.node:
            node.input[:] = [prefix + n if n else "" for n in node.input]
            node.output[:] = [prefix + n if n else "" for n in node.output]
        self.nodes += copy.graph.node
        self.inputs += copy.graph.input
        self.constants += copy.graph.initializer
        self.outputs.append([v.name for v in copy.graph.output])
        self.feeds.update({v.name: a for v, a in zip(copy.graph.input, arrays, strict=True)})

    def run(self, level: str) -> list[list[np.ndarray]]:
        model = self._model()
        library = _install(model, level)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.register_custom_ops_library(str(library))
        proto = ir.serde.serialize_model(model)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [n for group in self.outputs for n in group]
        made = iter(session.run(names, {v.name: self.feeds[v.name] for v in session.get_inputs()}))
        return [[np.asarray(next(made)) for _ in group] for group in self.outputs]

    def _model(self) -> ir.Model:
        outputs = [helper.make_empty_tensor_value_info(n) for group in self.outputs for n in group]
        graph = helper.make_graph(self.nodes, "batch", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return ir.serde.deserialize_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def _install(model: ir.Model, level: str) -> str:
    """Every node becomes a custom op; the library that holds their kernels."""
    facts = analyze(model)
    assert not facts.unsupported, facts.unsupported
    _declare_outputs(model, facts)
    backend = Backends(find_backends("c"), facts, list(model.graph.inputs))
    targets = select_targets(None, [level])
    generated = backend.generate([_region(i, n) for i, n in enumerate(model.graph)], targets)
    assert not generated.fallbacks, generated.fallbacks
    config = Config.from_env()
    source = dataclasses.replace(generated.source, include_hash=hash_headers(generated.source.include_dirs))
    library = build(source, tuple(targets), find_compiler(config, None), Cache(config.cache_dir), config)
    packed = attach_packed(model, generated.codes)
    regions = [with_inputs(r, c, packed) for r, c in zip(generated.regions, generated.codes, strict=True)]
    names = {r.index: entry for r, entry in zip(regions, generated.entry_of, strict=True)}
    rewrite(model, Plan(tuple(regions), ()), generated.source.domain, names)
    return str(library.path)


def _region(index: int, node: ir.Node) -> Region:
    return Region(index, (node,), tuple(v for v in node.inputs if v is not None), tuple(node.outputs))


def _declare_outputs(model: ir.Model, facts: Facts) -> None:
    for value in model.graph.outputs:
        fact = facts.by_value[value]
        value.dtype, value.shape = LONG[fact.dtype], ir.Shape([None] * len(fact.shape))
