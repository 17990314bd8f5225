"""All tests: an internal error is raised where it happens (tests of containment set a `Config` of their own), and
artifacts are not timed but where a test turns it on, so that no plan depends on a machine's load."""

from __future__ import annotations

import os

from hypothesis import settings

from smelt.base import config

os.environ["SMELT_STRICT"] = "1"
os.environ["SMELT_TIMING"] = "0"  # for processes that tests start
config.TIMING = False  # for configurations that tests make


def pytest_configure(config) -> None:
    """The fast suite tries the same examples every time, so that it says the same of the same sources; the full one
    looks for new ones."""
    if config.option.markexpr == "not full":
        settings.register_profile("fast", derandomize=True)
        settings.load_profile("fast")
