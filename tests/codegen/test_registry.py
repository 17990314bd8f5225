"""Backends are found by name, and a name that nobody registered is an error that lists the known ones."""

import subprocess
import sys

import pytest

from smelt.base.errors import ConfigError
from smelt.codegen import backend_names, find_backend, find_backends, registry
from smelt.codegen.c.backend import CBackend


class Other(CBackend):
    name = "other"


class Point:
    """An entry point of another package."""

    name = "elsewhere"

    def load(self) -> type[CBackend]:
        return Other


def test_the_c_backend_is_the_default() -> None:
    assert find_backends("") == (CBackend,) == find_backends("c")


def test_an_unknown_backend_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no backend 'cuda'") as found:
        find_backends("c,cuda")
    assert all(name in found.value.hint for name in backend_names()) and "c" in backend_names()


def test_backends_of_other_packages_are_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point()] if group == "smelt.backends" else [])
    assert backend_names() == ("c", "triton", "triton-cuda", "triton-rocm", "elsewhere")
    assert find_backend("elsewhere") is Other
    assert find_backends("elsewhere, c") == (Other, CBackend)


def test_backends_for_gpus_are_imported_when_they_are_asked_for() -> None:
    program = """
import sys
import smelt.pipeline, smelt.report
from smelt.codegen import backend_names, find_backend
assert "triton-cuda" in backend_names()
print(*(name for name in sys.modules if name.startswith("smelt.codegen.triton")))
assert find_backend("triton-cuda").name == "triton-cuda"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
