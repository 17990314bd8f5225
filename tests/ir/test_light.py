"""Weights taken out of a model and put back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.base.errors import ModelError
from smelt.ir.light import KEY, lighten, unlighten
from smelt.ir.load import load_model
from smelt.ir.save import save_model


@pytest.fixture
def proto() -> onnx.ModelProto:
    """A product with a weight, and a branch that holds a weight of its own."""
    random = np.random.default_rng(0)
    weight = numpy_helper.from_array(random.normal(0.5, 2.0, (64, 64)).astype(np.float32), "w")
    ones = numpy_helper.from_array(np.ones(512, np.float32), "ones")
    small = numpy_helper.from_array(np.arange(64, dtype=np.int64), "order")
    inner = numpy_helper.from_array(random.normal(0, 1, (2, 300)).astype(np.float32), "inner")
    one = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 300]) for name in ("t", "e")]
    branch = helper.make_graph([helper.make_node("Neg", ["inner"], ["t"])], "then", [], [one[0]], [inner])
    other = helper.make_graph([helper.make_node("Abs", ["inner2"], ["e"])], "else", [], [one[1]])
    other.initializer.append(numpy_helper.from_array(np.zeros((2, 300), np.float32), "inner2"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gather", ["a", "order"], ["y"], axis=1),
        helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=other),
        helper.make_node("Identity", ["ones"], ["o"]),
    ]
    x, c = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]), helper.make_tensor_value_info("c", 9, [])
    shapes = {"y": ["n", 64], "z": [2, 300], "o": [512]}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", [x, c], outputs, [weight, ones, small])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def answers(model: ir.Model, folder: Path) -> list[np.ndarray]:
    saved = save_model(model, folder / "m.onnx")
    session = onnxruntime.InferenceSession(str(saved.model_path), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    return session.run(None, {"x": x, "c": np.array(True)})


def test_a_light_model_is_small_valid_and_runs(proto: onnx.ModelProto, tmp_path: Path) -> None:
    model = load_model(proto)
    dropped = lighten(model)
    assert {d.name for d in dropped} == {"w", "ones", "inner", "inner2"}
    shapes = [a.shape for a in answers(model, tmp_path)]
    assert shapes == [(3, 64), (2, 300), (512,)]
    assert (tmp_path / "m.onnx").stat().st_size < 4096
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))


def test_the_originals_come_back_bit_for_bit(proto: onnx.ModelProto, tmp_path: Path) -> None:
    expected = answers(load_model(proto), tmp_path)
    model = load_model(proto)
    lighten(model)
    unlighten(model, load_model(proto))
    assert KEY not in model.metadata_props and set(model.graph.initializers) == {"w", "ones", "order"}
    assert not any(node.op_type == "ConstantOfShape" for node in model.graph)
    for left, right in zip(answers(model, tmp_path), expected, strict=True):
        np.testing.assert_array_equal(left, right)


def test_random_weights_have_the_statistics_of_the_original_and_depend_on_the_seed_alone(proto) -> None:
    made = []
    for seed in (0, 0, 1):
        model = load_model(proto)
        lighten(model)
        unlighten(model, seed=seed)
        made.append(model.graph.initializers["w"].const_value.numpy())
        assert np.all(model.graph.initializers["ones"].const_value.numpy() == 1)
    assert abs(made[0].mean() - 0.5) < 0.2 and abs(made[0].std() - 2) < 0.2
    assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])


def test_another_original_is_refused_by_name(proto: onnx.ModelProto) -> None:
    model = load_model(proto)
    lighten(model)
    other = load_model(proto)
    other.graph.initializers["w"].const_value = ir.tensor(np.zeros((64, 64), np.float32))
    with pytest.raises(ModelError, match=r"another tensor 'w'"):
        unlighten(model, other)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-1]},
        {"shape": [1 << 40, 1 << 40]},
        {"std": -1.0},
        {"mean": float("nan")},
        {"dtype": "NOTHING"},
        {"graph": 99},
        {"name": "no such tensor"},
        {"name": 5},
    ],
)
def test_a_record_that_makes_no_sense_is_an_error(proto: onnx.ModelProto, change: dict[str, object]) -> None:
    model = load_model(proto)
    lighten(model)
    record = json.loads(model.metadata_props[KEY])
    model.metadata_props[KEY] = json.dumps([{**record[0], **change}])
    with pytest.raises(ModelError, match="SM-MODEL-010"):
        unlighten(model)


def test_light_twice_and_never_light_are_errors(proto: onnx.ModelProto) -> None:
    model = load_model(proto)
    with pytest.raises(ModelError, match="no light model"):
        unlighten(model)
    lighten(model)
    with pytest.raises(ModelError, match="light already"):
        lighten(model)
