"""Small plans and reports, made without a compiler."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.ir.records import Fallback, KernelInfo, Plan, Region
from smelt.report import Report, count_ops, draw, report_of

HOSTILE = (
    "</script><script>alert(1)</script>",
    "\" onload='x' <img src=x onerror=alert(1)>",
    "\u202egnp.exe\u2066",
    "a\x1b[31mb\x00c\nd",
    "{{ 7 * 7 }}{% raw %}",
    "n" * 5000,
)


def chain_model(names: tuple[str, ...]) -> ir.Model:
    """Relu after Relu; `names` name the nodes."""
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=name) for i, name in enumerate(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("v0", f"v{len(names)}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def plan_of(model: ir.Model, size: int = 2) -> Plan:
    """Regions of `size` nodes each, with one node left between them."""
    nodes, regions, fallbacks = list(model.graph), [], []
    for start in range(0, len(nodes), size + 1):
        group = tuple(nodes[start : start + size])
        regions.append(Region(len(regions), group, tuple(group[0].inputs), tuple(group[-1].outputs)))
        fallbacks += [Fallback(node, "alone: nothing to fuse with") for node in nodes[start + size : start + size + 1]]
    return Plan(tuple(regions), tuple(fallbacks))


def result_of(plan: Plan, text: str = "int x;\n") -> Any:
    """What the pipeline would give: all regions share one code."""
    kernel = KernelInfo("k_1", "loops", ("a", "b"), "d:n units", "16*d:n", "64*d:n")
    source = SimpleNamespace(
        entries=(SimpleNamespace(name="r0", kernels=(kernel,)),), units=(SimpleNamespace(name="kernels0", text=text),)
    )
    generated = SimpleNamespace(source=source, regions=plan.regions, entry_of=("r0",) * len(plan.regions))
    return SimpleNamespace(
        plan=plan,
        generated=generated,
        library=None,
        passes=(("fold-constants", SimpleNamespace(changes=Counter({"folded": 2}), seconds=0.5)),) * 2,
        stages=(SimpleNamespace(name="build", seconds=1.0), SimpleNamespace(name="build", seconds=0.5)),
        notes=(),
        findings=None,
        faults=(),
        accuracy=None,
    )


@pytest.fixture
def make_report():
    def make(names: tuple[str, ...], title: str = "model.onnx", times: Any = None) -> Report:
        model = chain_model(names)
        plan = plan_of(model)
        return report_of(result_of(plan), title, draw(model, plan, count_ops(model)), times)

    return make


@pytest.fixture
def nested_model() -> onnx.ModelProto:
    """An If whose branches read a value of the outer graph."""
    outer = helper.make_node("Neg", ["x"], ["y"], name="outer")
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["y"], ["z"], name=op)],
            name,
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"])],
        )
        for name, op in (("then_branch", "Abs"), ("else_branch", "Relu"))
    }
    choice = helper.make_node("If", ["c"], ["out"], name="choice", **branches)
    x, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "out"))
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return helper.make_model(
        helper.make_graph([outer, choice], "g", [x, condition], [out]), opset_imports=[helper.make_opsetid("", 17)]
    )
