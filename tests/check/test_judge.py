"""One verdict: near to stock is right, else the reference decides, and never by what it costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.check import references
from smelt.check.contract import Bounds, compare_all
from smelt.check.judge import Judge
from smelt.check.moved_models import with_moved_weights
from smelt.check.references import TooCostlyError, evaluate_model, work_of
from smelt.runtime import SessionSettings


def saved(path: Path, nodes, inputs, outputs, initializers=(), opset: int = 17) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


def floats(name: str, *dims: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims))


@pytest.fixture
def product(tmp_path: Path) -> Path:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 8], np.random.default_rng(0).standard_normal(512))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return saved(tmp_path / "m.onnx", nodes, [floats("x", "n", 64)], [floats("y", "n", 8)], [weight])


X = {"x": np.random.default_rng(1).standard_normal((3, 64), np.float32)}


def test_results_as_stock_gives_them_need_no_reference(product: Path):
    judge = Judge(product, "product", ["MatMul"], budget=0.0)
    stock = judge.stock(X)
    found = judge(X, stock, stock)
    assert not found.comparison.problem and found.reference == "stock" and not found.note


def test_results_away_from_stock_are_judged_by_the_reference(product: Path):
    judge = Judge(product, "product", ["MatMul"])
    stock = judge.stock(X)
    off = [stock[0] + 5e-6 * np.abs(stock[0])]
    found = judge(X, off, stock)
    assert found.reference == "float64" and not found.comparison.problem
    assert judge(X, [stock[0] * 1.001], stock).comparison.problem


def test_one_reference_serves_all_results_of_the_same_inputs(product: Path):
    computed: list[int] = []
    judge = Judge(product, "product", ["MatMul"], lambda: computed.append(1))
    stock = judge.stock(X)
    off = [stock[0] + 5e-6 * np.abs(stock[0])]
    assert [judge(feeds, off, stock).reference for feeds in (X, dict(X))] == ["float64"] * 2 and len(computed) == 1
    other = {"x": X["x"] + 1}
    assert judge(other, off, judge.stock(other)).comparison.problem and len(computed) > 1


def test_a_reference_that_would_take_too_long_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The last of its nodes costs more than the budget, at these sizes."""
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Expand", ["a", "s"], ["b"]),
             helper.make_node("MatMul", ["b", "b"], ["y"])]  # fmt: skip
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [512, 512])
    path = saved(tmp_path / "m.onnx", nodes, [floats("x", "n", 1)], [floats("y", 3, "k")], [shape])
    begun: list[str] = []
    monkeypatch.setattr(references, "evaluate_nodes", lambda nodes, *_: begun.append(nodes[0].op_type))
    with pytest.raises(TooCostlyError):
        evaluate_model(path, [np.zeros((512, 1), np.float32)], 1e7)
    assert begun == []


def test_a_reference_that_would_take_too_long_leaves_the_verdict_to_stock(product: Path):
    judge = Judge(product, "product", ["MatMul"], budget=10.0)
    stock = judge.stock(X)
    off = [stock[0] + 5e-6 * np.abs(stock[0])]
    found = judge(X, off, stock)
    assert found.reference == "stock" and "too long" in found.note and not found.comparison.problem
    assert judge(X, [stock[0] * 1.001], stock).comparison.problem


def test_what_a_reference_costs_is_known_before_it_begins(product: Path):
    with pytest.raises(TooCostlyError):
        evaluate_model(product, [X["x"]], budget=10.0)
    node = ir.load(product).graph[0]
    env = {node.inputs[0]: np.zeros((1000, 64), np.float32)}
    assert work_of(node, env) > 1000 * 64 * 8


def test_bounds_of_the_users_own_take_the_place_of_the_contract(product: Path):
    judge = Judge(product, "model", ["MatMul"])
    stock = judge.stock(X)
    off = [stock[0] + np.float32(0.01)]
    assert judge(X, off, stock).comparison.problem
    assert not judge(X, off, stock, Bounds(atol=0.02)).comparison.problem
    assert judge(X, off, stock, Bounds(atol=0.005)).comparison.problem


