"""The architecture is checked: layers, where the environment is read, names, and what an import costs."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import smelt

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "smelt"
VAGUE = {"utils", "util", "common", "helpers", "helper", "misc", "manager"}
HEAVY = ("torch", "onnx", "onnxruntime", "rich", "typer", "triton", "ray")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))


def with_path(project: Path) -> dict[str, str]:
    path = os.pathsep.join([str(project / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def lint(project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = with_path(project)
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy_of_project(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "src" / "smelt", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_folder_imports_only_from_lower_layers():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("base/planted.py", "from smelt.toolchain import build\n"),
        ("toolchain/planted.py", "def f():\n    from smelt.runtime import session\n"),
        ("attic/__init__.py", ""),
        ("ops/planted.py", "from smelt.base.machine import x\n"),
    ],
    ids=["upwards", "sibling, inside a function", "folder without a layer", "ops that know a machine"],
)
def test_a_planted_violation_is_found(copy_of_project: Path, file: str, line: str):
    planted = copy_of_project / "src" / "smelt" / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(line, encoding="utf-8")
    assert lint(copy_of_project).returncode != 0


def test_every_folder_is_a_package():
    """The linter does not see a folder without `__init__.py`."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(folder.relative_to(PACKAGE)) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_environment_is_read_in_two_files_only():
    """Variables one at a time, for a start that is to be quick, and all of them."""
    found = {
        str(path)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
    }
    assert found == {"base/config.py", "base/environment.py"}


def test_no_subprocess_is_started_by_a_shell():
    for path, tree in modules():
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.keyword) and node.arg == "shell"), path
            assert not (isinstance(node, ast.Attribute) and node.attr in {"system", "popen"}), path


def test_modules_have_telling_names_a_docstring_and_a_bearable_length():
    for path, tree in modules():
        assert path.stem not in VAGUE, path
        source = (PACKAGE / path).read_text(encoding="utf-8")
        assert ast.get_docstring(tree) or not source.strip(), f"{path} has no docstring"
        assert source.count("\n") <= 600, path


def test_private_modules_are_used_in_their_own_folder_only():
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("smelt."):
                continue
            parts = (node.module or "").split(".")[1:]
            private = [index for index, part in enumerate(parts) if part.startswith("_")]
            if private:
                assert path.parts[: private[0]] == tuple(parts[: private[0]]), f"{path} imports {node.module}"


def test_importing_smelt_loads_nothing_heavy():
    code = f"import smelt, sys; print([name for name in {HEAVY!r} if name in sys.modules], smelt.__version__)"
    result = subprocess.run(
        [sys.executable, "-c", code], env=with_path(ROOT), capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == f"[] {smelt.__version__}", result.stdout + result.stderr
