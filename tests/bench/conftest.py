from __future__ import annotations

from pathlib import Path

import pytest

from smelt.base import Config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_env({"SMELT_CACHE_DIR": str(tmp_path / "cache"), "SMELT_LOG": "quiet"})
