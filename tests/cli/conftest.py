"""The command line called in this process, with a cache of its own, on a model that compiles in a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from smelt.base import host_arch, levels_of
from smelt.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def small_model(last: str = "Sigmoid", names: tuple[str, str, str] = ("scale", "wave", "last")) -> onnx.ModelProto:
    """(x + 2) * x -> tanh -> `last`, over a free and a fixed size."""
    two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])
    nodes = [
        helper.make_node("Add", ["x", "two"], ["a"], name=names[0]),
        helper.make_node("Mul", ["a", "x"], ["b"], name="product"),
        helper.make_node("Tanh", ["b"], ["c"], name=names[1]),
        helper.make_node(last, ["c"], ["y"], name=names[2]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "small", [x], [y], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder


@pytest.fixture(autouse=True)
def own_cache(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMELT_CACHE_DIR", str(cache_dir))
    monkeypatch.setenv("SMELT_LEVELS", ",".join(own_levels()))
    monkeypatch.setenv("SMELT_VERIFY", "0")  # it takes most of the time; tests that are about it turn it on


def own_levels() -> tuple[str, ...]:
    """The baseline alone: one compilation instead of three."""
    return (levels_of(host_arch())[0].name,)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(small_model(), path)
    return path


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]):
    def run(*arguments: Any) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        seen = capfd.readouterr()
        return Ran(int(ended.value.code or 0), seen.out, seen.err)

    return run
