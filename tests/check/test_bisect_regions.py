"""One bad node in a large region costs a few nodes, not the region."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.check.bisect_regions import bisect_regions
from smelt.check.findings import Findings
from smelt.codegen.c.backend import CBackend
from smelt.codegen.c.region import write_region
from smelt.ir.direct import is_direct, mark_direct
from smelt.ir.kernel import Unsupported
from smelt.ir.kernel import expr as E
from smelt.ir.records import Plan
from smelt.ops import lookup
from smelt.partition.capture import make_region
from smelt.pipeline import Options, Result, compile_to
from smelt.report import Picture, check_line, report_of
from smelt.runtime import Executable

NODES = 200


def chain(bad: int, count: int = NODES) -> onnx.ModelProto:
    """A chain of nodes with one Tanh in it; the others are differences, which hand on any error undiminished."""
    special = {0: "Sigmoid", bad: "Tanh"}
    nodes = [
        helper.make_node(special.get(i, "Sub"), ["v0"] * (i not in special) + [f"v{i}"], [f"v{i + 1}"], name=f"n{i}")
        for i in range(count)
    ]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["rows", 64])
    y = helper.make_tensor_value_info(f"v{count}", TensorProto.FLOAT, ["rows", 64])
    graph = helper.make_graph(nodes, "chain", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def off_by_a_hundredth(call):
    return call.k.map(lambda x: E.op("mul", E.op("tanh", x), E.const(1.01, "f32")), call.x())


def test_all_but_a_few_nodes_stay_in_kernels(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "lowering", off_by_a_hundredth)
    model = chain(bad=117)
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    left = {item.node.name for item in result.plan.fallbacks}
    assert "n117" in left and len(left) <= 4
    assert len(result.plan.regions) == 2, "good parts are one region again on either side"
    assert right(result, model)
    (note,) = result.notes
    assert note.startswith("Region 0 was cut into parts") and f"{NODES - len(left)} of its 200 nodes stay" in note
    verdicts = {v.region for v in result.findings.verdicts if not v.rejected}
    assert verdicts >= {region.index for region in result.plan.regions} | {None}
    report = report_of(result, "chain", Picture())
    assert "rejected" in check_line(report.check) and report.in_kernels == NODES - len(left)


def forked(count: int, bad: dict[int, tuple[str, ...]]) -> onnx.ModelProto:
    """A chain of differences as above. Nodes of the types in `bad` branch off at a place, to outputs of their own."""
    nodes = [helper.make_node("Sigmoid", ["v0"], ["v1"], name="n0")]
    nodes += [helper.make_node("Sub", ["v0", f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(1, count)]
    outputs = [f"v{count}"]
    for place, types in bad.items():
        made = [f"v{place}", *(f"b{place}_{i}" for i in range(len(types)))]
        nodes += [
            helper.make_node(op, [before], [after], name=f"branch{place}_{i}")
            for i, (op, before, after) in enumerate(zip(types, made, made[1:], strict=False))
        ]
        outputs.append(made[-1])
    x, *ys = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 64]) for name in ("v0", *outputs))
    graph = helper.make_graph(nodes, "forked", [x], ys)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sizes of the regions of each round."""
    seen: list[list[int]] = []
    generate = CBackend.generate

    def counted(self, regions, targets):
        seen.append([len(region.nodes) for region in regions])
        return generate(self, regions, targets)

    monkeypatch.setattr(CBackend, "generate", counted)
    return seen


def test_nodes_that_only_wrong_outputs_need_fall_back_in_one_round(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, rounds: list[list[int]]
) -> None:
    monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "lowering", off_by_a_hundredth)
    model = forked(60, {20: ("Tanh", "Neg"), 40: ("Abs", "Tanh", "Neg"), 50: ("Neg", "Abs")})
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    assert rounds == [[67], [62]], "one region, without the branches that are wrong"
    fell_back = {f"branch{place}" for place in ("20_0", "20_1", "40_0", "40_1", "40_2")}
    assert {item.node.name for item in result.plan.fallbacks} == fell_back
    assert all("verification failed" in item.reason for item in result.plan.fallbacks)
    (region,) = result.plan.regions
    assert {v.name for v in region.outputs} == {"v20", "v40", "v60", "b50_1"}, "what the branches read is made too"
    passed = {v.region for v in result.findings.verdicts if v.error is not None and not v.rejected}
    assert passed >= {region.index, None}
    assert "62 of its 67 nodes stay" in result.notes[0] and right(result, model)


def test_of_a_long_branch_only_a_few_nodes_are_lost(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, rounds: list[list[int]]
) -> None:
    monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "lowering", off_by_a_hundredth)
    model = forked(60, {20: (*["Neg", "Abs"] * 12, "Tanh", *["Neg", "Abs"] * 12)})
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    left = {item.node.name for item in result.plan.fallbacks}
    assert "branch20_24" in left and len(left) <= 4
    assert 60 in {len(region.nodes) for region in result.plan.regions}, "the chain itself stays whole"
    assert right(result, model)


