"""A sandbox for models that may do anything, shared by the tests of this folder."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from sandbox import Sandbox  # noqa: E402 - found by the line above

FAST_CASES = 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast suite takes the first few cases of each test, the full suite takes all."""
    seen: Counter[str] = Counter()
    for item in items:
        if HERE not in item.path.parents or item.get_closest_marker("full"):
            continue
        name = f"{item.path}::{getattr(item, 'originalname', item.name)}"
        seen[name] += 1
        if seen[name] > FAST_CASES:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        yield made
