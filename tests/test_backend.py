"""smelt behind the interface that onnx's own suite calls."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import smelt.backend
from smelt.base.errors import ConfigError, InputError


@pytest.fixture
def model() -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, None]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["c"])], "g", infos[:2], infos[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_a_prepared_model_runs_on_a_list_or_a_mapping(model: onnx.ModelProto):
    prepared = smelt.backend.prepare(model, "CPU", levels="v2")
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)
    assert (prepared.run([a, b])[0] == -3).all()
    assert (prepared.run({"a": b, "b": a})[0] == 3).all()


@pytest.mark.parametrize(("value", "kernels"), [("1", 1), ("0", 0)])
def test_force_is_a_knob_of_the_environment(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, value: str, kernels: int
):
    monkeypatch.setenv("SMELT_FORCE", value)
    monkeypatch.setenv("SMELT_LEVELS", "v2")
    coverage = smelt.backend.SmeltBackend.prepare(model).compiled.coverage
    assert (coverage.in_kernels, coverage.nodes) == (kernels, 1)


def test_one_node_runs_by_itself():
    node = helper.make_node("Concat", ["a", "b"], ["c"], axis=0)
    made = smelt.backend.run_node(node, [np.zeros(2, np.int64), np.ones(1, np.int64)], levels="v2", force=True)
    assert made[0].tolist() == [0, 0, 1]
    with pytest.raises(InputError, match="takes 2 inputs, 1 were given"):
        smelt.backend.run_node(node, [np.zeros(2, np.int64)])


def test_only_the_cpu_is_a_device(model: onnx.ModelProto):
    assert smelt.backend.supports_device("CPU") and smelt.backend.supports_device("CPU:0")
    assert not smelt.backend.supports_device("CUDA")
    with pytest.raises(ConfigError, match="SM-CONFIG-006"):
        smelt.backend.prepare(model, "CUDA")