def test_a_fault_that_right_outputs_share_is_found_behind_the_wrong_one(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "lowering", off_by_a_hundredth)
    model = forked(20, {10: ("Neg", "Abs")})
    hidden = [
        helper.make_node("Tanh", ["v1"], ["t"], name="bad"),
        helper.make_node("Mul", ["t", "tiny"], ["small"], name="small"),
        helper.make_node("Add", ["v20", "small"], ["hides"], name="hides"),
        helper.make_node("Neg", ["t"], ["shows"], name="shows"),
    ]
    model.graph.node.extend(hidden)
    model.graph.initializer.append(helper.make_tensor("tiny", TensorProto.FLOAT, [], [1e-9]))
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 64]) for name in ("hides", "shows")
    )
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    left = {item.node.name for item in result.plan.fallbacks}
    assert "bad" in left and len(left) <= 8 and right(result, model)


@pytest.mark.full
def test_a_region_that_loses_time_is_cut_too(tmp_path: Path, config: Config, spoil) -> None:
    spoil(0, "for (volatile int64_t i = 0; i < 3000000; i++) {}")  # the parts have other numbers, and are not slow
    model = chain(bad=3, count=20)
    feeds = {"v0": np.random.default_rng(0).standard_normal((64, 64), np.float32)}
    options = Options(levels=("v2",), force=True, tune=True, feeds=feeds)
    result = compile_to(model, tmp_path / "out", options, config)
    assert any("Region 0 was cut into parts" in note and "slower" in note for note in result.notes)
    assert sum(len(region.nodes) for region in result.plan.regions) > 10
    assert 0 not in {region.index for region in result.plan.regions} and right(result, model)


@pytest.mark.parametrize(("together", "most_left"), [({"n117"}, 4), ({"n50", "n150"}, 0)])
def test_what_has_no_kernels_as_a_whole_has_them_in_parts(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, together: set[str], most_left: int
) -> None:
    """Whether one node is to blame, or nodes that are fine apart."""

    def write(region, *given):
        if together <= {node.name for node in region.nodes}:
            raise Unsupported("not in one region")
        return write_region(region, *given)

    monkeypatch.setattr("smelt.codegen.c.backend.write_region", write)
    model = chain(bad=117)
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    left = {item.node.name: item.reason for item in result.plan.fallbacks}
    assert len(left) <= most_left and set(left.values()) <= {"not in one region"} and not result.faults
    assert len(result.plan.regions) <= 4, "good parts are one region again"
    assert right(result, model)
    assert any("was cut into parts (not in one region)" in note for note in result.notes)


def right(result: Result, model: onnx.ModelProto, shape: tuple[int, ...] = (3, 64)) -> bool:
    import onnxruntime

    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pairs = zip(Executable.open(result.artifact).run({"v0": x}), stock.run(None, {"v0": x}), strict=True)
    return all(np.allclose(made, expected, atol=1e-5) for made, expected in pairs)


def convolutions(count: int) -> onnx.ModelProto:
    """Convolutions of 3 x 3 taps that Winograd's transform is for, with a sum behind each."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12 for _ in range(count)]
    nodes = [helper.make_node("Conv", [f"v{i}", f"w{i}"], [f"c{i}"], pads=[1] * 4) for i in range(count)]
    nodes += [helper.make_node("Add", [f"c{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    nodes.sort(key=lambda node: (int(node.output[0][1:]) - (node.op_type == "Add"), node.op_type == "Add"))
    ends = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [1, 16, 24, 24]) for i in (0, count)]
    constants = [onnx.numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_convolutions_are_computed_as_stated_before_a_region_is_cut(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Winograd's form of a convolution has larger errors, which some networks magnify."""
    stated = lookup("", "Conv", 17).lowering

    def lossy(call):
        made = stated(call)
        return made if call.direct else call.k.map(lambda x: E.op("mul", x, E.const(1.01, "f32")), made)

    monkeypatch.setitem(lookup("", "Conv", 17).__dict__, "lowering", lossy)
    model = convolutions(3)
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    assert not result.plan.fallbacks and len(result.plan.regions) == 1
    (note,) = result.notes
    assert note.startswith("Region 0 computes its 3x3 convolutions without Winograd's transform")
    assert not result.findings.rejected
    assert right(result, model, (1, 16, 24, 24))


@dataclass
class Made:
    plan: Plan


def test_nothing_falls_back_for_the_whole_while_convolutions_can_be_stated() -> None:
    """The whole model may be wrong where each region is right: errors add up."""
    graph = ir.from_proto(convolutions(1)).graph
    regions = tuple(make_region(index, (node,)) for index, node in enumerate(graph))
    tried: list[Plan] = []

    def attempt(plan: Plan, known: tuple[int, ...]) -> tuple[Made, Findings]:
        tried.append(plan)
        if any(is_direct(node) for region in plan.regions for node in region.nodes):
            return Made(plan), Findings()
        why = "the whole model gave a wrong result"
        return Made(plan), Findings(rejected={r.index: why for r in plan.regions}, notes=("all fell back",))

    made, findings = bisect_regions(Plan(regions, ()), attempt, lambda region: mark_direct(region.nodes))
    assert len(tried) == 2 and [len(r.nodes) for r in made.plan.regions] == [1, 1] and not made.plan.fallbacks
    assert not findings.rejected and len(findings.notes) == 1 and "Winograd" in findings.notes[0]
