"""One bad node in a large region costs a few nodes, not the region."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.ir.kernel import expr as E
from smelt.ops import lookup
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
    monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "meaning", off_by_a_hundredth)
    model = chain(bad=117)
    result = compile_to(model, tmp_path / "out", Options(levels=("v2",), force=True), config)
    left = {item.node.name for item in result.plan.left}
    assert "n117" in left and len(left) <= 4
    assert len(result.plan.regions) == 2, "good parts are one region again on either side"
    assert right(result, model)
    (note,) = result.notes
    assert note.startswith("Region 0 was cut into parts") and f"{NODES - len(left)} of its 200 nodes stay" in note
    verdicts = {v.region for v in result.findings.verdicts if not v.rejected}
    assert verdicts >= {region.index for region in result.plan.regions} | {None}
    report = report_of(result, "chain", Picture())
    assert "rejected" in check_line(report.check) and report.in_kernels == NODES - len(left)


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


def right(result: Result, model: onnx.ModelProto) -> bool:
    import onnxruntime

    x = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.allclose(Executable.open(result.artifact).run({"v0": x})[0], stock.run(None, {"v0": x})[0], atol=1e-5)
