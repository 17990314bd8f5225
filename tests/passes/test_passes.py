"""Passes: each does its work, keeps the model's results, and leaves alone what it must not touch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from pass_models import BOOL, FLOAT, INT64, Spec, build, kinds, op, optimized, x

from smelt.base.errors import SmeltError
from smelt.ir.load import load_model
from smelt.passes import PASSES, BindDims, ort_preoptimize, run_passes

ROW: list[Spec] = [("x", FLOAT, ["n", 8])]
OUT: list[Spec] = [("y", FLOAT, ["n", 8])]


def test_no_ops_are_removed() -> None:
    nodes = [
        op("Identity", "x", "a"), op("Cast", "a", "b", to=FLOAT), op("Dropout", "b", "c"),
        op("Transpose", "c", "d", perm=[0, 1]), op("Concat", "d", "e", axis=0), op("Relu", "e", "f"),
        op("Reshape", "f s", "y"),
    ]  # fmt: skip
    model = optimized(build(nodes, ROW, OUT, {"s": np.array([0, 8])}), {"x": x(3, 8)}, {"x": x(0, 8)})
    assert kinds(model) == ["Relu"]


def test_a_training_dropout_and_a_used_mask_stay() -> None:
    nodes = [op("Dropout", "x _ t", "a"), op("Dropout", "a", "y m")]
    proto = build(nodes, ROW, [*OUT, ("m", BOOL, ["n", 8])], {"t": np.array(True)})
    model = load_model(proto)
    run_passes(model)
    assert kinds(model) == ["Dropout", "Dropout"]


def test_an_output_that_is_an_input_keeps_its_identity() -> None:
    nodes = [op("Identity", "x", "y"), op("Relu", "x", "z"), op("Identity", "z", "w")]
    model = optimized(build(nodes, ROW, [*OUT, ("z", FLOAT, ["n", 8]), ("w", FLOAT, ["n", 8])]), {"x": x(2, 8)})
    assert kinds(model) == ["Identity", "Relu", "Identity"]


def test_constant_arithmetic_is_folded() -> None:
    nodes = [
        op("Constant", "", "c", value_ints=[2, 3]), op("Mul", "c two", "d"), op("ReduceProd", "d", "p", keepdims=0),
        op("Cast", "p", "q", to=FLOAT), op("Sqrt", "q", "r"), op("Mul", "x r", "y"),
    ]  # fmt: skip
    model = optimized(build(nodes, ROW, OUT, {"two": np.array([2, 2])}), {"x": x(2, 8)})
    assert kinds(model) == ["Mul"]


def test_an_overridable_initializer_is_not_a_constant() -> None:
    nodes = [op("Add", "w w", "v"), op("Add", "x v", "y")]
    proto = build(nodes, [*ROW, ("w", FLOAT, [8])], OUT, {"w": x(8)})
    model = optimized(proto, {"x": x(2, 8)}, {"x": x(2, 8), "w": x(8, seed=3)})
    assert kinds(model) == ["Add", "Add"]


def listed(names: str, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Weights w and v and the scalar s, of which `names` are graph inputs too."""
    constants = {"w": x(8, 8), "v": x(8, 8, seed=2), "s": np.array(2, np.float32)}
    shapes = {"w": [8, 8], "v": [8, 8], "s": []}
    return build(nodes, [*ROW, *((name, FLOAT, shapes[name]) for name in names.split())], OUT, constants)


MLP = [op("MatMul", "x w", "a"), op("Mul", "a s", "b"), op("MatMul", "b v", "y")]


@pytest.mark.parametrize("names", ["w v", "s v w"])
def test_a_file_that_lists_all_its_weights_as_inputs_has_constants(names: str) -> None:
    model = optimized(listed(names, MLP), {"x": x(2, 8)})
    assert [value.name for value in model.graph.inputs] == ["x"]


@pytest.mark.parametrize("names", ["s", "w", "s w"])
def test_a_file_that_lists_some_of_its_initializers_lets_callers_feed_them(names: str) -> None:
    feeds = {name: x(*(() if name == "s" else (8, 8)), seed=5) for name in names.split()}
    model = optimized(listed(names, MLP), {"x": x(2, 8)}, {"x": x(2, 8), **feeds})
    assert {value.name for value in model.graph.inputs} == {"x", *names.split()}


def test_weights_listed_as_inputs_stay_inputs_on_demand() -> None:
    model = load_model(listed("s v w", MLP))
    run_passes(model, skip=["freeze-initializers"])
    assert [value.name for value in model.graph.inputs] == ["x", "s", "v", "w"]


