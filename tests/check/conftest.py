"""A model of two regions with a node of ONNX Runtime between them, and ways to spoil its kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.codegen import registry
from smelt.codegen.c.backend import CBackend

Spoil = Callable[[int, str], None]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder


@pytest.fixture
def config(cache_dir: Path) -> Config:
    return Config.from_env({"SMELT_STRICT": "1"}).with_(cache_dir=cache_dir, verify_timeout_s=60.0, log="quiet")


@pytest.fixture
def two_regions() -> onnx.ModelProto:
    """Region 0 is Tanh and Mul, region 1 is Sigmoid and Sub; the product between them is to be excluded."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["b", "t"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Sub", ["d", "c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "rows"])
    graph = helper.make_graph(nodes, "two", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Put C at the beginning of a region's function, by the region's index."""
    planted: dict[int, str] = {}

    class Spoiled(CBackend):
        def generate(self, regions, targets):
            made = super().generate(regions, targets)
            units = made.source.units
            for region, entry in zip(made.regions, made.entry_of, strict=True):
                head = f"SMELT_NAME({entry})(smelt_env *env) {{"
                text = head + planted.get(region.index, "")
                units = tuple(dataclasses.replace(u, text=u.text.replace(head, text)) for u in units)
            return dataclasses.replace(made, source=dataclasses.replace(made.source, units=units))

    monkeypatch.setitem(registry._REGISTERED, "c", Spoiled)
    return planted.__setitem__
