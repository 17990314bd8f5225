"""Artifacts of other versions: an older one runs, a newer one says which version made it."""

from __future__ import annotations

import json
import platform
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import smelt
from smelt.runtime import Executable

TEXT = '<ir_version: 9, opset_import: ["" : 20]> g (float[n, 4] x) => (float[n, 4] y) { e = Exp(x) y = Neg(e) }'
KEPT = Path(__file__).with_name("early_artifact.zip")  # and the model that it was compiled from
FIRST = ("smelt", "made_with", "min_ort", "model", "data", "inputs", "outputs", "library")  # what all versions wrote


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts") / "old"
    with smelt.compile(onnx.parser.parse_model(TEXT), folder, force=True, levels="v2"):
        return folder


def rewrite(artifact: Path, **changes: object) -> None:
    """The manifest as another version wrote it: no more than the first fields, and the changes."""
    path = artifact / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: manifest[name] for name in FIRST}
    path.write_text(json.dumps({**kept, "format": 1, **changes}), encoding="utf-8")


@pytest.mark.parametrize("verb", [("run", "--shapes", "x:3x4"), ("inspect",), ("explain",)], ids=lambda verb: verb[0])
def test_an_older_artifact_runs_and_is_told_about(call, artifact: Path, verb: tuple[str, ...]) -> None:
    rewrite(artifact, smelt="0.1.0", left=[{"op": "Loop", "reason": "control flow", "count": 1}])
    ran = call(verb[0], artifact, *verb[1:])
    assert ran.code == 0, ran.err
    assert {"run": "one run", "inspect": "smelt 0.1.0", "explain": "control flow"}[verb[0]] in ran.out


def test_a_newer_artifact_says_which_version_made_it(call, artifact: Path) -> None:
    rewrite(artifact, smelt="9.9.0", format=2)
    ran = call("run", artifact, "--shapes", "x:3x4")
    assert ran.code != 0 and "smelt 9.9.0" in ran.err and "SM-ARTIFACT-001" in ran.err
    with pytest.raises(smelt.SmeltError, match="reads formats up to 1"):
        Executable.open(artifact)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An artifact for x86-64 as an early smelt wrote it, before products, tasks and packing had records."""
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(tmp_path)
    tmp_path.chmod(0o700)
    return tmp_path / "artifact"


def right(folder: Path, x: np.ndarray) -> Any:
    return onnxruntime.InferenceSession(folder.parent / "model.onnx").run(None, {"x": x})[0]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is for x86-64")
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_a_kept_artifact_still_loads_and_is_right(kept: Path, rows: int) -> None:
    """By stock ONNX Runtime alone, and by smelt."""
    x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
    manifest = json.loads((kept / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["smelt"] == "0.1.0" and "micro_kernels" not in str(manifest)  # nothing of what came later
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(kept / manifest["library"]["file"]))
    stock = onnxruntime.InferenceSession(kept / "model.onnx", options).run(None, {"x": x})[0]
    ours = Executable.open(kept).run({"x": x})[0]
    np.testing.assert_allclose(stock, right(kept, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours, stock)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is for x86-64")
@pytest.mark.parametrize("verb", [("run", "--shapes", "x:3x24"), ("inspect",), ("explain",)], ids=lambda verb: verb[0])
def test_a_kept_artifact_is_run_and_told_about(call, kept: Path, verb: tuple[str, ...]) -> None:
    ran = call(verb[0], kept, *verb[1:])
    assert ran.code == 0, ran.err
    assert {"run": "one run", "inspect": "smelt 0.1.0", "explain": "6 of 6 nodes in kernels"}[verb[0]] in ran.out