def test_initializers_of_ir_version_3_are_constants() -> None:
    nodes = [op("Add", "w w", "v"), op("Add", "x v", "y")]
    model = optimized(build(nodes, [*ROW, ("w", FLOAT, [8])], OUT, {"w": x(8)}, opset=8, ir_version=3), {"x": x(2, 8)})
    assert kinds(model) == ["Add"]
    assert [value.name for value in model.graph.inputs] == ["x"]


@pytest.mark.parametrize(
    "node",
    [
        op("ConstantOfShape", "huge", "b"), op("Expand", "one huge", "b"), op("Tile", "grid many", "b"),
        op("Range", "zero far step", "b"), op("Mul", "column row", "b"),
    ],
    ids=lambda node: node.op_type,
)  # fmt: skip
def test_bombs_are_not_folded(node: onnx.NodeProto) -> None:
    constants = {
        "huge": np.array([1 << 20, 1 << 20]), "one": np.ones((1, 1), np.float32), "grid": np.ones((2, 2), np.float32),
        "many": np.array([1 << 30, 1 << 30]), "zero": np.array(0), "far": np.array(1 << 60), "step": np.array(1),
        "column": np.ones((60_000, 1), np.float32), "row": np.ones((1, 60_000), np.float32),
    }  # fmt: skip
    model = load_model(build([node, op("Shape", "b", "y")], [], [("y", INT64, [None])], constants))
    run_passes(model, only=["fold-constants"])
    assert kinds(model) == [node.op_type, "Shape"]


@pytest.mark.parametrize(("left", "right"), [([7, -7, 7, -7], [2, 2, -2, -2]), ([1], [0]), ([-(2**63)], [-1])])
def test_integer_division_truncates_and_undefined_cases_stay(left: list[int], right: list[int]) -> None:
    proto = build(
        [op("Div", "a b", "c"), op("Identity", "c", "y")], [], [("y", INT64, [None])],
        {"a": np.array(left), "b": np.array(right)},
    )  # fmt: skip
    model = load_model(proto)
    run_passes(model, only=["fold-constants"])
    folded = "Div" not in kinds(model)
    assert folded == (len(left) == 4)
    if folded:
        (value,) = (v for name, v in model.graph.initializers.items() if name.startswith("smelt_"))
        assert value.const_value is not None and value.const_value.numpy().tolist() == [3, -3, -3, 3]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
    st.sampled_from(["Add", "Sub", "Mul", "Neg", "Abs"]),
)
def test_integer_folding_wraps_as_the_runtime_does(numbers: list[int], kind: str) -> None:
    array = np.array(numbers, np.int64)
    node = op(kind, "a" if kind in ("Neg", "Abs") else "a b", "c")
    proto = build([node, op("Identity", "c", "y")], [], [("y", INT64, [None])], {"a": array, "b": array[::-1].copy()})
    optimized(proto, {})


def reshape_to_heads(opset: int = 18) -> onnx.ModelProto:
    nodes = [
        op("Shape", "x", "s"), op("Gather", "s zero", "b"), op("Gather", "s one", "t"), op("Unsqueeze", "b ax", "bu"),
        op("Unsqueeze", "t ax", "tu"), op("Concat", "bu tu heads size", "shape", axis=0), op("Reshape", "x shape", "r"),
        op("Transpose", "r", "y", perm=[0, 2, 1, 3]),
    ]  # fmt: skip
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "ax": np.array([0]),
        "heads": np.array([2]),
        "size": np.array([4]),
    }
    return build(nodes, [("x", FLOAT, ["b", "t", 8])], [("y", FLOAT, ["b", 2, "t", 4])], constants, opset)


def test_shape_arithmetic_becomes_a_constant_target() -> None:
    feeds = [{"x": x(*shape, 8)} for shape in ((2, 3), (1, 1), (0, 3), (2, 0))]
    model = optimized(reshape_to_heads(), *feeds)
    assert kinds(model) == ["Reshape", "Transpose"]
    target = model.graph[0].inputs[1]
    assert target is not None and target.const_value is not None
    assert target.const_value.numpy().tolist() == [0, 0, 2, 4]


def test_targets_that_keep_zeros_become_copies_unless_a_zero_is_meant() -> None:
    proto = reshape_to_heads()
    reshape = next(node for node in proto.graph.node if node.op_type == "Reshape")
    reshape.attribute.append(helper.make_attribute("allowzero", 1))
    model = optimized(proto, *({"x": x(*shape, 8)} for shape in ((2, 3), (1, 1), (0, 3), (2, 0))))
    assert kinds(model) == ["Reshape", "Transpose"]
    nodes = [
        op("Shape", "x", "s"), op("Gather", "s one", "t"), op("Concat", "t none", "shape", axis=0),
        op("Reshape", "x shape", "y", allowzero=1),
    ]  # fmt: skip
    spec: list[Spec] = [("x", FLOAT, ["b", "t"])]
    meant = build(nodes, spec, [("y", FLOAT, ["t", 0])], {"one": np.array([1]), "none": np.array([0])})
    assert "Concat" in kinds(optimized(meant, {"x": x(0, 3)}))


