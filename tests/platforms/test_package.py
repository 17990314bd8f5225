"""The wheel holds all that runs, the sdist all that tests; an environment with nothing but the wheel works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ("src", "tests", "docs", "examples", "bench")
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
# The build changes sys.argv.
BUILD = "import setuptools.build_meta as b, sys; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Built from a copy, so that nothing is left in the sources."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in KEPT:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "results"))
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, tree)
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=tree, check=True, capture_output=True)
    return {path.suffix: path for path in out.iterdir()}


def below(folder: str, suffixes: tuple[str, ...]) -> set[str]:
    found = (path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found if "egg-info" not in path.as_posix()}


def test_the_wheel_has_every_module_header_and_template(built: dict[str, Path]):
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    wanted = {name.removeprefix("src/") for name in below("src", (".py", ".h", ".c", ".j2", ".js", ".css", ".typed"))}
    assert wanted <= names and "smelt_hook.pth" in names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)
    assert metadata.splitlines()[1] == "Name: onnx-smelt"


def test_the_sdist_has_all_tests_and_pages(built: dict[str, Path]):
    with tarfile.open(built[".gz"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for folder in ("tests", "docs", "examples", "src"):
        assert below(folder, (".py", ".md", ".h", ".c")) <= names


def test_an_empty_environment_runs_the_first_commands(built: dict[str, Path], tmp_path: Path):
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", str(built[".whl"])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SMELT", "PYTHON"))}
    environment["SMELT_CACHE_DIR"] = str(tmp_path / "cache")
    if subprocess.run(pip, env=environment, check=False, capture_output=True).returncode:
        pytest.skip("needs a package index")
    smelt = str(place / "bin" / "smelt")

    def say(*command: str, **more: str) -> str:
        ran = subprocess.run(
            command, env={**environment, **more}, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert "smelt" in say(smelt, "--version")
    say(smelt, "doctor")
    model = (
        "import onnx; from onnx import helper as h, TensorProto as t;"
        "x, y = (h.make_tensor_value_info(n, t.FLOAT, ['n', 64]) for n in 'xy');"
        "g = h.make_graph([h.make_node('Softmax', ['x'], ['s']), h.make_node('Erf', ['s'], ['y'])], 'g', [x], [y]);"
        "onnx.save(h.make_model(g, opset_imports=[h.make_opsetid('', 17)], ir_version=8), 'm.onnx')"
    )
    say(str(place / "bin" / "python"), "-c", model)
    say(smelt, "compile", "m.onnx", "-o", "out", "--force")
    say(smelt, "verify", "out", "--against", "m.onnx")
    assert "waits up to" in say(smelt, "doctor", SMELT_HOOK="on")  # by smelt_hook.pth
