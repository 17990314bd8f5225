"""Artifacts of other versions: an older one runs, a newer one says which version made it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import smelt
from smelt.runtime import Executable

TEXT = '<ir_version: 9, opset_import: ["" : 20]> g (float[n, 4] x) => (float[n, 4] y) { e = Exp(x) y = Neg(e) }'
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
