"""`smelt.compile` and what it returns."""

from __future__ import annotations

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import smelt
from smelt.base.errors import ArtifactError, ConfigError, InputError, LoadError, ModelError

ONE_LEVEL = {"levels": "v2", "force": True, "verify": False}


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    det = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["y"], name="second"),
        helper.make_node("Dropout", ["y"], ["z"], name="third"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y, det])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_path_bytes_a_proto_and_an_ir_model_give_the_same_answer(
    proto: onnx.ModelProto, x: np.ndarray, tmp_path: Path
):
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    for source in (path, str(path), proto.SerializeToString(), proto, ir.from_proto(proto)):
        with smelt.compile(source, **ONE_LEVEL) as compiled:
            np.testing.assert_allclose(compiled.run({"x": x})[0], -np.exp(x), rtol=1e-6)


def test_feeds_may_be_a_list_in_the_models_order(proto: onnx.ModelProto, x: np.ndarray):
    with smelt.compile(proto, **ONE_LEVEL) as compiled:
        np.testing.assert_array_equal(compiled.run([x])[0], compiled.run({"x": x})[0])
        assert [i.name for i in compiled.inputs] == ["x"]
        assert [o.name for o in compiled.outputs] == ["y", "z"]


def test_coverage_counts_nodes_and_explain_says_why_some_are_left(proto: onnx.ModelProto):
    with smelt.compile(proto, exclude="first", **ONE_LEVEL) as compiled:
        coverage = compiled.coverage
        assert 0 < coverage.in_kernels < coverage.nodes
        assert coverage.ratio == coverage.in_kernels / coverage.nodes
        assert "excluded by the pattern 'first'" in compiled.explain()


def test_a_temporary_folder_goes_with_close(proto: onnx.ModelProto, x: np.ndarray):
    compiled = smelt.compile(proto, **ONE_LEVEL)
    folder = compiled.directory
    assert folder.is_dir()
    compiled.close()
    assert not folder.parent.exists()
    with pytest.raises(InputError, match="SM-INPUT-004"):
        compiled.run([x])


def test_a_temporary_folder_goes_with_the_last_reference(proto: onnx.ModelProto):
    compiled = smelt.compile(proto, **ONE_LEVEL)
    folder = compiled.directory
    del compiled
    gc.collect()
    assert not folder.parent.exists()


def test_a_failed_compilation_leaves_no_folder_behind(
    proto: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError):
        smelt.compile(proto, levels="v9")
    assert list(tmp_path.iterdir()) == []


def test_a_named_folder_stays_and_a_saved_copy_runs(proto: onnx.ModelProto, x: np.ndarray, tmp_path: Path):
    compiled = smelt.compile(proto, tmp_path / "out", **ONE_LEVEL)
    expected = compiled.run([x])
    copy = compiled.save(tmp_path / "deep" / "copy")
    compiled.close()
    assert (tmp_path / "out" / "manifest.json").is_file()
    from smelt.runtime import Executable

    for folder in (tmp_path / "out", copy):
        np.testing.assert_array_equal(Executable.open(folder).run([x])[0], expected[0])
        assert json.loads((folder / "manifest.json").read_text())


def test_a_folder_that_is_no_artifact_is_not_replaced(proto: onnx.ModelProto, tmp_path: Path):
    keep = tmp_path / "thesis.tex"
    keep.write_text("all of it")
    with pytest.raises(ArtifactError, match="SM-ARTIFACT-004"):
        smelt.compile(proto, tmp_path, **ONE_LEVEL)
    with smelt.compile(proto, **ONE_LEVEL) as compiled:
        with pytest.raises(ArtifactError, match="SM-ARTIFACT-004"):
            compiled.save(tmp_path)
        assert compiled.save(tmp_path / "a") == compiled.save(tmp_path / "a")
    assert keep.read_text() == "all of it"


def test_a_model_that_no_runtime_loads_does_not_replace_an_artifact(proto: onnx.ModelProto, tmp_path: Path):
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    with smelt.compile(proto, tmp_path / "out", **ONE_LEVEL) as compiled:
        expected = compiled.run([x])
        assert compiled.directory == compiled.executable.directory == tmp_path / "out"
    foreign = onnx.ModelProto()
    foreign.CopyFrom(proto)
    foreign.graph.node[0].domain = "nobody.knows"
    foreign.opset_import.append(onnx.helper.make_opsetid("nobody.knows", 1))
    with pytest.raises(ModelError, match="SM-MODEL-008"):
        smelt.compile(foreign, tmp_path / "out", **ONE_LEVEL)
    from smelt.runtime import Executable

    np.testing.assert_array_equal(Executable.open(tmp_path / "out").run([x])[0], expected[0])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_unknown_option_is_answered_with_the_one_meant(proto: onnx.ModelProto):
    with pytest.raises(ConfigError, match="meant to be 'force'"):
        smelt.compile(proto, forse=True)


def test_something_that_is_no_model_is_named(tmp_path: Path):
    with pytest.raises(LoadError, match="a dict is no ONNX model"):
        smelt.compile({})  # type: ignore[arg-type]


def test_threads_may_compile_at_the_same_time():
    def answer(size: int) -> bool:
        text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[{size},n] x)
            => (float[n,{size}] y, float[{size},n] z)
            {{ a = Softmax(x)  y = Transpose(a)  b = Exp(x)  z = Add(a, b) }}"""
        x = np.random.default_rng(size).standard_normal((size, 9)).astype(np.float32)
        with smelt.compile(onnx.parser.parse_model(text), **ONE_LEVEL) as compiled:
            y, z = compiled.run([x])
        soft = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        return bool(np.allclose(y, soft.T, rtol=1e-5) and np.allclose(z, soft + np.exp(x), rtol=1e-5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(answer, range(2, 10)))
