"""Random models are compiled and run in the sandbox of the hostile tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "hostile"), str(HERE.parent / "conformance")]

from sandbox import Sandbox  # noqa: E402 - found by the line above


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("fuzz")) as made:
        yield made