def test_sequences_and_maps_are_compared_tensor_by_tensor():
    one, two = np.ones(3, np.float32), np.zeros((2, 2), np.float32)
    near = [one * np.float32(1 + 1e-7), two]
    assert not compare_all([near], [[one, two]], None, "model").problem
    assert "2 tensors" in compare_all([[one]], [[one, two]], None, "model").problem
    assert compare_all([[one, two + 1]], [[one, two]], None, "model").failing == (0,)
    scores = [{"a": 0.25, "b": 0.75}]
    assert not compare_all([scores], [[{"b": 0.75, "a": 0.25 + 1e-8}]], None, "model").problem
    assert compare_all([scores], [[{"a": 0.25, "c": 0.75}]], None, "model").problem


def quantized(path: Path, layers: int) -> Path:
    """Products between quantizations, as QDQ files have them."""
    rng = np.random.default_rng(5)
    nodes, weights, value = [], [], "x"
    weights += [
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.05]),
        helper.make_tensor("zero", TensorProto.UINT8, [], [128]),
    ]
    for layer in range(layers):
        weights.append(helper.make_tensor(f"w{layer}", TensorProto.FLOAT, [32, 32], rng.standard_normal(1024) / 5.6))
        nodes += [
            helper.make_node("QuantizeLinear", [value, "scale", "zero"], [f"q{layer}"]),
            helper.make_node("DequantizeLinear", [f"q{layer}", "scale", "zero"], [f"d{layer}"]),
            helper.make_node("MatMul", [f"d{layer}", f"w{layer}"], [f"m{layer}"]),
        ]
        value = f"m{layer}"
    return saved(path, nodes, [floats("x", "n", 32)], [floats(value, "n", 32)], weights)


def test_ties_of_a_quantized_network_may_fall_otherwise(tmp_path: Path):
    """The same network with its scales moved by a unit in the last place is as right; one with wrong steps is not."""
    path = quantized(tmp_path / "q.onnx", 6)
    judge = Judge(path, "product", ["QuantizeLinear", "DequantizeLinear", "MatMul"])
    feeds = {"x": np.random.default_rng(3).standard_normal((4000, 32), np.float32)}
    stock = judge.stock(feeds)
    model = onnx.load(path)
    scale = next(t for t in model.graph.initializer if t.name == "scale")
    scale.CopyFrom(onnx.numpy_helper.from_array(np.float32(0.05 * (1 + 4 * 2.0**-23)), "scale"))
    onnx.save(model, tmp_path / "near.onnx")
    near = Judge(tmp_path / "near.onnx", "product", []).stock(feeds)
    apart = np.abs(near[0] - stock[0]).max()
    assert apart > 0.01, "a tie has moved, or this test shows nothing"
    found = judge(feeds, near, stock)
    assert found.reference == "steps" and not found.comparison.problem
    scale.CopyFrom(onnx.numpy_helper.from_array(np.float32(0.06), "scale"))
    onnx.save(model, tmp_path / "far.onnx")
    far = Judge(tmp_path / "far.onnx", "product", []).stock(feeds)
    assert judge(feeds, far, stock).comparison.problem


