"""Regions inside control flow cannot be watched: the whole model speaks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.pipeline import Options, compile_to
from smelt.runtime import Executable


def branching() -> onnx.ModelProto:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node(op, ["x"], [f"{name}_a"]), helper.make_node("Add", [f"{name}_a", "x"], [f"{name}_y"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Exp"), else_branch=branch("e", "Tanh"))
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]))
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_model_with_regions_in_branches_is_verified_as_a_whole(tmp_path: Path, config: Config):
    result = compile_to(branching(), tmp_path / "out", Options(force=True, levels=("v2",)), config)
    assert result.findings.rejected == {}
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for condition, expected in ((True, np.exp(x) + x), (False, np.tanh(x) + x)):
        got = Executable.open(result.artifact).run({"c": np.array(condition), "x": x})[0]
        assert np.allclose(got, expected, rtol=1e-5)
    assert len(result.plan.regions) == 2 and [v.region for v in result.findings.verdicts] == [None]


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_wrong_kernel_in_either_branch_is_given_back(tmp_path: Path, config: Config, spoil, wrong: int):
    spoil(wrong, "return smelt_fail(env, SMELT_E_VALUE, -1, 7, 0, 0);")
    result = compile_to(branching(), tmp_path / "out", Options(force=True, levels=("v2",)), config)
    assert not result.plan.regions
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for condition, expected in ((True, np.exp(x) + x), (False, np.tanh(x) + x)):
        got = Executable.open(result.artifact).run({"c": np.array(condition), "x": x})[0]
        assert np.allclose(got, expected, rtol=1e-5)
