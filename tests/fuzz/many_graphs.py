"""Many small models in one library, each with a session of its own.

Input: models of one opset, without functions or bodies. Output: for each a session over its own kernels, the error that
it ended in, or None where no node of it has a kernel. Invariant: the models share a compilation and nothing else;
passes, analysis, code and rewriting are those of the pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).parent.parent / "codegen"))
from merged import merge

from smelt.base.config import Config
from smelt.base.target import select_targets
from smelt.codegen import Backends, attach_packed, find_backends, with_inputs
from smelt.codegen.c import backend as c_backend
from smelt.ir.load import load_model
from smelt.ir.records import Library, Plan, Region
from smelt.ops import analyze
from smelt.partition import rewrite
from smelt.partition.capture import dependencies, make_region
from smelt.partition.levels import NO_CLUSTER, cluster
from smelt.passes import run_passes
from smelt.toolchain import Cache, build, find_compiler, hash_headers

FAST_FLAGS = "-O0"


def sessions(
    models: Sequence[onnx.ModelProto], config: Config, level: str = "v2"
) -> list[ort.InferenceSession | Exception | None]:
    model = load_model(merge(models))
    run_passes(model)
    backend = Backends(find_backends("c"), analyze(model), list(model.graph.inputs))
    targets = select_targets(None, (level,))
    c_backend.UNIT_LINES = 1 << 30  # the headers are read once
    generated = backend.generate(_regions(model, backend, len(models)), targets)
    source = replace(generated.source, include_hash=hash_headers(generated.source.include_dirs))
    config = config.with_(cflags=f"{FAST_FLAGS} {config.cflags}".strip())
    library = build(source, targets, find_compiler(config, None), Cache(config.cache_dir), config)
    packed = attach_packed(model, generated.codes)
    regions = [with_inputs(r, c, packed) for r, c in zip(generated.regions, generated.codes, strict=True)]
    names = {r.index: entry for r, entry in zip(regions, generated.entry_of, strict=True)}
    rewrite(model, Plan(tuple(regions), ()), generated.source.domain, names)
    whole = ir.to_proto(model)
    return [_session(whole, m, place, generated.source.domain, library) for place, m in enumerate(models)]


def _regions(model: ir.Model, backend: Backends, count: int) -> list[Region]:
    """The regions of each model by itself."""
    found: list[Region] = []
    home: dict[ir.Node, int] = {}
    for node in model.graph:
        above = {home[p] for v in node.inputs if v is not None and (p := v.producer()) is not None and p in home}
        above |= {int(v.name[1 : v.name.index("_")]) for v in node.inputs if v is not None and _is_own(v)}
        if above:
            home[node] = min(above)
    for place in range(count):
        nodes = [node for node, owner in home.items() if owner == place]
        numbers = cluster(dependencies(nodes, {}), [backend.all[0].claims(node).ok for node in nodes])
        for number in sorted(set(numbers) - {NO_CLUSTER}):
            found.append(make_region(len(found), [n for n, k in zip(nodes, numbers, strict=True) if k == number]))
    return found


def _is_own(value: ir.Value) -> bool:
    return bool(value.name) and value.is_graph_input()


def _session(
    whole: onnx.ModelProto, model: onnx.ModelProto, place: int, domain: str, library: Library
) -> ort.InferenceSession | Exception | None:
    made = {name: node for node in whole.graph.node for name in node.output}
    wanted, nodes = [f"m{place}_{o.name}" for o in model.graph.output], dict[int, onnx.NodeProto]()
    needed = set[str]()
    while wanted:
        name = wanted.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in made:
            nodes[id(made[name])] = made[name]
            wanted += [n for n in made[name].input if n]
    order = [n for n in whole.graph.node if id(n) in nodes]
    if not any(n.domain == domain for n in order):
        return None
    out = onnx.ModelProto(ir_version=whole.ir_version, opset_import=whole.opset_import)
    out.graph.name = "one"
    out.graph.node.extend(order)
    out.graph.input.extend(i for i in whole.graph.input if i.name.startswith(f"m{place}_"))
    out.graph.output.extend(o for o in whole.graph.output if o.name.startswith(f"m{place}_"))
    out.graph.initializer.extend(t for t in whole.graph.initializer if t.name in needed)
    out.graph.value_info.extend(v for v in whole.graph.value_info if v.name in needed)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library.path))
    try:
        return plain_session(out, options)
    except Exception as error:
        return error


def plain_session(model: onnx.ModelProto, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    """Without optimizations, on one thread."""
    options = options or ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
