"""`smelt reduce` end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

_WRONG_TANH = """
from smelt.ir.kernel import expr as E
from smelt.ops import lookup

def wrong(call):
    return call.k.map(lambda x: E.op("abs", x), call.x())

lookup("", "Tanh", 17).__dict__["lowering"] = wrong
"""


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    special = {4: "Tanh", 9: "Sin"}
    nodes = [helper.make_node(special.get(i, "Neg"), [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(14)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("v14", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "chain", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_command_of_the_users_own_decides(call, model_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "fails.sh"
    script.write_text('#!/bin/sh\ngrep -q Tanh "$1" && grep -q Sin "$1"\n', encoding="utf-8")
    script.chmod(0o700)
    facts = json.loads(call("reduce", model_path, "-o", tmp_path / "out", "--test", script, "--json").out)
    assert facts["nodes"] == ["Tanh n4", "Sin n9"]
    reduced = onnx.load(tmp_path / "out" / "model.onnx")
    assert [node.op_type for node in reduced.graph.node] == ["Tanh", "Sin"]
    with np.load(tmp_path / "out" / "feeds.npz") as feeds:
        assert sorted(feeds["names"]) == ["v4", "v9"]


def test_a_model_that_does_not_fail_says_so(call, model_path: Path, tmp_path: Path) -> None:
    answer = call("reduce", model_path, "-o", tmp_path / "out", "--test", "false")
    assert answer.code == 1 and "does not fail" in answer.out and not (tmp_path / "out").exists()


@pytest.mark.full
def test_a_wrong_kernel_is_cut_out_with_a_script_that_shows_it(
    call, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "sitecustomize.py").write_text(_WRONG_TANH, encoding="utf-8")
    monkeypatch.syspath_prepend(str(plugin))  # the processes that try parts get this path
    arguments = ("-o", tmp_path / "out", "--force", "--levels", "v2", "--json")
    facts = json.loads(call("reduce", model_path, *arguments).out)
    assert facts["nodes"] == ["Tanh n4"] and facts["failure"] == "wrong result"
    script = [sys.executable, str(tmp_path / "out" / "repro.py")]
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ran = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1 and "DIFFERENT" in ran.stdout, ran.stderr
    without = {**environment, "PYTHONPATH": ":".join(p for p in sys.path if p and p != str(plugin))}
    ran = subprocess.run(script, env=without, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and "as stock ONNX Runtime" in ran.stdout, ran.stderr