def test_minus_one_is_not_used_beside_a_dimension_that_may_be_zero() -> None:
    nodes = [
        op("Shape", "x", "s"), op("Gather", "s two", "c"), op("Concat", "first c", "shape", axis=0),
        op("Reshape", "z shape", "y"), op("Slice", "s i0 i1", "first"),
    ]  # fmt: skip
    constants = {"two": np.array([2]), "i0": np.array([0]), "i1": np.array([1])}
    inputs: list[Spec] = [("x", FLOAT, ["a", "b", "c"]), ("z", FLOAT, ["m"])]
    proto = build([nodes[0], nodes[1], nodes[4], nodes[2], nodes[3]], inputs, [("y", FLOAT, ["a", "c"])], constants)
    model = optimized(proto, {"x": x(2, 3, 4), "z": x(8)})
    assert "Concat" in kinds(model)


def test_wrong_value_info_does_not_lead_to_a_wrong_answer() -> None:
    proto = build([op("Relu", "x", "r"), op("Shape", "r", "y")], ROW, [("y", INT64, [2])])
    proto.graph.value_info.append(helper.make_tensor_value_info("r", FLOAT, [5, 7]))
    model = load_model(proto)
    run_passes(model)
    assert "Shape" in kinds(model)


def test_declared_names_survive_where_derivation_makes_one_up_but_declared_sizes_do_not() -> None:
    nodes = [op("NonZero", "x", "i"), op("Abs", "i", "j"), op("Neg", "j", "y")]
    proto = build(nodes, ROW, [("y", INT64, [2, None])])
    proto.graph.value_info.append(helper.make_tensor_value_info("i", INT64, [3, "hits"]))
    proto.graph.value_info.append(helper.make_tensor_value_info("j", INT64, [2, 77]))
    model = load_model(proto)
    run_passes(model, only=["infer-shapes"])
    first, second = (node.outputs[0].shape for node in list(model.graph)[:2])
    assert first == ir.Shape([2, "hits"])
    assert second is not None and second[0] == 2 and second[1] != 77


def test_sequences_keep_their_type() -> None:
    nodes = [op("SequenceConstruct", "x x", "s"), op("Identity", "s", "t"), op("SequenceAt", "t i", "y")]
    model = optimized(build(nodes, ROW, OUT, {"i": np.array(1)}), {"x": x(2, 8)})
    assert isinstance(model.graph[0].outputs[0].type, ir.SequenceType)


def gelu(form: int, opset: int) -> onnx.ModelProto:
    bell = [op("Div", "x root2", "d"), op("Erf", "d", "e"), op("Add", "e one", "a")]
    tails = [
        [op("Mul", "x a", "m"), op("Mul", "m half", "y")],
        [op("Mul", "x half", "m"), op("Mul", "m a", "y")],
        [op("Mul", "half a", "m"), op("Mul", "x m", "y")],
    ]
    if form < 3:
        nodes = bell + tails[form]
    else:
        cube = [op("Pow", "x three", "p")] if form == 3 else [op("Mul", "x x", "q"), op("Mul", "x q", "p")]
        nodes = [
            *cube, op("Mul", "p k", "pk"), op("Add", "x pk", "i"), op("Mul", "i c", "j"), op("Tanh", "j", "e"),
            op("Add", "one e", "a"), *tails[1],
        ]  # fmt: skip
    numbers = {"root2": math.sqrt(2), "one": 1, "half": 0.5, "three": 3, "k": 0.044715, "c": math.sqrt(2 / math.pi)}
    return build(nodes, ROW, OUT, {name: np.array(n, np.float32) for name, n in numbers.items()}, opset)


@pytest.mark.parametrize("form", range(5))
@pytest.mark.parametrize("opset", [17, 20])
def test_gelu_is_recognized_in_every_form(form: int, opset: int) -> None:
    model = optimized(gelu(form, opset), {"x": x(3, 8)})
    assert kinds(model) == ["FastGelu" if form >= 3 and opset < 20 else "Gelu"]


