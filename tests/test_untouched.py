"""What stock ONNX Runtime loads compiles, in part or to stock's own model, and runs as stock does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper

from smelt.base.config import Config
from smelt.base.errors import ConfigError, CoverageError, ModelError, NoCompilerError, StrictError
from smelt.pipeline import Options, compile_to
from smelt.runtime import Executable

OPTIONS = Options(levels=("v2",), verify=False, force=True)
ROWS = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
info = helper.make_tensor_value_info


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return Config.from_env({"SMELT_STRICT": "1"}).with_(cache_dir=folder, log="quiet")


def model_of(nodes: Any, inputs: Any, outputs: Any, opsets: Any = (("", 17),), **more: Any) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=9, **more)


def classifier() -> onnx.ModelProto:
    """As skl2onnx writes a pipeline of a scaler and a perceptron: labels, and a list of dictionaries."""
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        helper.make_node("Scaler", ["x"], ["a"], offset=[0.1] * 4, scale=[2.0] * 4, **ml),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Softmax", ["b"], ["p"]),
        helper.make_node("ArgMax", ["p"], ["i"], axis=1, keepdims=0),
        helper.make_node("ZipMap", ["p"], ["probabilities"], classlabels_int64s=[0, 1, 2, 3], **ml),
    ]
    maps = helper.make_map_type_proto(T.INT64, helper.make_tensor_type_proto(T.FLOAT, None))
    listed = helper.make_value_info("probabilities", helper.make_sequence_type_proto(maps))
    inputs, outputs = [info("x", T.FLOAT, [None, 4])], [info("i", T.INT64, [None]), listed]
    return model_of(nodes, inputs, outputs, (("", 17), ("ai.onnx.ml", 1)))


def dictionaries() -> onnx.ModelProto:
    """As skl2onnx writes a DictVectorizer: the input is a map."""
    nodes = [
        helper.make_node("DictVectorizer", ["x"], ["a"], domain="ai.onnx.ml", string_vocabulary=["a", "b"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    kind = helper.make_map_type_proto(T.STRING, helper.make_tensor_type_proto(T.FLOAT, None))
    inputs, outputs = [helper.make_value_info("x", kind)], [info("y", T.FLOAT, [1, 2])]
    return model_of(nodes, inputs, outputs, (("", 17), ("ai.onnx.ml", 1)))


def sparse() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "c"], ["y"])]
    model = model_of(nodes, [info("x", T.FLOAT, ["n", 4])], [info("y", T.FLOAT, ["n", 3])])
    values, places = helper.make_tensor("w", T.FLOAT, [2], [1.5, -2.0]), helper.make_tensor("wi", T.INT64, [2], [1, 7])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 3]))
    cells = helper.make_tensor("ci", T.INT64, [1, 1], [2])
    constant = helper.make_sparse_tensor(helper.make_tensor("cv", T.FLOAT, [1], [4.0]), cells, [3])
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], sparse_value=constant))
    return model


def function_of_another_opset() -> onnx.ModelProto:
    body = [helper.make_node("Neg", ["a"], ["c"]), helper.make_node("Softmax", ["c"], ["b"])]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 13)])
    nodes = [helper.make_node("F", ["x"], ["t"], domain="own"), helper.make_node("Tanh", ["t"], ["y"])]
    borders = [info("x", T.FLOAT, ["n", 4])], [info("y", T.FLOAT, ["n", 4])]
    return model_of(nodes, *borders, (("", 17), ("own", 1)), functions=[function])


def function_of_a_domain_of_its_own() -> onnx.ModelProto:
    body = [helper.make_node("Gelu", ["a"], ["c"], domain="com.microsoft"), helper.make_node("Exp", ["c"], ["b"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    function = helper.make_function("own", "F", ["a"], ["b"], body, opsets)
    nodes = [helper.make_node("F", ["x"], ["t"], domain="own"), helper.make_node("Tanh", ["t"], ["y"])]
    borders = [info("x", T.FLOAT, ["n", 4])], [info("y", T.FLOAT, ["n", 4])]
    return model_of(nodes, *borders, (("", 17), ("own", 1)), functions=[function])


def sequences() -> onnx.ModelProto:
    listed = helper.make_tensor_sequence_value_info
    nodes = [
        helper.make_node("ConcatFromSequence", ["s"], ["c"], axis=0),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("Exp", ["t"], ["u"]),
        helper.make_node("SplitToSequence", ["u"], ["r"], axis=1),
    ]
    return model_of(nodes, [listed("s", T.FLOAT, None)], [listed("r", T.FLOAT, None)])


def optional() -> onnx.ModelProto:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(T.FLOAT, ["a", "b"]))
    nodes = [
        helper.make_node("OptionalGetElement", ["x"], ["c"]),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("Exp", ["t"], ["y"]),
    ]
    return model_of(nodes, [helper.make_value_info("x", kind)], [info("y", T.FLOAT, None)], (("", 18),))


def strings() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Identity", ["s"], ["q"]),
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Exp", ["t"], ["y"]),
    ]
    inputs = [info("s", T.STRING, ["n", 1]), info("x", T.FLOAT, ["n", 4])]
    return model_of(nodes, inputs, [info("q", T.STRING, ["n", 1]), info("y", T.FLOAT, ["n", 4])])


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, Any], int]] = {
    "maps out": (classifier, {"x": ROWS}, 0),
    "a map in": (dictionaries, {"x": {"a": 1.0, "b": 0.5}}, 0),
    "sparse": (sparse, {"x": ROWS}, 2),
    "function, opset": (function_of_another_opset, {"x": ROWS}, 1),
    "function, domain": (function_of_a_domain_of_its_own, {"x": ROWS}, 3),
    "sequences": (sequences, {"s": [ROWS, ROWS[:1]]}, 0),
    "optional": (optional, {"x": ROWS}, 2),
    "strings": (strings, {"s": np.array([["a"]] * 5, object), "x": ROWS}, 2),
}


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        same(list(one.values()), list(other.values()))
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif np.asarray(one).dtype.kind == "f":
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_it_runs_as_stock_does(tmp_path: Path, config: Config, name: str) -> None:
    make, feeds, kernels = CASES[name]
    model = make()
    onnx.save(model, tmp_path / "m.onnx")
    before = model.SerializeToString(deterministic=True)
    result = compile_to(model, tmp_path / "out", OPTIONS, config)
    assert model.SerializeToString(deterministic=True) == before
    stock = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    made = Executable.open(result.artifact)
    same(made.run(feeds), stock.run(None, feeds))
    assert [(v.name, v.type) for v in made.outputs] == [(v.name, v.type) for v in stock.get_outputs()]
    assert sum(len(region.nodes) for region in result.plan.regions) >= kernels


def test_what_no_model_holds_goes_through_as_it_is(tmp_path: Path, config: Config, monkeypatch) -> None:
    from smelt.ir import _sparse

    monkeypatch.setattr(_sparse, "MAX_DENSE_BYTES", 8)
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = sparse()
    model.graph.node.append(helper.make_node("MatMul", ["y", "v"], ["z"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "v"))
    model.graph.output[0].CopyFrom(info("z", T.FLOAT, ["n", 4]))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    result = compile_to(tmp_path / "m.onnx", tmp_path / "out", Options(), config)
    assert not result.plan.regions and len(result.plan.fallbacks) == 4
    assert "sparse" in result.plan.fallbacks[0].reason and "ONNX Runtime runs this model as it is" in result.notes[0]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["library"] is None and [v["name"] for v in manifest["outputs"]] == ["z"]
    stock = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    same(Executable.open(result.artifact).run({"x": ROWS}), stock.run(None, {"x": ROWS}))


def test_what_stock_refuses_too_is_an_error(tmp_path: Path, config: Config) -> None:
    model = model_of(
        [helper.make_node("Tanh", ["x", "x"], ["y"])], [info("x", T.FLOAT, [4])], [info("y", T.FLOAT, [4])]
    )
    with pytest.raises(ModelError):
        compile_to(model, tmp_path / "out", Options(), config)
    assert not (tmp_path / "out").exists()


# what a user demands


def covered() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("StringNormalizer", ["s"], ["q"]),
    ]
    inputs = [info("x", T.FLOAT, ["n", 4]), info("s", T.STRING, [1])]
    return model_of(nodes, inputs, [info("b", T.FLOAT, ["n", 4]), info("q", T.STRING, [1])])


def test_coverage_below_what_is_asked_for_is_an_error(tmp_path: Path, config: Config) -> None:
    with pytest.raises(CoverageError, match="2 of 3 nodes"):
        compile_to(covered(), tmp_path / "out", Options(levels=("v2",), verify=False, min_coverage=0.9), config)
    assert not (tmp_path / "out").exists()
    with pytest.raises(CoverageError):
        options = Options(levels=("v2",), verify=False, min_coverage=0.9, keep=True)
        compile_to(covered(), tmp_path / "out", options, config)
    assert (tmp_path / "out" / "manifest.json").exists()
    compile_to(covered(), tmp_path / "two", Options(levels=("v2",), verify=False, min_coverage=0.6), config)
    with pytest.raises(ConfigError):
        compile_to(covered(), tmp_path / "three", Options(min_coverage=90), config)


def test_strict_makes_an_error_of_a_fault(tmp_path: Path, config: Config, monkeypatch) -> None:
    import smelt.pipeline

    def boom(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(smelt.pipeline, "capture", boom)
    with pytest.raises(StrictError, match="fault in capture: RuntimeError: planted"):
        compile_to(covered(), tmp_path / "out", Options(strict=True), config.with_(strict=False))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="no verification"):
        compile_to(covered(), tmp_path / "out", Options(strict=True, verify=False), config)


def test_a_target_without_a_compiler_is_an_error(tmp_path: Path, config: Config, monkeypatch) -> None:
    """Stock's own model for this machine was not asked for."""
    import smelt.pipeline
    from smelt.base.target import host_arch

    other = "aarch64" if host_arch() == "x86-64" else "x86-64"

    def none(*_: object) -> None:
        raise NoCompilerError("SM-TOOL-003", f"no compiler here makes code for {other}")

    monkeypatch.setattr(smelt.kernels, "find_compiler", none)
    with pytest.raises(NoCompilerError, match=f"makes code for {other}"):
        compile_to(covered(), tmp_path / "out", Options(arch=other), config)
    assert not (tmp_path / "out").exists()
