"""The folder that a deployment needs: complete or absent, safe to write, loadable by ONNX Runtime alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt.artifact
from smelt.base.config import Config
from smelt.base.errors import ArtifactError
from smelt.pipeline import Options, compile_to

OPTIONS = Options(force=True, levels=("v2",), verify=False)
# Nothing but onnxruntime and numpy: -I drops PYTHONPATH, and the package must not be found.
LOADER = """
import json, sys
sys.modules["smelt"] = sys.modules["torch"] = None  # whatever is installed here, neither can be imported
import numpy as np, onnxruntime as ort
folder = sys.argv[1]
manifest = json.load(open(folder + "/manifest.json"))
options = ort.SessionOptions()
options.register_custom_ops_library(folder + "/" + manifest["library"]["file"])
session = ort.InferenceSession(folder + "/model.onnx", options, providers=["CPUExecutionProvider"])
x = np.arange(48, dtype=np.float32).reshape(3, 16) / 48
print(repr(float(session.run(None, {"x": x})[0].sum())))
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return Config.from_env({"SMELT_STRICT": "1"}).with_(cache_dir=folder, log="quiet")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """A product with a weight that is large enough to lie outside the model file."""
    weight = np.random.default_rng(1).standard_normal((16, 32), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["folder", "file", "symlink", "foreign manifest"])
def test_what_is_no_artifact_is_never_replaced(model, tmp_path: Path, config: Config, kind: str):
    place = tmp_path / "out"
    if kind == "file":
        place.write_text("mine")
    else:
        real = tmp_path / "real" if kind == "symlink" else place
        real.mkdir()
        (real / "thesis.txt").write_text("mine")
        if kind == "symlink":
            place.symlink_to(real)
        if kind == "foreign manifest":
            (real / "manifest.json").write_text('{"name": "an extension"}')
    with pytest.raises(ArtifactError) as caught:
        compile_to(model, place, OPTIONS, config)
    assert caught.value.code == "SM-ARTIFACT-004"
    kept = place if kind == "file" else place / "thesis.txt"
    assert kept.read_text() == "mine"


def test_an_artifact_and_an_empty_folder_are_replaced(model, tmp_path: Path, config: Config):
    place = tmp_path / "out"
    place.mkdir()
    compile_to(model, place, OPTIONS, config)
    (place / "stale.txt").write_text("old")
    compile_to(model, place, OPTIONS, config)
    assert not (place / "stale.txt").exists() and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_the_old_artifact_and_nothing_else(model, tmp_path: Path, config: Config, monkeypatch):
    place = tmp_path / "out"
    compile_to(model, place, OPTIONS, config)
    before = contents(place)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(smelt.artifact, "write_json", full)
    with pytest.raises(ArtifactError, match="No space left"):
        compile_to(model, place, OPTIONS, config)
    with pytest.raises(ArtifactError, match="No space left"):
        compile_to(model, tmp_path / "new", OPTIONS, config)
    assert contents(place) == before and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_the_same_input_gives_the_same_bytes_anywhere_with_any_umask(model, tmp_path: Path, config: Config):
    compile_to(model, tmp_path / "one", OPTIONS, config)
    before = os.umask(0o077)
    try:
        compile_to(model, tmp_path / "deep" / "two", OPTIONS, config)
    finally:
        os.umask(before)
    one, two = tmp_path / "one", tmp_path / "deep" / "two"
    assert contents(one) == contents(two)
    for folder in (one, two):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_the_manifest_tells_what_is_inside(model, tmp_path: Path, config: Config):
    compile_to(model, tmp_path / "out", OPTIONS, config)
    text = (tmp_path / "out" / "manifest.json").read_text()
    manifest = json.loads(text)
    assert str(tmp_path) not in text and str(config.cache_dir) not in text
    assert manifest["nodes"] == {"in_kernels": 2, "all": 2} and manifest["library"]["targets"] == ["v2"]
    assert manifest["model"]["sha256"] == contents(tmp_path / "out")["model.onnx"]
    assert manifest["data"]["sha256"] == contents(tmp_path / "out")["model.data"]
    assert manifest["inputs"] == [{"name": "x", "type": "float", "dims": ["n", 16]}]
    assert manifest["regions"][0]["entry"] == "r0" and manifest["regions"][0]["kernels"]
    assert manifest["model"]["ir_version"] <= 9, "ONNX Runtime 1.17 takes no later one"


def test_it_runs_with_onnxruntime_alone_moved_and_read_only(model, tmp_path: Path, config: Config):
    compile_to(model, tmp_path / "out", OPTIONS, config)
    moved = tmp_path / "elsewhere" / "moved here"
    moved.parent.mkdir()
    shutil.move(tmp_path / "out", moved)
    moved.chmod(0o555)
    try:
        command = [sys.executable, "-I", "-c", LOADER, str(moved)]
        answer = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)
    finally:
        moved.chmod(0o755)
    weight = numpy_helper.to_array(model.graph.initializer[0])
    x = np.arange(48, dtype=np.float32).reshape(3, 16) / 48
    assert answer.returncode == 0, answer.stderr
    assert float(answer.stdout) == pytest.approx(np.maximum(x @ weight, 0).sum(), rel=1e-5)
