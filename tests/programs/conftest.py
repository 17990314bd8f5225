"""Packages that the programs need, installed once per run beside the environment, which stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The same for all workers of a run."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


def installed(requirements: str, folder: Path) -> Path:
    """A folder for PYTHONPATH. Without a package index the test is skipped."""
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
            done = subprocess.run(
                [*pip, "-r", str(PROGRAMS / requirements)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"needs a package index with {requirements}: {done.stderr[-300:]}")
    return folder


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return (installed("requirements.txt", shared_folder(tmp_path_factory) / "packages"),)


@pytest.fixture(scope="session")
def optimum(packages: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Optimum and the releases that it takes, before the others."""
    return (installed("requirements-optimum.txt", shared_folder(tmp_path_factory) / "optimum"), *packages)
