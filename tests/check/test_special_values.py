"""NaN and infinities are fed only where the answer to them is defined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.check.judge import Judge
from smelt.check.region_check import RegionCheck
from smelt.check.special_values import defined_outputs, enlarged
from smelt.runtime import session_for


def model_of(nodes, outputs) -> ir.Model:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("i", 7, ["n"]),
    ]
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    return ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", inputs, infos)))


def test_floats_as_integers_sorts_and_quantizations_are_undefined_and_all_below_them():
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.INT32),
        helper.make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("DynamicQuantizeLinear", ["e"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
    ]
    outputs = [("e", TensorProto.FLOAT), ("f", TensorProto.FLOAT), ("d", TensorProto.FLOAT)]
    assert defined_outputs(model_of(nodes, outputs)) == [0]


@pytest.mark.parametrize(("level", "special"), [(4, []), (1, [0]), (0, [0])])
def test_activations_of_8_bits_are_a_quantization_to_which_large_numbers_are_no_matter(
    level: int, special: list[int]
) -> None:
    """Stock makes a finite number of a NaN there, which depends on where in the block it stands."""
    sizes = {"K": 32, "N": 1, "bits": 4, "block_size": 32}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["m"], **sizes, accuracy_level=level)
    model = model_of([node, helper.make_node("Exp", ["m"], ["y"])], [("y", TensorProto.FLOAT)])
    assert defined_outputs(model) == special
    assert defined_outputs(model, finite=True) == [0]


def test_integers_that_are_cast_to_floats_are_defined():
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BOOL),
        helper.make_node("Where", ["b", "f", "x"], ["y"]),
    ]
    assert defined_outputs(model_of(nodes, [("y", TensorProto.FLOAT), ("i", TensorProto.INT64)])) == [0]


@pytest.mark.parametrize(("op", "right"), [("ReduceMax", True), ("ReduceMean", False)])
def test_stock_does_not_tell_where_it_drops_nan(
    op: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reference there is nothing to hold such a region against; any other is held against stock."""
    nodes = [helper.make_node(op, ["i0"], ["y"], keepdims=0, axes=[1])]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("i0", [40, 70]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "plain.onnx")
    x = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    stock = session_for(tmp_path / "plain.onnx").run(None, {"i0": x})

    def spoiled(one: object, level: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return stock if np.isfinite(inputs[0]).all() else [np.full_like(stock[0], np.nan)]

    monkeypatch.setattr("smelt.check.region_check._OneRegion._run", spoiled)
    region = {"index": 0, "inputs": ["x"], "plain_inputs": ["x"], "outputs": ["y"], "op_types": [op],
              "identical": False, "plain": "plain.onnx", "defined": [0], "finite": [0]}  # fmt: skip
    job = {"threads": 1, "without_reference": [0]}
    check = RegionCheck(job, tmp_path, {"v2": tmp_path}, lambda **told: None)
    assert (not check(region, {"x": x, "y": stock[0]}).comparison.problem) is right


def test_enlarged_values_keep_their_digits_and_reach_a_million():
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    x[-1, -1] = 3
    scales = np.ones(4, np.float32)
    mask = np.full(20, np.finfo(np.float32).min)
    found = enlarged({"x": x, "scales": scales, "mask": mask, "i": np.arange(20)})
    assert found is not None
    factors = found["x"] / x
    assert 2**19 <= np.abs(found["x"]).max() <= 2**20 and set(np.frexp(factors)[0].ravel()) == {0.5}
    assert factors.flat[0] == 1 and found["scales"] is scales and found["mask"] is mask
    assert enlarged({"scales": scales}) is None


@pytest.mark.parametrize(("is_expensive", "runs"), [(False, ["v2", "v4"] * 3), (True, ["v2", "v4", "v4", "v4"])])
def test_an_expensive_region_gets_special_values_at_the_best_level_alone(
    is_expensive: bool, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [helper.make_tensor_value_info(name, 1, [40, 70]) for name in ("i0", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["i0"], ["y"])], "g", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "plain.onnx")
    session, ran = session_for(tmp_path / "plain.onnx"), list[str]()

    def run(one: object, level: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        ran.append(level)
        return session.run(None, {"i0": inputs[0]})

    monkeypatch.setattr("smelt.check.region_check._OneRegion._run", run)
    region = {"index": 0, "inputs": ["x"], "plain_inputs": ["x"], "outputs": ["y"], "op_types": ["Tanh"],
              "identical": False, "plain": "plain.onnx", "defined": [0], "finite": [0],
              "reads_inputs": True}  # fmt: skip
    levels = {"v4": tmp_path, "v2": tmp_path}
    check = RegionCheck({"threads": 1, "without_reference": []}, tmp_path, levels, lambda **told: None)
    check.is_expensive = is_expensive
    x = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    values = {"x": x, "y": session.run(None, {"i0": x})[0]}
    assert not check(region, values).comparison.problem
    assert ran[:2] == runs[:2] and sorted(ran) == sorted(runs)
    assert check.passed["y"].result.tobytes() == values["y"].tobytes()


@pytest.mark.parametrize(("op", "right"), [("Exp", True), ("Tanh", False)])
def test_a_kernel_that_overflows_alone_is_wrong(
    op: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exponential of a million is infinite for everybody; a hyperbolic tangent is finite."""
    nodes = [helper.make_node(op, ["i0"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 1, [40, 70]) for name in ("i0", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "plain.onnx")
    x = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    session = session_for(tmp_path / "plain.onnx")

    def overflowing(one: object, level: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.where(inputs[0] > 1e4, np.float32(np.inf), session.run(None, {"i0": inputs[0]})[0])]

    monkeypatch.setattr("smelt.check.region_check._OneRegion._run", overflowing)
    monkeypatch.setattr("smelt.check.region_check.sprinkled", lambda values: None)
    region = {"index": 0, "inputs": ["x"], "plain_inputs": ["x"], "outputs": ["y"], "op_types": [op],
              "identical": False, "plain": "plain.onnx", "defined": [0], "finite": [0]}  # fmt: skip
    check = RegionCheck({"threads": 1, "without_reference": []}, tmp_path, {"v2": tmp_path}, lambda **told: None)
    found = check(region, {"x": x, "y": session.run(None, {"i0": x})[0]}).comparison.problem
    assert (not found) is right and ("large numbers" in found) is not right


@pytest.mark.parametrize("half", [False, True])
def test_what_a_float16_cannot_hold_may_be_infinite(
    half: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock drops the casts between which it has no kernel, and stays finite; a kernel that rounds is right as well."""
    nodes = [
        helper.make_node("Cast", ["i0"], ["h"], to=10 if half else 1),
        helper.make_node("MatMul", ["h", "h"], ["m"]),
        helper.make_node("Cast", ["m"], ["w"], to=1),
        helper.make_node("Tanh", ["w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [40, 40]) for name in ("i0", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "plain.onnx")
    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    session = session_for(tmp_path / "plain.onnx")

    def overflowing(one: object, level: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        if np.abs(inputs[0]).max() < 6e4:
            return list(session.run(None, {"i0": inputs[0]}))
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = inputs[0].astype(np.float16).astype(np.float32)
            return [np.tanh(rounded @ rounded)]

    monkeypatch.setattr("smelt.check.region_check._OneRegion._run", overflowing)
    monkeypatch.setattr("smelt.check.region_check.sprinkled", lambda values: None)
    region = {"index": 0, "inputs": ["x"], "plain_inputs": ["x"], "outputs": ["y"],
              "op_types": ["Cast", "MatMul", "Tanh"], "identical": False, "plain": "plain.onnx",
              "defined": [0], "finite": [0]}  # fmt: skip
    check = RegionCheck({"threads": 1, "without_reference": []}, tmp_path, {"v2": tmp_path}, lambda **told: None)
    found = check(region, {"x": x, "y": session.run(None, {"i0": x})[0]}).comparison.problem
    assert ("large numbers" in found) is not half


def test_scores_of_hundreds_leave_few_digits_beside_nan_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that sums in another order is as far off with NaN in another row as it is without."""
    nodes = [helper.make_node("MatMul", ["i0", "i1"], ["s"]), helper.make_node("Softmax", ["s"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 1, None) for name in ("i0", "i1", "y")]
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "plain.onnx")
    rng = np.random.default_rng(3)
    values = {"x": rng.standard_normal((64, 768)), "w": 8 * rng.standard_normal((768, 12))}
    values = {name: array.astype(np.float32) for name, array in values.items()}

    def in_another_order(one: object, level: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        x, w = inputs
        with np.errstate(all="ignore"):
            scores = np.add.reduce(x[:, ::-1, None] * w[::-1], axis=1)
            powers = np.exp(scores - scores.max(1, keepdims=True))
            return [powers / powers.sum(1, keepdims=True)]

    def with_nan(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = given["x"].copy()
        x[0, 0] = np.nan
        return {**given, "x": x}

    monkeypatch.setattr("smelt.check.region_check._OneRegion._run", in_another_order)
    monkeypatch.setattr("smelt.check.region_check.sprinkled", with_nan)

    def exact(judge: Judge, *given: object) -> list[np.ndarray]:
        return [np.asarray(one, np.float32) for one in judge.reference(given[-1])]

    monkeypatch.setattr(Judge, "stock", exact)
    monkeypatch.setattr(Judge, "_again", exact)
    stock = exact(Judge(tmp_path / "plain.onnx", "product", ()), {"i0": values["x"], "i1": values["w"]})
    region = {"index": 0, "inputs": ["x", "w"], "plain_inputs": ["x", "w"], "outputs": ["y"],
              "op_types": ["MatMul", "Softmax"], "identical": False, "plain": "plain.onnx", "defined": [0],
              "finite": [0]}  # fmt: skip
    check = RegionCheck({"threads": 1, "without_reference": []}, tmp_path, {"v2": tmp_path}, lambda **told: None)
    assert not check(region, {**values, "y": stock[0]}).comparison.problem
