"""What verification covers: other sizes than the first, inputs of the user's own, regions with inputs of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.base.errors import InputError
from smelt.check.inputs import make_feeds
from smelt.pipeline import Options, Result, compile_to
from smelt.runtime import Executable

ONE_LEVEL = {"force": True, "levels": ("v2",)}


def model_of(nodes, inputs, outputs, initializers=(), opsets=(("", 17),)) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def tensor(name: str, dims, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def compiled(model: onnx.ModelProto, folder: Path, config: Config, **options) -> Result:
    return compile_to(model, folder / "out", Options(**{**ONE_LEVEL, **options}), config)


def test_a_kernel_that_is_wrong_at_one_row_alone_falls_back(two_regions, tmp_path: Path, config: Config, spoil):
    """It is right at the sizes of the first call, and answers an error when the first input has one row."""
    spoil(0, "if (env->in_dims[0][0] == 1) return smelt_fail(env, SMELT_E_VALUE, -1, 7, 0, 0);")
    result = compiled(two_regions, tmp_path, config, exclude=("MatMul",))
    (reason,) = dict(result.findings.rejected).values()
    assert "rows = 1" in reason


def test_the_manifest_tells_what_was_compared(two_regions, tmp_path: Path, config: Config):
    result = compiled(two_regions, tmp_path, config, exclude=("MatMul",))
    verified = result.artifact.manifest["verified"]
    compared = verified["compared"]
    assert (
        compared["made"]["x"][1] == [2, 8]
        and {"rows": 1} in compared["bindings"]
        and {"rows": 0} in compared["bindings"]
    )
    assert verified["model"]["reference"] == "stock" and set(verified["by_region"]) >= {"0"}


def test_shapes_and_inputs_of_the_user_are_verified_on(two_regions, tmp_path: Path, config: Config):
    result = compiled(two_regions, tmp_path, config, exclude=("MatMul",), shapes={"x": (5, 8)})
    assert result.artifact.manifest["verified"]["compared"]["made"]["x"][1] == [5, 8]
    calls = [{"x": np.ones((3, 8), np.float32)}, {"x": np.zeros((4, 8), np.float32)}]
    result = compiled(two_regions, tmp_path, config, exclude=("MatMul",), inputs=calls)
    assert result.artifact.manifest["verified"]["compared"]["given"] == {"x": [3, 8]}
    with pytest.raises(InputError, match=r"x: float\[rows,8\]"):
        compiled(two_regions, tmp_path, config, inputs={"x": np.ones((3, 9), np.float32)})


def test_regions_are_verified_alone_where_the_model_takes_no_generated_inputs(tmp_path: Path, config: Config):
    """The reshape wants 770 elements in all, which nothing tells before it runs."""
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [7, 110])
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Reshape", ["b", "s"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    model = model_of(nodes, [tensor("x", ["n"])], [tensor("y", None)], [shape])
    result = compiled(model, tmp_path, config, exclude=("Reshape", "Softmax"))
    assert [v.error is not None for v in result.findings.verdicts if v.region is not None] == [True]
    assert len(result.plan.regions) == 1 and any("inputs of their own" in note for note in result.notes)
    x = np.linspace(-1, 1, 770, dtype=np.float32)
    c = (np.tanh(x) * x).reshape(7, 110)
    expected = np.exp(c) / np.exp(c).sum(1, keepdims=True)
    assert np.allclose(Executable.open(result.artifact).run({"x": x})[0], expected, rtol=1e-4)


def test_sizes_that_follow_from_one_input_stay_equal_in_a_region_alone(tmp_path: Path, config: Config):
    """Both rows are those of x, so that no call of the model gives them sizes of their own."""
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [7, 110])
    nodes = [
        helper.make_node("Sin", ["x"], ["p"]),
        helper.make_node("Cos", ["x"], ["q"]),
        helper.make_node("Tanh", ["p"], ["a"]),
        helper.make_node("Exp", ["q"], ["b"]),
        helper.make_node("Sub", ["b", "q"], ["d"]),
        helper.make_node("Mul", ["a", "p"], ["c"]),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=0),
        helper.make_node("Sin", ["e"], ["f"]),
        helper.make_node("Reshape", ["f", "s"], ["y"]),
    ]
    model = model_of(nodes, [tensor("x", ["n"])], [tensor("y", None)], [shape])
    result = compiled(model, tmp_path, config, exclude=("Reshape", "Sin", "Cos"))
    assert any("inputs of their own" in note for note in result.notes)
    assert result.plan.regions and not result.findings.rejected


def test_integers_that_follow_from_sizes_do_so_in_a_region_alone(tmp_path: Path, config: Config):
    """The region knows what the shape holds that it is fed, and does not read it: made-up numbers contradicted it."""
    made = helper.make_tensor("s", TensorProto.INT64, [2], [7, 110])
    two = helper.make_tensor("two", TensorProto.INT64, [2], [2, 2])
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Shape", ["a"], ["sizes"]),
        helper.make_node("Mul", ["sizes", "two"], ["twice"]),
        helper.make_node("Add", ["twice", "two"], ["more"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("Reshape", ["c", "s"], ["y"]),
    ]
    outputs = [tensor("y", None), helper.make_tensor_value_info("more", TensorProto.INT64, None)]
    model = model_of(nodes, [tensor("x", ["n", "m"])], outputs, [made, two])
    result = compiled(model, tmp_path, config, exclude=("Shape", "Reshape"), force=True)
    assert any("inputs of their own" in note for note in result.notes)
    assert len(result.plan.fallbacks) == 2 and not result.findings.rejected and not result.faults
    x = np.linspace(-1, 1, 770, dtype=np.float32).reshape(70, 11)
    y, more = Executable.open(result.artifact).run({"x": x})
    np.testing.assert_allclose(y, np.sin(np.tanh(x) * x).reshape(7, 110), rtol=1e-5, atol=1e-6)
    assert more.tolist() == [142, 24]


def test_a_wrong_declared_output_shape_costs_nothing(tmp_path: Path, config: Config):
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Mul", ["a", "x"], ["y"])]
    model = model_of(nodes, [tensor("x", ["n", 4])], [tensor("y", ["n", 9])])
    result = compiled(model, tmp_path, config)
    assert not result.findings.rejected
    x = np.ones((3, 4), np.float32)
    assert np.allclose(Executable.open(result.artifact).run({"x": x})[0], np.tanh(x) * x, rtol=1e-5)


def test_the_search_for_inputs_that_fit_a_declaration_stays_near_those_that_run(tmp_path: Path):
    """No call gives 54 rows: further ones of up to four times the elements are tried, and none of 16,000 rows."""
    from smelt.check.observe import Watched, observe
    from smelt.ir.load import load_model
    from smelt.ir.save import save_model

    model = load_model(
        model_of([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", ["n", "m"])], [tensor("y", None)])
    )
    save_model(model, tmp_path / "watched.onnx")
    job = {"attempt": 0, "feeds": None, "size": "small", "shapes": {}, "prepared": "watched.onnx"}
    tried: list[int] = []

    class Counted(Watched):
        def __call__(self, feeds, offer=None):
            tried.append(sum(array.size for array in feeds.values()))
            return super().__call__(feeds, offer)

    seen = observe(job, Counted(tmp_path, 1, {"y": [54, None]}), lambda **event: None)
    assert seen is not None and seen.feeds["x"].shape == (2, 17)
    assert len(tried) > 3 and max(tried) <= 4 * tried[0]


def test_values_of_ops_whose_types_nobody_infers_are_watched_all_the_same(tmp_path: Path, config: Config):
    rng = np.random.default_rng(0)
    packed = helper.make_tensor(
        "w", TensorProto.UINT8, [16, 1, 16], rng.integers(0, 256, 256, np.uint8).tobytes(), raw=True
    )
    scales = helper.make_tensor("s", TensorProto.FLOAT, [16], rng.uniform(0.01, 0.1, 16))
    nodes = [
        helper.make_node(
            "MatMulNBits", ["x", "w", "s"], ["m"], domain="com.microsoft", K=32, N=16, bits=4, block_size=32
        ),
        helper.make_node("Tanh", ["m"], ["t"]),
        helper.make_node("Mul", ["t", "m"], ["y"]),
    ]
    opsets = (("", 17), ("com.microsoft", 1))
    model = model_of(nodes, [tensor("x", ["n", 32])], [onnx.ValueInfoProto(name="y")], [packed, scales], opsets)
    result = compiled(model, tmp_path, config)
    assert not any("'y'" in reason or "'m'" in reason for reason in result.findings.rejected.values())
    assert result.plan.regions


def test_a_sequence_among_the_outputs_is_compared_by_the_contract(tmp_path: Path, config: Config):
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("SequenceConstruct", ["b", "a"], ["q"]),
    ]
    sequence = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None)
    model = model_of(nodes, [tensor("x", ["n", 4])], [sequence])
    result = compiled(model, tmp_path, config)
    assert not result.findings.rejected and result.plan.regions


@pytest.mark.parametrize("declared", [True, False])
def test_a_cache_of_undeclared_depth_has_the_depth_of_the_queries(declared: bool) -> None:
    """As onnxruntime-genai's builder writes it; where the queries have no shape, their product has columns."""
    text = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[b,s,16] x, float[b,2,p,d] old_k, float[b,2,p,d] old_v, int32[b] last, int32[1] total)
          => (float[b,s,n] y, float[b,2,t,d] k, float[b,2,t,d] v)
          <uint8[128,1,8] w, float[128,1] scales> {
          q = com.microsoft.MatMulNBits<K=16, N=128, bits=4, block_size=16>(x, w, scales)
          y, k, v = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(
            q, , , old_k, old_v, last, total) }"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    if declared:
        model.graph[0].outputs[0].shape = ir.Shape(["b", "s", 128])
    for attempt in range(2):
        made = make_feeds(model, "small", attempt)
        assert made is not None and made["old_k"].shape[3] == 16 == made["old_v"].shape[3]
