"""`smelt compile --layout`: folders for programs that load ONNX models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import smelt
from smelt.frontends.layouts import triton_config

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)


@pytest.fixture
def folder(model_path: Path) -> Path:
    """A Hugging Face folder with the model in it."""
    home = model_path.parent
    (home / "config.json").write_text("{}")
    (home / "tokenizer.json").write_text("{}")
    (home / "model.safetensors").write_bytes(b"weights")
    (home / "1_Pooling").mkdir()
    (home / "1_Pooling" / "config.json").write_text("{}")
    return home


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("layout", "inside"), [("sentence-transformers", "onnx"), ("optimum", ".")])
def test_folders_of_hugging_face_programs(call: Any, folder: Path, model_path: Path, tmp_path: Path, layout, inside):
    out = tmp_path / "out" / layout
    for _ in range(2):  # the second replaces the first
        ran = call("compile", model_path, "--force", "--layout", layout, "-o", out)
        assert ran.code == 0 and ran.out.splitlines()[-1] == str(out), ran.err
    assert {"config.json", "tokenizer.json", "1_Pooling/config.json"} <= files(out)
    assert not any(name.endswith(".safetensors") for name in files(out))
    session = ort.InferenceSession(str(out / inside / "model.onnx"), smelt.session_options(out / inside))
    stock = ort.InferenceSession(str(model_path)).run(None, {"x": X})[0]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], stock, rtol=1e-5, atol=1e-6)


def test_a_folder_for_triton(call: Any, model_path: Path, tmp_path: Path):
    ran = call("compile", model_path, "--force", "--layout", "triton", "-o", tmp_path / "models")
    assert ran.code == 0, ran.err
    place = tmp_path / "models" / "small"
    library = next((place / "1").glob("*.so"))
    text = (place / "config.pbtxt").read_text()
    assert f'op_library_filename: [ "{library}" ]' in text and 'backend: "onnxruntime"' in text
    assert 'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 8 ] }' in text


def test_any_name_can_be_said_to_triton():
    manifest = {"inputs": [{"name": 'a"\\\nä', "type": "int64", "dims": []}], "outputs": [], "library": None}
    text = triton_config("m", manifest, Path("/models/m/1"))
    assert 'input { name: "a\\042\\134\\012\\303\\244" data_type: TYPE_INT64 dims: [  ] }' in text


@pytest.mark.full
def test_triton_reads_its_configuration(tmp_path: Path):
    """By the message that the server reads it with; the server itself is no package."""
    pytest.importorskip("grpc", reason="needs the package tritonclient[grpc]")
    messages = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="needs the package tritonclient[grpc]")
    from google.protobuf import text_format

    manifest = {
        "inputs": [{"name": 'odd "name\nä', "type": "int64", "dims": ["batch", 3]}],
        "outputs": [{"name": "y", "type": "float", "dims": []}, {"name": "z", "type": "bool", "dims": None}],
        "library": {"file": "smelt_0.so"},
    }
    read = text_format.Parse(triton_config("net", manifest, Path("/models/net/1")), messages.ModelConfig())
    assert (read.name, read.backend, read.max_batch_size) == ("net", "onnxruntime", 0)
    assert (read.input[0].name, list(read.input[0].dims)) == ('odd "name\nä', [-1, 3])
    assert read.input[0].data_type == messages.TYPE_INT64 and read.output[1].data_type == messages.TYPE_BOOL
    assert list(read.model_operations.op_library_filename) == ["/models/net/1/smelt_0.so"]


def test_mistakes_are_named(call: Any, model_path: Path, tmp_path: Path):
    assert "not one of" in call("compile", model_path, "--layout", "tensorrt", "-o", tmp_path / "a").err
    bare = call("compile", model_path, "--layout", "optimum", "-o", tmp_path / "b")
    assert bare.code == 2 and "config.json" in bare.err and not (tmp_path / "b").exists()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine.txt").write_text("mine")
    assert "SM-ARTIFACT-004" in call("compile", model_path, "--layout", "triton", "-o", tmp_path / "c").err
    assert json.loads(call("compile", tmp_path, "--layout", "triton", "-o", tmp_path / "d", "--json").out)["error"]