def narrow(path: Path, layers: int, moved: float, factor: float = 1.0) -> Path:
    """Layers of MatMulNBits with 8-bit activations, scales moved by so many of themselves; the last times a factor."""
    rng = np.random.default_rng(4)
    nodes: list[onnx.NodeProto] = []
    held: list[onnx.TensorProto] = []
    for i in range(layers):
        held.append(onnx.numpy_helper.from_array(rng.integers(0, 256, (64, 2, 16)).astype(np.uint8), f"b{i}"))
        scales = (0.03 * (1 + moved)) * rng.uniform(0.5, 1, (64, 2)) * (factor if i == layers - 1 else 1)
        held.append(onnx.numpy_helper.from_array(scales.astype(np.float32), f"s{i}"))
        names = ["x" if i == 0 else f"h{i}", f"b{i}", f"s{i}"]
        how = {"K": 64, "N": 64, "bits": 4, "block_size": 32, "accuracy_level": 4}
        nodes.append(helper.make_node("MatMulNBits", names, [f"h{i + 1}"], domain="com.microsoft", **how))
    graph = helper.make_graph(nodes, "g", [floats("x", "n", 64)], [floats(f"h{layers}", "n", 64)], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def test_products_with_narrow_activations_may_be_as_far_off_as_stock(tmp_path: Path):
    """Ties of quantized activations fall otherwise; weights that are a twentieth off are no such tie."""
    judge = Judge(narrow(tmp_path / "m.onnx", 8, 0), "model", ["MatMulNBits"])
    feeds = {"x": np.random.default_rng(3).standard_normal((30, 64), np.float32)}
    stock = judge.stock(feeds)
    near = Judge(narrow(tmp_path / "near.onnx", 8, 3e-7), "model", []).stock(feeds)
    assert compare_all(near, stock, None, "model").problem, "a tie has moved, or this test shows nothing"
    found = judge(feeds, near, stock)
    assert found.reference == "steps" and not found.comparison.problem
    far = Judge(narrow(tmp_path / "far.onnx", 8, 0, 1.1), "model", []).stock(feeds)
    assert judge(feeds, far, stock).comparison.problem


def test_stock_with_its_optimizers_is_a_yardstick_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    path = saved(tmp_path / "t.onnx", nodes, [floats("x", "n")], [floats("y", "n")], [])
    judge = Judge(path, "elementwise", ["Tanh"])
    feeds = {"x": np.linspace(0.5, 1, 50, dtype=np.float32)}
    truth = judge.stock(feeds)[0]
    stock, off = [truth * np.float32(1 - 1e-5)], [truth * np.float32(1 + 2e-5)]
    assert judge(feeds, off, stock).comparison.problem

    def optimized(error: float) -> Judge:
        made = Judge(path, "elementwise", ["Tanh"])
        monkeypatch.setattr(made, "_again", lambda settings, given: [truth * np.float32(1 - error)])
        return made

    judge = optimized(1.5e-5)
    assert not judge(feeds, off, stock).comparison.problem
    assert judge(feeds, [truth * np.float32(1 + 3e-5)], stock).comparison.problem
    judge = optimized(6e-3)
    assert judge(feeds, off, stock).comparison.problem, "optimizers that compute in another type allow nothing"


def test_sums_that_cancel_are_held_to_what_a_unit_in_the_last_place_of_weights_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A single input has few neighbours: moving it makes no other roundings inside the network."""
    rng = np.random.default_rng(3)
    first = rng.standard_normal((1, 256)).astype(np.float32)
    second = (rng.standard_normal((256, 4)) * 24).astype(np.float32)
    second[-1] -= (first @ second / first[0, -1])[0]  # nothing but roundings is left
    weights = [onnx.numpy_helper.from_array(first, "a")]
    nodes = [
        helper.make_node("Constant", [], ["b"], value=onnx.numpy_helper.from_array(second, "b")),
        helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["y"]),
    ]  # fmt: skip
    path = saved(tmp_path / "s.onnx", nodes, [floats("x", "n", 1)], [floats("y", "n", 4)], weights)
    judge = Judge(path, "model", ["MatMul", "Sigmoid"])
    feeds = {"x": np.ones((1, 1), np.float32)}
    truth = judge.reference(feeds)[0]
    stock = [np.float32(truth)]
    monkeypatch.setattr(judge, "_again", lambda settings, given: stock)
    moved = with_moved_weights(path, 77)
    assert moved is not None and moved.parent != tmp_path
    apart = np.abs(Judge(moved, "model", []).reference(feeds)[0] - truth).max()
    moved.unlink()
    assert apart > 1.5e-5, "this test shows nothing"
    assert not judge(feeds, [np.float32(truth + apart)], stock).comparison.problem
    assert judge(feeds, [np.float32(truth + 20 * apart)], stock).comparison.problem


def test_each_element_may_be_off_by_the_yardstick_that_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The most sensitive element moves with the inputs; what others may be off by is told by further answers."""
    path = saved(tmp_path / "t.onnx", [helper.make_node("Tanh", ["x"], ["y"])], [floats("x", "n")], [floats("y", "n")])
    judge = Judge(path, "model", ["Tanh"])
    feeds = {"x": np.linspace(0.5, 1, 50, dtype=np.float32)}
    truth, stock = np.float64(judge.reference(feeds)[0]), judge.stock(feeds)

    def off(first: float, second: float) -> list[np.ndarray]:
        scale = np.abs(truth) + np.sqrt(np.mean(truth**2))
        return [np.float32(truth + scale * np.array([first, second, *[0.0] * 48]))]

    monkeypatch.setattr(judge, "_usual", lambda feeds: [])
    monkeypatch.setattr(judge, "_moved_reference", lambda feeds: off(4e-6, 0))
    monkeypatch.setattr(judge, "_draws", lambda feeds: [off(0, 1.2e-5)])
    assert not judge(feeds, off(4e-5, 0), stock).comparison.problem
    assert not judge(feeds, off(0, 1.5e-5), stock).comparison.problem
    assert not judge(feeds, off(4e-5, 1.5e-5), stock).comparison.problem
    assert judge(feeds, off(8e-5, 0), stock).comparison.problem
    assert judge(feeds, off(0, 4e-5), stock).comparison.problem
    assert judge(feeds, off(4e-5, 4e-5), stock).comparison.problem


def test_without_a_reference_the_answers_of_stock_tell_how_far_apart_right_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    path = saved(tmp_path / "t.onnx", nodes, [floats("x", "n")], [floats("y", "n")], [])
    judge = Judge(path, "model", ["Tanh"], budget=0)
    feeds = {"x": np.linspace(0.5, 1, 50, dtype=np.float32)}
    stock = judge.stock(feeds)
    off = [stock[0] * np.float32(1 + 4e-5)]
    assert judge(feeds, off, stock).comparison.problem
    for apart, problem in ((3e-5, False), (1e-3, True)):
        judge = Judge(path, "model", ["Tanh"], budget=0)
        monkeypatch.setattr(judge, "_again", lambda settings, given, apart=apart: [stock[0] * np.float32(1 - apart)])
        assert bool(judge(feeds, off, stock).comparison.problem) is problem


def test_inputs_that_break_the_rules_of_an_op_are_told(tmp_path: Path):
    """Stock passes over an empty operand of a Concat, whatever its other sizes."""
    nodes = [helper.make_node("Concat", ["x", "y"], ["z"], axis=1)]
    path = saved(tmp_path / "c.onnx", nodes, [floats("x", "n", 2), floats("y", "m", 3)], [floats("z", "k", 5)], [])
    judge = Judge(path, "elementwise", ["Concat"])
    empty = {"x": np.zeros((0, 2), np.float32), "y": np.ones((2, 3), np.float32)}
    assert judge.stock(empty)[0].shape == (2, 5), "stock refuses it by now: the rule is no longer needed"
    full = {**empty, "x": np.ones((2, 2), np.float32)}
    assert judge.forbids(empty, full) and not judge.forbids(full, full)


def test_equal_bits_are_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = saved(tmp_path / "m.onnx", [helper.make_node("Exp", ["x"], ["y"])], [floats("x", "n")], [floats("y", "n")])
    judge, feeds = Judge(path, "elementwise", ["Exp"]), {"x": np.linspace(-1, 1, 9, dtype=np.float32)}
    stock, asked = judge.stock(feeds), list[object]()
    by_reference = judge._by_reference
    monkeypatch.setattr(judge, "_by_reference", lambda *given: asked.append(given) or by_reference(*given))
    wrong = stock[0] * np.float32(1.1)
    first = judge(feeds, [wrong], stock)
    assert first.comparison.problem and judge(feeds, [wrong.copy()], stock) is first and len(asked) == 1
    assert not judge(feeds, stock, stock).comparison.problem
    other = {"x": feeds["x"] + 1}  # another question
    assert judge(other, [wrong], judge.stock(other)).comparison.problem and len(asked) == 2


def test_the_cheapest_yardstick_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What stock gives by default is right, and costs less than the reference on moved inputs."""
    path = saved(tmp_path / "m.onnx", [helper.make_node("Exp", ["x"], ["y"])], [floats("x", "n")], [floats("y", "n")])
    judge, feeds = Judge(path, "elementwise", ["Exp"]), {"x": np.linspace(-1, 1, 9, dtype=np.float32)}
    stock = judge.stock(feeds)
    off = stock[0] * np.float32(1.01)
    monkeypatch.setattr(judge, "_usual", lambda feeds: [[off.copy()]])
    monkeypatch.setattr(judge, "_moved_reference", lambda feeds: pytest.fail("asked for what costs more"))
    assert not judge(feeds, [off], stock).comparison.problem


def test_any_of_the_answers_that_stock_gives_by_its_threads_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Some of its quantized kernels give others with other numbers of threads, far apart."""
    path = quantized(tmp_path / "q.onnx", 1)
    judge = Judge(path, "product", ["QuantizeLinear", "DequantizeLinear", "MatMul"])
    feeds = {"x": np.random.default_rng(3).standard_normal((4, 32), np.float32)}
    stock = judge.stock(feeds)
    threaded = [stock[0] * np.float32(1.3)]
    assert Judge(path, "product", judge.op_types)(feeds, threaded, stock).comparison.problem
    again = judge._again

    def by_threads(settings: SessionSettings, given: object) -> list[object]:
        return threaded if settings.threads == 2 else again(settings, given)

    monkeypatch.setattr(judge, "_again", by_threads)
    assert not judge(feeds, threaded, stock).comparison.problem
    assert judge(feeds, [stock[0] * np.float32(2)], stock).comparison.problem


def test_a_quantized_integer_may_be_off_by_one_rarely(tmp_path: Path):
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.1])
    zero = helper.make_tensor("z", TensorProto.UINT8, [], [0])
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, ["n"])
    path = saved(tmp_path / "q.onnx", [node], [floats("x", "n")], [y], [scale, zero])
    judge = Judge(path, "elementwise", ["QuantizeLinear"])
    feeds = {"x": np.random.default_rng(0).uniform(1, 20, 4000).astype(np.float32)}
    stock = judge.stock(feeds)

    def off(count: int, by: int) -> str:
        made = stock[0].copy()
        made[:count] += np.uint8(by)
        return judge(feeds, [made], stock).comparison.problem

    assert not off(3, 1)
    assert off(200, 1) and off(1, 2)


