"""The provider's library, built once, and programs that load it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import filelock
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from provider_program import Program, rows, setup_module_of_package


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A file that is made once for all workers."""
    base = factory.getbasetemp()
    folder = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with filelock.FileLock(folder / f"{name}.lock"):
        if not (folder / name).exists():
            make(folder / name)
    return folder / name


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "libprovider.so", setup_module_of_package().compile_library)


@pytest.fixture(scope="module")
def program(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("provider")
    folder.chmod(0o755)
    return Program(library, folder / "cache", folder)


@pytest.fixture(scope="module")
def model(program: Program) -> Path:
    path = program.folder / "rows.onnx"
    onnx.save(rows(), path)
    return path


@pytest.fixture(scope="module")
def compiled(program: Program, model: Path) -> Path:
    """The model, whose compiled form is in the cache."""
    answers, log = program({"do": "run", "model": str(model)})
    assert answers[0]["claimed"], log
    return model
