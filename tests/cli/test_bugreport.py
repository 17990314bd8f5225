"""`smelt bugreport`: one file with all that somebody else needs, and nothing that they must not have."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def packed(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_it_holds_versions_plan_log_and_the_weightless_model(call: Any, tmp_path: Path):
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    ran = call("bugreport", tmp_path / "net.onnx", "-o", tmp_path / "report.zip")
    assert ran.code == 0 and ran.out.splitlines()[-1] == str(tmp_path / "report.zip")
    files = packed(tmp_path / "report.zip")
    assert sorted(files) == ["compile.json", "compile.log", "machine.json", "model.light.onnx"]
    assert json.loads(files["compile.json"])["regions"]
    assert b"smelt.pipeline" in files["compile.log"] and b"exit code 0" in files["compile.log"]
    machine = json.loads(files["machine.json"])
    assert "onnxruntime" in {finding["what"] for finding in machine["doctor"]} and "SMELT_CC" in machine["knobs"]
    light = onnx.load(io.BytesIO(files["model.light.onnx"]))
    assert [node.op_type for node in light.graph.node][-2:] == ["MatMul", "Tanh"]
    assert all(weights.tobytes()[:16] not in content for content in files.values())


def test_a_model_that_cannot_be_read_makes_a_report_too(call: Any, tmp_path: Path):
    (tmp_path / "bad.onnx").write_bytes(b"not a model at all")
    assert call("bugreport", tmp_path / "bad.onnx", "-o", tmp_path / "report.zip").code == 0
    files = packed(tmp_path / "report.zip")
    assert b"SM-LOAD-002" in files["model.unreadable.txt"] and b"exit code 2" in files["compile.log"]
    assert call("bugreport", tmp_path / "absent.onnx", "-o", tmp_path / "none.zip").code == 2
    assert not (tmp_path / "none.zip").exists()
