"""Rules: selectors choose them, users add them, and what they did can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from pass_models import BOOL, FLOAT, INT64, build, kinds, op, optimized, x

from smelt.base.errors import ConfigError
from smelt.ir.load import load_model
from smelt.passes import TABLE, patterns, run_passes

INT = np.array([1, 2], np.int64)


def chosen(selector: object) -> list[str]:
    return [name for name, _ in TABLE.chosen(selector)]  # pyright: ignore[reportArgumentType]


@pytest.fixture
def forgetting() -> Iterator[None]:
    before = set(TABLE.own)
    yield
    for name in set(TABLE.own) - before:
        patterns.forget(name)


def test_a_selector_adds_and_takes_away_sets_and_names_with_hyphens():
    assert chosen(None) == chosen("default") == list(patterns.sets()["default"])
    assert set(chosen("default")) - set(chosen("default-recompose-gelu-merge-casts")) == {
        "recompose-gelu", "merge-casts",
    }  # fmt: skip
    assert chosen("none") == chosen("") == []
    assert chosen("remove-unused+fold-constants") == ["fold-constants", "remove-unused"]
    assert chosen(["none", "merge-casts, remove-unused"]) == ["merge-casts", "remove-unused"]


def test_an_unknown_name_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError, match="recompose-gelu") as caught:
        TABLE.chosen("default-recompose-gelo")
    assert caught.value.code == "SM-PASS-002"
    with pytest.raises(ConfigError, match="neither a name nor a rule"):
        TABLE.chosen([3])


def doubling() -> ir.Model:
    nodes = [op("Mul", "x two", "a"), op("Mul", "a two", "b"), op("Add", "a b", "y")]
    return load_model(
        build(nodes, [("x", FLOAT, [3])], [("y", FLOAT, [3])], {"two": np.array(2, np.float32)}).SerializeToString()
    )


def test_a_rule_of_the_users_runs_when_it_is_asked_for(forgetting: None):
    @patterns.rule("double-to-add", ops="Mul", sets=("mine",))
    def double(node: ir.Node, rewrite: patterns.Rewrite):
        "x * 2 -> x + x"
        if rewrite.number(node.inputs[1]) == 2:
            return rewrite.op("Add", node.inputs[0], node.inputs[0])
        return None

    plain, mine = doubling(), doubling()
    run_passes(plain)
    assert kinds(plain) == ["Mul", "Mul", "Add"]
    done = dict(run_passes(mine, patterns="default+mine"))
    assert kinds(mine) == ["Add", "Add", "Add"] and done["double-to-add"].changes["applied"] == 2
    assert done["double-to-add"].seconds > 0
    assert ("double-to-add", "mine", "x * 2 -> x + x") in patterns.describe()
    as_object = doubling()
    run_passes(as_object, patterns=["default", double])
    assert kinds(as_object) == ["Add", "Add", "Add"]


def test_what_a_rule_made_and_gave_up_is_gone(forgetting: None):
    @patterns.rule("undecided", ops="Mul")
    def undecided(node: ir.Node, rewrite: patterns.Rewrite):
        rewrite.op("Neg", node.inputs[0])

    model = doubling()
    assert run_passes(model, patterns="undecided") == [] and kinds(model) == ["Mul", "Mul", "Add"]


def test_a_rule_that_gives_another_type_is_an_error_that_names_it(forgetting: None):
    @patterns.rule("wrong-type", ops="Mul")
    def wrong(node: ir.Node, rewrite: patterns.Rewrite):
        return rewrite.op("Cast", node.inputs[0], like=ir.Value(type=ir.TensorType(ir.DataType.INT64)), to=7)

    with pytest.raises(ConfigError, match="wrong-type") as caught:
        run_passes(doubling(), patterns="infer-shapes+wrong-type")
    assert caught.value.code == "SM-PASS-003"


@pytest.mark.parametrize("name", ["default", "fold-constants", "Not This", "none"])
def test_a_name_that_is_taken_or_unreadable_is_refused(name: str):
    with pytest.raises(ConfigError):
        patterns.rule(name)(lambda node, rewrite: None)


def test_rules_of_onnxscript_are_taken_as_they_are(forgetting: None):
    rewriter = pytest.importorskip("onnxscript.rewriter")

    def pattern(op, x, two):
        return op.Mul(x, two)

    def twice(op, x, two):
        return op.Add(x, x)

    rule = rewriter.pattern.RewriteRule(pattern, twice)
    model = doubling()
    done = dict(run_passes(model, patterns=["default", rule]))
    assert kinds(model) == ["Add", "Add", "Add"] and sum(o.changes.total() for o in done.values()) >= 2
    patterns.register(rule, "from-onnxscript")
    again = doubling()
    run_passes(again, patterns="default+from-onnxscript")
    assert kinds(again) == ["Add", "Add", "Add"]


def test_each_application_is_dumped_with_what_was_there_before(tmp_path: Path):
    nodes = [op("Unsqueeze", "x zero", "a"), op("Unsqueeze", "a zero", "y"), op("Cast", "x", "h", to=1),
             op("Neg", "h", "z")]  # fmt: skip
    proto = build(
        nodes, [("x", FLOAT, [3])], [("y", FLOAT, [1, 1, 3]), ("z", FLOAT, [3])], {"zero": np.array([0], np.int64)}
    )
    run_passes(load_model(proto.SerializeToString()), dump=tmp_path)
    texts = {path.name.partition("-")[2]: path.read_text() for path in tmp_path.iterdir()}
    before, after = texts["merge-unsqueezes.txt"].split("after")
    assert before.count("Unsqueeze(") == 2 and after.count("Unsqueeze(") == 1
    assert "Cast(" in texts["eliminate-identity.txt"] and "infer-shapes.txt" not in texts


# the rules that come with smelt


def test_neutral_elements_go_where_no_bit_changes():
    nodes = [
        op("Mul", "x one", "a"), op("Sub", "a zero", "b"), op("Div", "b one", "c"), op("Add", "c zero", "y"),
        op("Add", "i izero", "j"), op("And", "m yes", "n"), op("Where", "n j izero", "z"),
    ]  # fmt: skip
    constants = {
        "one": np.ones(1, np.float32), "zero": np.zeros((), np.float32), "izero": np.zeros((), np.int64),
        "yes": np.ones((1, 1), bool),
    }  # fmt: skip
    proto = build(
        nodes, [("x", FLOAT, ["n"]), ("i", INT64, [2]), ("m", BOOL, [2])], [("y", FLOAT, ["n"]), ("z", INT64, [1, 2])],
        constants,
    )  # fmt: skip
    feeds = {"x": np.array([-0.0, np.nan, 3], np.float32), "i": INT, "m": np.array([True, False])}
    # -0.0 + 0.0 is 0.0, and the constant of two axes gives `m` an axis: both stay.
    assert kinds(optimized(proto, feeds)) == ["Add", "And", "Where"]


def test_a_constant_that_broadcasts_is_not_neutral():
    proto = build(
        [op("Mul", "x ones", "y")], [("x", FLOAT, [1])], [("y", FLOAT, [3])], {"ones": np.ones(3, np.float32)}
    )
    assert kinds(optimized(proto, {"x": x(1)})) == ["Mul"]


def test_axes_are_merged_in_any_order():
    axes = {"zero": np.array([0], np.int64), "two": np.array([-1, 1], np.int64), "flat": np.array([-1], np.int64)}
    nodes = [op("Unsqueeze", "x zero", "a"), op("Unsqueeze", "a two", "y"), op("Squeeze", "a zero", "b"),
             op("Neg", "b", "z"), op("Reshape", "y flat", "w")]  # fmt: skip
    proto = build(
        nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [1, 1, 2, 3, 1]), ("z", FLOAT, [2, 3]), ("w", FLOAT, [6])], axes
    )
    assert sorted(kinds(optimized(proto, {"x": x(2, 3)}))) == ["Neg", "Reshape", "Unsqueeze"]


@pytest.mark.parametrize(
    ("middle", "last", "left"), [(1, 11, 1), (7, 1, 2), (11, 7, 2)], ids=["wider", "other", "to-integer"]
)
def test_casts_are_merged_when_nothing_is_lost_between(middle: int, last: int, left: int):
    source = 10 if middle != 7 else 11
    nodes = [op("Cast", "x", "h", to=source), op("Cast", "h", "a", to=middle), op("Cast", "a", "y", to=last)]
    proto = build(nodes, [("x", 6, [3])], [("y", last, [3])])
    model = optimized(proto, {"x": np.array([1, -2, 70], np.int32)})
    assert len(kinds(model)) == left + 1


def ranged_mask(rows: object) -> object:
    """`mask[arange(batch)[:, None, None, None], arange(keys)]`, as it comes out of PyTorch."""
    constants = {
        "zero": np.array(0, np.int64), "one": np.array(1, np.int64), "places": np.array([1, 2, 3], np.int64),
        "front": np.array([0, 1, 2], np.int64), "last": np.array([4], np.int64), "first": np.array([0], np.int64),
    }  # fmt: skip
    nodes = [
        op("Shape", "ids", "b", start=0, end=1), op("Squeeze", "b first", "bs"), op("Range", "zero bs one", "br"),
        op("Shape", "ids", "l", start=1, end=2), op("Squeeze", "l first", "ls"), op("Range", "zero ls one", "lr"),
        op("Unsqueeze", "br places", "bu"), op("Unsqueeze", "lr front", "lu"), op("Add", "bu lu", "sum"),
        op("Shape", "sum", "shape"), op("Expand", "bu shape", "be"), op("Expand", "lu shape", "le"),
        op("Unsqueeze", "be last", "bi"), op("Unsqueeze", "le last", "li"), op("Concat", "bi li", "where", axis=-1),
        op("GatherND", "mask where", "y"),
    ]  # fmt: skip
    return build(
        nodes, [("ids", INT64, ["n", "length"]), ("mask", FLOAT, [rows, "length"])],
        [("y", FLOAT, ["n", 1, 1, "length"])], constants,
    )  # fmt: skip


def test_an_index_of_ranges_over_axes_of_one_name_is_a_slice():
    """A name promises nothing: where the mask is longer, the part that the ranges reach is left."""
    feeds = {"ids": np.zeros((2, 5), np.int64), "mask": x(2, 5)}
    made = optimized(ranged_mask("n"), feeds)
    assert {"GatherND", "Range"} & set(kinds(made)) == set() and "Unsqueeze" in kinds(made)
    optimized(ranged_mask("n"), {"ids": np.zeros((2, 5), np.int64), "mask": x(4, 5)})


def test_an_index_of_ranges_over_part_of_an_axis_stays():
    feeds = {"ids": np.zeros((2, 5), np.int64), "mask": x(4, 5)}
    assert "GatherND" in kinds(optimized(ranged_mask("rows"), feeds))


def indexed(order: list[int], sizes: tuple[int, int] = (2, 5)) -> list[str]:
    """What remains of an index by constants that name the elements in the given order."""
    places = np.stack(np.unravel_index(order, sizes), axis=-1).reshape(sizes[0], 1, -1, 2)
    nodes = [op("Neg", "mask", "a"), op("GatherND", "a places", "b"), op("Neg", "b", "y")]
    proto = build(nodes, [("mask", FLOAT, list(sizes))], [("y", FLOAT, list(places.shape[:-1]))], {"places": places})
    return kinds(optimized(proto, {"mask": x(*sizes)}))


def test_an_index_by_constants_in_order_is_the_tensor_itself():
    assert "GatherND" not in indexed(list(range(10)))
    assert "GatherND" not in indexed(list(range(5)), (1, 5))


def test_an_index_by_constants_in_another_order_stays():
    assert "GatherND" in indexed([1, 0, *range(2, 10)])
    assert "GatherND" in indexed(list(range(8)))


def one_row(front: int) -> onnx.ModelProto:
    """`mask[0, range]` of a mask with one row; the first index has `front` elements."""
    constants = {
        "zero": np.array(0), "one": np.array(1), "second": np.array([1]), "first": np.array([0]),
        "nothing": np.zeros((front, 1), np.int64), "last": np.array([2]),
    }  # fmt: skip
    nodes = [
        op("Shape", "mask", "dims"), op("Gather", "dims one", "length"), op("Range", "zero length one", "range"),
        op("Unsqueeze", "range first", "row"), op("Add", "nothing row", "sum"), op("Shape", "sum", "shape"),
        op("Expand", "nothing shape", "ne"), op("Expand", "row shape", "re"), op("Unsqueeze", "ne last", "ni"),
        op("Unsqueeze", "re last", "ri"), op("Concat", "ni ri", "where", axis=-1), op("GatherND", "mask where", "y"),
    ]  # fmt: skip
    return build(nodes, [("mask", FLOAT, [1, "length"])], [("y", FLOAT, [front, "length"])], constants)


def test_the_index_of_an_axis_of_size_one_needs_no_range():
    assert "GatherND" not in kinds(optimized(one_row(1), {"mask": x(1, 5)}))


def test_an_axis_of_size_one_that_is_repeated_stays():
    assert "GatherND" in kinds(optimized(one_row(3), {"mask": x(1, 5)}))


# rules for ONNX Runtime's own nodes


@pytest.mark.parametrize(
    ("first", "wanted"),
    [([0, 0, 2, 4], ["Neg", "Reshape", "Neg"]), ([-1, 3, 2, 4], ["Neg", "Reshape", "Reshape", "Neg"])],
)
def test_a_reshape_that_copies_a_size_joins_one_that_keeps_it(first: list[int], wanted: list[str]):
    nodes = [op("Neg", "x", "a"), op("Reshape", "a first", "b"), op("Reshape", "b second", "c"), op("Neg", "c", "y")]
    constants = {"first": np.array(first), "second": np.array([0, -1, 4])}
    proto = build(nodes, [("x", FLOAT, ["n", "m", 8])], [("y", FLOAT, ["n", None, 4])], constants)
    assert kinds(optimized(proto, {"x": x(5, 3, 8)})) == wanted


def attention(opset: int, mask: str, shared: int) -> onnx.ModelProto:
    """Queries of 4 heads, keys and values of 4 or `shared`, a mask of floats or bools."""
    constants: dict[str, np.ndarray] = {"scale": np.float32(0.3), "no": np.float32("-inf")}
    constants |= {"two": np.array([2]), "grown": np.array([2, shared, 4 // shared, 6, 8])}
    constants["heads"] = np.array([2, 4, 6, 8])
    nodes = []
    for name in "kv":
        if shared < 4:
            nodes += [op("Unsqueeze", f"{name} two", f"{name}u"), op("Expand", f"{name}u grown", f"{name}e"),
                      op("Reshape", f"{name}e heads", f"{name}h")]  # fmt: skip
        else:
            nodes.append(op("Neg", name, f"{name}h"))
    nodes += [op("Transpose", "kh", "kt", perm=[0, 1, 3, 2]), op("MatMul", "q kt", "s"), op("Mul", "s scale", "t")]
    masked = {"float": op("Add", "t m", "u"), "bool": op("Where", "m t no", "u"), "": op("Identity", "t", "u")}
    nodes += [masked[mask], op("Softmax", "u", "p", axis=-1), op("MatMul", "p vh", "y")]
    inputs = [("q", FLOAT, [2, 4, 5, 8]), *((n, FLOAT, [2, shared, 6, 8]) for n in "kv")]
    given = {"float": [("m", FLOAT, [2, 1, 5, 6])], "bool": [("m", BOOL, [2, 1, 5, 6])], "": []}[mask]
    return build(nodes, [*inputs, *given], [("y", FLOAT, [2, 4, 5, 8])], constants, opset=opset, ir_version=10)


@pytest.mark.parametrize(("mask", "shared"), [("float", 4), ("bool", 2), ("", 1)])
def test_attention_is_one_node_and_shared_heads_are_not_repeated(mask: str, shared: int):
    feeds: dict[str, np.ndarray] = {
        "q": x(2, 4, 5, 8),
        "k": x(2, shared, 6, 8, seed=1),
        "v": x(2, shared, 6, 8, seed=2),
    }
    if mask:
        drawn = x(2, 1, 5, 6, seed=3)
        feeds["m"] = drawn if mask == "float" else (drawn > -1.5) | (np.arange(6) == 0)
    model = optimized(attention(23, mask, shared), feeds, patterns="default+ort")
    assert kinds(model) == (["Attention"] if shared < 4 else ["Neg", "Neg", "Attention"])
    older = kinds(optimized(attention(20, mask, shared), feeds, patterns="default+ort"))
    assert "MultiHeadAttention" in older and "Softmax" not in older and older.count("Where") == (mask == "bool")


def test_a_mask_that_is_repeated_over_queries_keeps_attention_in_parts_before_opset_23():
    nodes = [op("Transpose", "k", "kt", perm=[0, 1, 3, 2]), op("MatMul", "q kt", "s"), op("Add", "s m", "u"),
             op("Softmax", "u", "p", axis=-1), op("MatMul", "p v", "y")]  # fmt: skip
    sizes = {"q": [2, 4, 5, 8], "k": [2, 4, 6, 8], "v": [2, 4, 6, 8], "m": [2, 1, 1, 6]}
    feeds = {name: x(*shape, seed=at) for at, (name, shape) in enumerate(sizes.items())}
    proto = build(nodes, [(n, FLOAT, s) for n, s in sizes.items()], [("y", FLOAT, sizes["q"])], opset=20)
    assert "MultiHeadAttention" not in kinds(optimized(proto, feeds, patterns="default+ort"))


def test_attention_between_splits_of_heads_needs_no_transposes_before_opset_23():
    shapes = {"split": np.array([2, -1, 4, 8]), "merged": np.array([2, -1, 32])}
    nodes = [op("Reshape", f"{n} split", f"{n}s") for n in "qkv"]
    nodes += [op("Transpose", f"{n}s", f"{n}h", perm=[0, 2, 1, 3]) for n in "qv"]
    nodes += [
        op("Transpose", "ks", "kt", perm=[0, 2, 3, 1]), op("MatMul", "qh kt", "s"), op("Softmax", "s", "p", axis=-1),
        op("MatMul", "p vh", "o"), op("Transpose", "o", "t", perm=[0, 2, 1, 3]), op("Reshape", "t merged", "y"),
    ]  # fmt: skip
    proto = build(nodes, [(n, FLOAT, [2, "m", 32]) for n in "qkv"], [("y", FLOAT, [2, "m", 32])], shapes, opset=20)
    feeds = {n: x(2, 5, 32, seed=at) for at, n in enumerate("qkv")}
    found = kinds(optimized(proto, feeds, patterns="default+ort"))
    assert (
        "MultiHeadAttention" in found and found.count("Transpose") == 2
    )  # keys and values: four axes of the node's own


@pytest.mark.parametrize(("opset", "wanted"), [(20, "SimplifiedLayerNormalization"), (23, "RMSNormalization")])
def test_an_rms_norm_is_one_node(opset: int, wanted: str):
    nodes = [op("Mul", "x x", "xx"), op("ReduceMean", "xx last", "m"), op("Add", "m eps", "e"), op("Sqrt", "e", "r"),
             op("Div", "x r", "n"), op("Mul", "g n", "y")]  # fmt: skip
    constants = {"last": np.array([-1]), "eps": np.float32(1e-6), "g": x(8)}
    proto = build(
        nodes, [("x", FLOAT, [2, "m", 8])], [("y", FLOAT, [2, "m", 8])], constants, opset=opset, ir_version=10
    )
    assert kinds(optimized(proto, {"x": x(2, 5, 8)}, patterns="default+ort")) == [wanted]


def test_a_rotary_embedding_is_one_node():
    nodes = [
        op("Concat", "a a", "aa", axis=-1), op("Cos", "aa", "c"), op("Sin", "aa", "s"), op("Unsqueeze", "c one", "cu"),
        op("Unsqueeze", "s one", "su"), op("Slice", "x zero half last one", "lower"),
        op("Slice", "x half end last one", "upper"), op("Neg", "upper", "n"), op("Concat", "n lower", "r", axis=-1),
        op("Mul", "x cu", "f"), op("Mul", "r su", "g"), op("Add", "f g", "y"),
    ]  # fmt: skip
    constants = {"zero": np.array([0]), "one": np.array([1]), "half": np.array([4]), "last": np.array([3]),
                 "end": np.array([1 << 62])}  # fmt: skip
    inputs = [("x", FLOAT, ["n", 2, "m", 8]), ("a", FLOAT, [1, "m", 4])]
    proto = build(nodes, inputs, [("y", FLOAT, ["n", 2, "m", 8])], constants, opset=23, ir_version=10)
    model = optimized(proto, {"x": x(3, 2, 5, 8), "a": x(1, 5, 4)}, patterns="default+ort")
    assert "RotaryEmbedding" in kinds(model) and "Neg" not in kinds(model)


def test_nodes_of_onnx_runtime_replace_chains_of_standard_ones():
    nodes = [
        op("Add", "x r", "s"), op("LayerNormalization", "s g b", "n", axis=-1), op("Add", "n b", "o"),
        op("Gelu", "o", "a"), op("Sigmoid", "a", "t"), op("Mul", "a t", "u"), op("Transpose", "w", "v", perm=[0, 2, 1]),
        op("MatMul", "u v", "p"), op("Mul", "p c", "y"),
    ]  # fmt: skip
    constants = {"g": x(8), "b": x(8, seed=1), "c": np.float32(0.25)}
    inputs = [("x", FLOAT, [2, "m", 8]), ("r", FLOAT, [2, "m", 8]), ("w", FLOAT, [2, 4, 8])]
    proto = build(nodes, inputs, [("y", FLOAT, [2, "m", 4])], constants, opset=20)
    feeds = {"x": x(2, 5, 8), "r": x(2, 5, 8, seed=2), "w": x(2, 4, 8, seed=3)}
    assert kinds(optimized(proto, feeds, patterns="default+ort")) == [
        "SkipLayerNormalization", "BiasGelu", "QuickGelu", "FusedMatMul",
    ]  # fmt: skip
    assert "LayerNormalization" in kinds(optimized(proto, feeds))


@pytest.mark.parametrize("said", [{"perm": [1, 0]}, {}])
def test_a_gradient_of_a_weight_is_one_gemm(said: dict[str, list[int]]):
    nodes = [op("Transpose", "x", "t", **said), op("MatMul", "t g", "y")]
    proto = build(nodes, [("x", FLOAT, ["n", 3]), ("g", FLOAT, ["n", 4])], [("y", FLOAT, [3, 4])])
    feeds = {"x": x(5, 3), "g": x(5, 4)}
    assert kinds(optimized(proto, feeds, patterns="training")) == ["Gemm"]
    assert kinds(optimized(proto, feeds)) == ["Transpose", "MatMul"]
