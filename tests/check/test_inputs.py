"""Generated inputs are such that models take them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.check.inputs import ATTEMPTS, index_bound, make_feeds
from smelt.ir.traced import mark_traced_shape, mark_traced_size


def model_of(nodes, inputs, initializers=()) -> ir.Model:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", infos, outputs, list(initializers))
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def embedding() -> ir.Model:
    table = helper.make_tensor("table", TensorProto.FLOAT, [11, 4], np.zeros(44, np.float32))
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [-1])
    nodes = [
        helper.make_node("Reshape", ["ids", "shape"], ["flat"]),
        helper.make_node("Gather", ["table", "flat"], ["y"]),
    ]
    return model_of(nodes, [("ids", TensorProto.INT64, ["batch", "seq"])], [table, shape])


def test_indices_stay_inside_the_table_that_they_look_up_through_reshapes():
    model = embedding()
    ids = make_feeds(model, "small", 0)["ids"]
    assert index_bound(model.graph.inputs[0]) == 11
    assert ids.min() >= 0 and ids.max() < 11 and len(np.unique(ids)) > 3


def test_free_sizes_are_small_and_odd_for_verification_and_real_for_timing():
    assert make_feeds(embedding(), "small", 0)["ids"].shape == (2, 17)
    assert make_feeds(embedding(), "real", 0)["ids"].shape == (1, 128)


@pytest.mark.parametrize(
    ("dims", "batch"),
    [(["n", 900, 160], 1), ([None, 900, 160], 1), (["n", 90, 16], 2), (["n", "m", 9000], 2), (["n", 900, "n"], 2)],
)
def test_a_batch_of_large_items_begins_with_one(dims: list[int | str | None], batch: int):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [("x", TensorProto.FLOAT, dims)])
    assert make_feeds(model, "small", 0)["x"].shape[0] == batch


def test_masks_hold_zeros_and_ones_and_no_empty_row():
    nodes = [helper.make_node("Cast", ["attention_mask"], ["y"], to=TensorProto.FLOAT)]
    model = model_of(nodes, [("attention_mask", TensorProto.INT64, ["batch", "seq"])])
    mask = make_feeds(model, "small", 0)["attention_mask"]
    assert set(np.unique(mask)) == {0, 1} and mask[:, 0].all()


@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
def test_a_size_that_is_a_sum_of_others_is_their_sum(order):
    nodes = [helper.make_node("Identity", ["c"], ["y"])]
    named = {"a": ["past"], "b": ["seq_len"], "c": ["past + seq_len"]}
    sizes = [(name, named[name]) for name in order]
    model = model_of(nodes, [(name, TensorProto.FLOAT, dims) for name, dims in sizes])
    feeds = make_feeds(model, "small", 0)
    assert feeds["c"].shape[0] == feeds["a"].shape[0] + feeds["b"].shape[0]


def test_attempts_differ_repeat_exactly_and_end():
    model = embedding()
    first, again, other = make_feeds(model, "small", 0), make_feeds(model, "small", 0), make_feeds(model, "small", 2)
    assert np.array_equal(first["ids"], again["ids"]) and first["ids"].shape != other["ids"].shape
    assert make_feeds(model, "small", ATTEMPTS) is None


@pytest.mark.parametrize(
    ("kind", "dims", "long"),
    [
        (TensorProto.FLOAT, ["n", "samples"], True), (TensorProto.FLOAT, ["n", 1, "samples"], True),
        (TensorProto.FLOAT, ["n", "samples", 1], True), (TensorProto.INT64, ["n", "tokens"], False),
        (TensorProto.INT32, ["n", "tokens"], False), (TensorProto.FLOAT, ["n", "tokens", 768], False),
    ],
)  # fmt: skip
def test_the_length_of_sound_is_no_number_of_tokens(kind: int, dims: list[int | str], long: bool):
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], [("x", kind, dims)])
    made = [make_feeds(model, size, attempt) for size in ("small", "real") for attempt in range(ATTEMPTS)]
    assert any(max(feeds["x"].shape) == 16000 for feeds in made if feeds) == long
    assert sum(feeds is None for feeds in made) == (0 if long else 2)


def test_inputs_that_are_huge_or_no_tensors_are_not_made():
    huge = model_of([helper.make_node("Identity", ["x"], ["y"])], [("x", TensorProto.FLOAT, [1 << 20, 1 << 20])])
    assert make_feeds(huge, "small", 0) is None


def test_some_attempts_take_the_free_axis_of_a_state_for_the_batch():
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model = model_of(nodes, [("x", TensorProto.FLOAT, [None, None]), ("state", TensorProto.FLOAT, [2, None, 128])])
    made = [make_feeds(model, "small", attempt) for attempt in range(ATTEMPTS)]
    assert any(feeds["state"].shape[1] == feeds["x"].shape[0] and feeds["x"].shape[1] >= 512 for feeds in made)


def test_a_size_that_follows_from_one_that_is_no_axis_is_made_from_it():
    nodes = [helper.make_node("Identity", ["a"], ["y"])]
    dims = {"a": ["floordiv(n + 3, 4)"], "b": ["n + 1"]}
    model = model_of(nodes, [(name, TensorProto.FLOAT, shape) for name, shape in dims.items()])
    for attempt in range(ATTEMPTS):
        feeds = make_feeds(model, "small", attempt)
        assert feeds["a"].shape[0] == (feeds["b"].shape[0] + 2) // 4


def added_then_multiplied(other_width: str) -> ir.Model:
    """`x` has the depth of a product behind a sum; `y` may carry the same name on an axis of another size."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [24, 8], np.zeros(192, np.float32))
    narrow = helper.make_tensor("v", TensorProto.FLOAT, [5, 24], np.zeros(120, np.float32))
    nodes = [
        helper.make_node("MatMul", ["y", "v"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["z"]),
    ]
    inputs = [("x", TensorProto.FLOAT, ["batch", "length", "width"])]
    return model_of(nodes, [*inputs, ("y", TensorProto.FLOAT, ["batch", "length", other_width])], [weight, narrow])


def test_an_axis_has_the_size_that_a_product_behind_a_sum_demands():
    feeds = make_feeds(added_then_multiplied("other"), "small", 0)
    assert feeds["x"].shape == (2, 17, 24) and feeds["y"].shape == (2, 17, 5)


def test_one_attempt_lets_axes_of_one_name_differ_where_ops_demand_it():
    shapes = [
        (feeds["x"].shape, feeds["y"].shape)
        for attempt in range(ATTEMPTS)
        if (feeds := make_feeds(added_then_multiplied("width"), "small", attempt)) is not None
    ]
    assert ((2, 17, 24), (2, 17, 5)) in shapes


def test_a_constant_that_is_added_suggests_a_size_and_a_product_decides():
    bias = helper.make_tensor("b", TensorProto.FLOAT, [6], np.zeros(6, np.float32))
    nodes = [helper.make_node("Mul", ["x", "b"], ["y"])]
    assert make_feeds(model_of(nodes, [("x", TensorProto.FLOAT, ["n", "c"])], [bias]), "small", 0)["x"].shape == (2, 6)
    one = helper.make_tensor("b", TensorProto.FLOAT, [1], np.zeros(1, np.float32))
    assert make_feeds(model_of(nodes, [("x", TensorProto.FLOAT, ["n", "c"])], [one]), "small", 0)["x"].shape == (2, 17)


def counted(formula: str, example: int, shape: tuple[int, int]) -> ir.Model:
    """A tensor and an integer of which a tracer saw an example."""
    nodes = [helper.make_node("Range", ["zero", "n", "one"], ["y"])]
    numbers = [helper.make_tensor(name, TensorProto.INT64, [], [number]) for name, number in (("zero", 0), ("one", 1))]
    inputs = [("x", TensorProto.FLOAT, ["a", "b"]), ("n", TensorProto.INT64, [])]
    model = model_of(nodes, inputs, numbers)
    mark_traced_shape(model.graph.inputs[0], shape)
    mark_traced_size(model.graph.inputs[1], formula, example)
    return model


def test_the_first_sizes_are_those_that_a_tracer_saw_where_integers_decide_some():
    feeds = make_feeds(counted("s0", 40, (6, 7)), "small", 0)
    assert feeds["x"].shape == (6, 7) and feeds["n"] == 40 and feeds["n"].shape == ()
    assert make_feeds(counted("s0", 40, (6, 7)), "real", 0)["x"].shape == (6, 7)
    assert make_feeds(counted("s0", 40, (1 << 13, 1 << 13)), "small", 0) is None


@pytest.mark.parametrize("attempt", range(1, 5))
def test_a_traced_integer_is_what_later_sizes_tell_else_that_of_the_example(attempt: int):
    product = make_feeds(counted("a*b", 42, (6, 7)), "small", attempt)
    assert product["n"] == product["x"].size and product["x"].shape != (6, 7)
    assert make_feeds(counted("s0*a", 40, (6, 7)), "small", attempt)["n"] == 40
    assert make_feeds(counted("s0", 40, (6, 7)), "small", attempt)["n"] == 40
