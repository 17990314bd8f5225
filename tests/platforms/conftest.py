"""The travelling models, compiled once for all levels of this architecture."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from travel import make_cases


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cases(tmp_path_factory.mktemp("platforms") / "cases")


@pytest.fixture
def copied(cases: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cases, tmp_path / "moved" / "to a place with spaces & ünïcode"))
