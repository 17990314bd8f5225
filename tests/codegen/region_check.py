"""Small graphs through the whole pipeline by force, against ONNX Runtime.

Input: graphs in onnx's text form (or models) with inputs. Output: an assertion. Invariant: graphs that are checked
together share one library, so that a test costs one compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from merged import feeds_of, merge, split

import smelt
from smelt.base.target import select_targets
from smelt.codegen import Backends, find_backends
from smelt.ir.backend import Generated
from smelt.ir.load import load_model
from smelt.ops import analyze
from smelt.partition import capture
from smelt.passes import run_passes
from smelt.runtime import SessionSettings, session_for

OPSET = 21


@dataclass
class Graph:
    """`text` is the body of onnx.parser's graph form: `(float[n] x) => (float[n] y) { y = Relu(x) }`."""

    text: str
    inputs: Sequence[Any]
    expected: Sequence[Any] | None = None
    fallback_nodes: bool = False
    models: list[onnx.ModelProto] = field(default_factory=list)

    def model(self, opset: int) -> onnx.ModelProto:
        if not self.models:
            head = f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]> g '
            self.models.append(onnx.parser.parse_model(head + self.text))
        return self.models[0]


def check(*graphs: Graph, opset: int = OPSET, levels: str = "v2", rtol: float = 2e-6, atol: float = 1e-6) -> None:
    """Every node runs in kernels, and every output is what is expected, or what ONNX Runtime gives."""
    models = [g.model(opset) for g in graphs]
    with smelt.compile(merge(models), force=True, levels=levels, verify=False, threads=1) as compiled:
        outputs = compiled.run(feeds_of(models, [g.inputs for g in graphs]))
        left = [f"{item.node.name} {item.node.op_type}: {item.reason}" for item in compiled.result.plan.fallbacks]
    assert not left or any(g.fallback_nodes for g in graphs), left
    for place, (graph, found) in enumerate(zip(graphs, split(models, outputs), strict=True)):
        wanted = graph.expected if graph.expected is not None else stock(graph.model(opset), graph.inputs)
        assert_alike(found, wanted, f"graph {place}: {graph.text}", rtol, atol)


def stock(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    session = session_for(
        model.SerializeToString(), settings=SessionSettings(threads=1, optimization="disable", log_severity=4)
    )
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def assert_alike(found: Sequence[Any], wanted: Sequence[Any], what: str, rtol: float, atol: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def whole(*shape: int, low: int = -9, high: int = 9, seed: int = 0, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def traits(model: onnx.ModelProto) -> set[str]:
    """What was chosen for the kernels of such a model, beside their forms."""
    return {trait for code in generated(model).codes for info in code.info for trait in info.traits}


def generated(model: onnx.ModelProto) -> Generated:
    loaded = load_model(model)
    run_passes(loaded)
    backend = Backends(find_backends("c"), analyze(loaded), list(loaded.graph.inputs))
    plan = capture(loaded, backend.all, force=True)
    made = backend.generate(plan.regions, select_targets(None, ("v3",)))
    assert not plan.fallbacks and not made.fallbacks
    return made
