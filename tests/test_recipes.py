"""The recipes of docs/extending.md, run as they are written there: each block of code is a plug-in of one file."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import smelt
from smelt.ops import registry

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


def recipe(heading: str) -> str:
    """The first block of Python below a heading."""
    below = PAGE.partition(f"{heading}\n")[2]
    found = re.search(r"```python\n(.*?)```", below, re.DOTALL)
    assert found is not None, heading
    return found[1]


def plugin(folder: Path, name: str, heading: str) -> ModuleType:
    """One file, imported as a user would import it."""
    path = folder / f"{name}.py"
    path.write_text(recipe(heading), encoding="utf-8")
    assert [p.name for p in folder.iterdir()] == [path.name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def model(*nodes: onnx.NodeProto, weights: dict[str, float] | None = None) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "columns"]) for name in "xy"]
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    known = dict(registry._registry.by_name)
    yield
    registry._registry.by_name = known
    smelt.patterns.forget("double-to-add")


def test_an_op_is_one_file(tmp_path: Path) -> None:
    plugin(tmp_path, "my_op", "## An op")
    swish = model(helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Swish5", ["n"], ["y"], domain="my.domain"))
    with smelt.compile(swish, force=True, levels="v2") as compiled:
        (y,) = compiled.run({"x": X})
        assert compiled.coverage.in_kernels == 2
    np.testing.assert_allclose(y, -X / (1 + np.exp(5 * X)), atol=1e-6)


def test_an_op_in_c_is_one_file(tmp_path: Path) -> None:
    plugin(tmp_path, "my_function", "### A function in C")
    run_up = model(helper.make_node("RunUp", ["x"], ["y"], domain="my.domain", scale=0.5))
    with smelt.compile(run_up, force=True, levels="v2") as compiled:
        (y,) = compiled.run({"x": X})
        assert compiled.coverage.in_kernels == 1
    np.testing.assert_allclose(y, np.cumsum(0.5 * X, -1), atol=1e-6)


def test_a_pass_is_one_file(tmp_path: Path) -> None:
    plugin(tmp_path, "my_pass", "## A pass")
    doubled = model(helper.make_node("Mul", ["x", "two"], ["y"]), weights={"two": 2.0})
    with smelt.compile(doubled, force=True, levels="v2", patterns="default+mine") as compiled:
        assert [node.op_type for region in compiled.result.plan.regions for node in region.nodes] == ["Add"]
        np.testing.assert_array_equal(compiled.run({"x": X})[0], 2 * X)
    with smelt.compile(doubled, force=True, levels="v2") as compiled:
        assert [node.op_type for region in compiled.result.plan.regions for node in region.nodes] == ["Mul"]


def test_every_recipe_is_listed_with_its_files() -> None:
    table = PAGE.partition("| to add |")[2].partition("\n\n")[0]
    for heading in re.findall(r"^## (An? .+)$", PAGE, re.MULTILINE):
        assert f"[{heading}]" in table, f"{heading} has no line in the table of docs/extending.md"