def test_what_stock_gives_by_default_is_right(product: Path, monkeypatch: pytest.MonkeyPatch):
    """Its optimizers may round worse than the nodes one by one; a model that fell back gives what they give."""
    judge = Judge(product, "product", ["MatMul"])
    stock = judge.stock(X)
    usual = [stock[0] * np.float32(1.01)]
    monkeypatch.setattr(Judge, "_again", lambda judge, settings, feeds: usual)
    assert not judge(X, usual, stock).comparison.problem
    assert judge(X, [stock[0] * np.float32(1.02)], stock).comparison.problem


def test_kernels_of_several_levels_are_held_against_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a run of the network: where none of three levels is near to stock, they would cost more than all else."""
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    judge = Judge(saved(tmp_path / "t.onnx", nodes, [floats("x", "n")], [floats("y", "n")], []), "model", ["Tanh"])
    feeds = {"x": np.linspace(0.5, 1, 50, dtype=np.float32)}
    stock, runs = judge.stock(feeds), [0]
    plain = judge.stock

    def counted(given: dict[str, np.ndarray]) -> list[np.ndarray]:
        runs[0] += 1
        return plain(given)

    monkeypatch.setattr(judge, "stock", counted)
    off = [stock[0] * np.float32(1 + 1e-2)]
    assert judge(feeds, off, stock).comparison.problem
    first = runs[0]
    assert first and judge(feeds, off, stock).comparison.problem and runs[0] == first
    other = {"x": feeds["x"] - 1}
    stock = plain(other)
    assert judge(other, [stock[0] + np.float32(1e-2)], stock).comparison.problem and runs[0] == 2 * first