def test_a_gelu_whose_inside_is_used_elsewhere_stays() -> None:
    proto = gelu(0, 20)
    proto.graph.output.append(helper.make_tensor_value_info("a", FLOAT, ["n", 8]))
    assert "Erf" in kinds(optimized(proto, {"x": x(3, 8)}))


def layer_norm(opset: int, scale_shape: tuple[int, ...] = (8,)) -> onnx.ModelProto:
    axes = {"axes": [-1]} if opset < 18 else {}
    tail = "" if opset < 18 else " axes"
    nodes = [
        op("ReduceMean", "x" + tail, "m", **axes), op("Sub", "x m", "d"), op("Pow", "d two", "p"),
        op("ReduceMean", "p" + tail, "v", **axes), op("Add", "v eps", "w"), op("Sqrt", "w", "s"), op("Div", "d s", "n"),
        op("Mul", "n g", "h"), op("Add", "h b", "y"),
    ]  # fmt: skip
    constants: dict[str, np.ndarray] = {"two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32)}
    constants |= {"g": x(*scale_shape, seed=1), "b": x(*scale_shape, seed=2), "axes": np.array([-1])}
    return build(nodes, ROW, OUT, constants, opset)


@pytest.mark.parametrize("opset", [17, 18])
def test_layer_norm_is_recognized(opset: int) -> None:
    assert kinds(optimized(layer_norm(opset), {"x": x(3, 8)})) == ["LayerNormalization"]


def test_layer_norm_stays_in_old_opsets_and_with_other_scales() -> None:
    assert "LayerNormalization" not in kinds(optimized(layer_norm(13), {"x": x(3, 8)}))
    assert "LayerNormalization" not in kinds(optimized(layer_norm(18, (1, 8)), {"x": x(3, 8)}))


def test_rms_norm_is_recognized() -> None:
    nodes = [
        op("Mul", "x x", "p"), op("ReduceMean", "p axes", "v"), op("Add", "v eps", "w"), op("Sqrt", "w", "s"),
        op("Reciprocal", "s", "r"), op("Mul", "x r", "n"), op("Mul", "g n", "y"),
    ]  # fmt: skip
    constants = {"eps": np.array(1e-6, np.float32), "g": x(8, seed=1), "axes": np.array([-1])}
    assert kinds(optimized(build(nodes, ROW, OUT, constants, 23, 11), {"x": x(3, 8)})) == ["RMSNormalization"]


def test_transposes_that_cancel_are_removed() -> None:
    nodes = [
        op("Transpose", "x", "a", perm=[1, 2, 0]), op("Transpose", "a", "b", perm=[2, 0, 1]), op("Relu", "b", "y")
    ]  # fmt: skip
    spec: list[Spec] = [("x", FLOAT, ["n", 2, 3])]
    assert kinds(optimized(build(nodes, spec, [("y", FLOAT, ["n", 2, 3])]), {"x": x(4, 2, 3)})) == ["Relu"]


def test_factors_of_operands_become_a_factor_of_the_product() -> None:
    nodes = [op("Mul", "a c", "a2"), op("Div", "b d", "b2"), op("MatMul", "a2 b2", "p"), op("Relu", "p", "y")]
    constants = {"c": np.float32(0.5), "d": np.array([4], np.float32)}
    proto = build(nodes, [("a", FLOAT, [2, 3]), ("b", FLOAT, [3, 4])], [("y", FLOAT, [2, 4])], constants)
    model = optimized(proto, {"a": x(2, 3), "b": x(3, 4, seed=1)})
    assert kinds(model) == ["MatMul", "Mul", "Relu"]


def test_a_scaled_operand_that_something_else_reads_stays() -> None:
    nodes = [op("Mul", "a c", "a2"), op("MatMul", "a2 b", "p"), op("Relu", "p", "y"), op("Relu", "a2", "z")]
    ends = [("y", FLOAT, [2, 4]), ("z", FLOAT, [2, 3])]
    proto = build(nodes, [("a", FLOAT, [2, 3]), ("b", FLOAT, [3, 4])], ends, {"c": np.float32(0.5)})
    assert kinds(optimized(proto, {"a": x(2, 3), "b": x(3, 4, seed=1)})) == ["Mul", "MatMul", "Relu", "Relu"]


def test_transposes_without_a_stated_order_reverse_the_axes_and_cancel() -> None:
    nodes = [op("Transpose", "x", "a"), op("Transpose", "a", "b"), op("Relu", "b", "y")]
    spec: list[Spec] = [("x", FLOAT, ["n", 2, 3])]
    assert kinds(optimized(build(nodes, spec, [("y", FLOAT, ["n", 2, 3])]), {"x": x(4, 2, 3)})) == ["Relu"]


def test_equal_nodes_are_merged_but_random_ones_are_not() -> None:
    nodes = [op("Add", "x c1", "a"), op("Add", "x c2", "b"), op("Mul", "a b", "y")]
    constants = {"c1": np.ones(8, np.float32), "c2": np.ones(8, np.float32)}
    assert kinds(optimized(build(nodes, ROW, OUT, constants), {"x": x(2, 8)})) == ["Add", "Mul"]
    random = [op("RandomNormalLike", "x", "a"), op("RandomNormalLike", "x", "b"), op("Sub", "a b", "y")]
    model = load_model(build(random, ROW, OUT))
    run_passes(model)
    assert kinds(model).count("RandomNormalLike") == 2


def branches() -> onnx.ModelProto:
    def body(name: str, kind: str) -> onnx.GraphProto:
        nodes = [op("Identity", "r", f"{name}i"), op(kind, f"{name}i c", f"{name}o")]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}o", FLOAT, None)])

    nodes = [
        op("Relu", "x", "r"), op("Mul", "one one", "c"), op("Identity", "r", "unused"),
        op("If", "p", "y", then_branch=body("t", "Add"), else_branch=body("e", "Sub")),
        op("If", "p", "dead", then_branch=body("t2", "Add"), else_branch=body("e2", "Sub")),
    ]  # fmt: skip
    return build(nodes, [*ROW, ("p", BOOL, [])], OUT, {"one": np.ones(8, np.float32)})


