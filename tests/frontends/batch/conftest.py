"""`smelt.batch` on a folder of the test's own. Imports nothing that an installation without the extra lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def run(tmp_path: Path):
    """`smelt.batch` in this process's own threads: a worker process takes a second to start."""
    import smelt

    def call(model: Any, inputs: Any, output: str = "out", **options: Any) -> Any:
        given = {"stock": True, "batch": 16, "workers": 1, "threads": 1, **options}
        return smelt.batch(model, inputs, tmp_path / output, **given)

    return call


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.frontends.batch import crew

    monkeypatch.setattr(crew.Crew, "in_processes", property(lambda self: False))