def test_captures_of_bodies_are_respected() -> None:
    feeds = [{"x": x(2, 8), "p": np.array(flag)} for flag in (True, False)]
    model = optimized(branches(), *feeds)
    assert kinds(model) == ["Relu", "If"]
    body = model.graph[1].attributes["then_branch"].as_graph()
    assert [node.op_type for node in body] == ["Add"]


def test_functions_are_inlined_unless_their_opsets_differ() -> None:
    def function(opset: int) -> onnx.FunctionProto:
        return helper.make_function(
            "f", "Twice", ["a"], ["b"], [op("Add", "a a", "b")], [helper.make_opsetid("", opset)]
        )

    call = [op("Twice", "x", "m", domain="f"), op("Twice", "m", "y", domain="f")]
    assert kinds(optimized(build(call, ROW, OUT, functions=[function(18)]), {"x": x(2, 8)})) == ["Add", "Add"]
    assert kinds(optimized(build(call, ROW, OUT, functions=[function(17)]), {"x": x(2, 8)})) == ["Twice", "Twice"]


def test_bound_dims_reach_every_shape() -> None:
    model = load_model(reshape_to_heads())
    BindDims({"b": 1, "t": 5})(model)
    run_passes(model)
    assert model.graph.inputs[0].shape == ir.Shape([1, 5, 8])
    assert model.graph.outputs[0].shape == ir.Shape([1, 2, 5, 4])
    for dims in ({"nope": 1}, {"b": -1}):
        with pytest.raises(SmeltError) as caught:
            BindDims(dims)(load_model(reshape_to_heads()))
        assert caught.value.hint


def test_passes_are_chosen_by_name() -> None:
    model = load_model(reshape_to_heads())
    assert run_passes(model, only=["remove-unused"]) == []
    assert "simplify-shapes" in {name for name, _ in run_passes(model)}
    with pytest.raises(SmeltError):
        run_passes(model, skip=["no-such-pass"])
    assert next(iter(PASSES)) == "legacy-initializers"


def test_the_runtimes_optimizer_can_run_first(tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(gelu(0, 17).SerializeToString())
    ort_preoptimize(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert kinds(load_model(tmp_path / "out.onnx")) == ["Gelu"]


def test_computation_on_weights_alone_becomes_a_weight():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[n, 8] x) => (float[n, 6] y) {
            table = Constant<value = float[4, 8] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0,
                8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0,
                0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0}>()
            scale = Constant<value = float[8] {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}>()
            normal = LayerNormalization<axis = -1>(table, scale)
            turned = Transpose<perm = [1, 0]>(normal)
            scores = MatMul(x, turned)
            wide = Concat<axis = -1>(scores, scores)
            start = Constant<value = int64[1] {1}>()
            stop = Constant<value = int64[1] {7}>()
            last = Constant<value = int64[1] {1}>()
            y = Slice(wide, start, stop, last)
        }
    """)
    prepared = ir.from_proto(model)
    run_passes(prepared)
    assert [n.op_type for n in prepared.graph] == ["MatMul", "Concat", "Slice"]
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    before, after = (
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for m in (model, ir.to_proto(prepared))
    )
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
