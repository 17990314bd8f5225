"""The recipes of docs/extending.md, run as they are written there: each block of code is a plug-in of one file."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests import host_compiler

import smelt
from smelt.base.features import FEATURES
from smelt.codegen.c.micro_kernels import MICRO_KERNELS
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


def test_a_micro_kernel_is_a_template_and_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plugin(tmp_path, "my_dots", "## A micro-kernel")
    try:
        assert "u8i8i32_dots_1x1c64__avx512vnni" in MICRO_KERNELS.by_name
        ends = [("a", TensorProto.UINT8), ("b", TensorProto.INT8), ("y", TensorProto.INT32)]
        values = [helper.make_tensor_value_info(name, of, [f"{name}0", f"{name}1"]) for name, of in ends]
        node = helper.make_node("Dots", ["a", "b"], ["y"], domain="my.domain")
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
        graph = helper.make_graph([node], "g", values[:2], values[2:])
        dots = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        random = np.random.default_rng(0)
        feeds = {"a": random.integers(0, 256, (5, 333), np.uint8), "b": random.integers(-128, 128, (7, 333), np.int8)}
        for most in ("", "v4"):  # the best build of this machine, and that without VNNI
            monkeypatch.setenv("SMELT_LEVEL", most)
            folder = tmp_path / f"at{most}"
            folder.mkdir()
            with smelt.compile(dots, output=folder / "made", force=True, levels="v4") as compiled:
                np.testing.assert_array_equal(compiled.run(feeds)[0], made.exact(**feeds))
    finally:
        MICRO_KERNELS.forget(*(k.name for k in MICRO_KERNELS if k.header == "my_dots.h"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a feature of x86-64")
def test_a_cpu_feature_is_a_record_and_a_line(tmp_path: Path) -> None:
    """The line goes into a copy of the headers; a machine with the bits has it, one without AVX-512 has not."""
    feature = plugin(tmp_path, "my_feature", "## A CPU feature").AVX512FP16
    found = re.search(r"```c\n(.*?)```", PAGE.partition("## A CPU feature\n")[2], re.DOTALL)
    assert found is not None
    include = tmp_path / "include"
    shutil.copytree(Path(smelt.__file__).parent / "codegen" / "c" / "include", include)
    listed = include / "smelt" / "base" / "feature_list.h"
    text = listed.read_text(encoding="utf-8")
    listed.write_text(text.replace("SMELT_BUILD(v2,", f"{found[1]}SMELT_BUILD(v2,"), encoding="utf-8")
    program = """#include <smelt/base/cpu.h>
int main(int count, char **words) {
  const smelt_cpu_words mine = smelt_feature_list[SMELT_PLACE_avx512fp16].need;
  smelt_cpu_words all = mine;
  for (int i = 0; i < SMELT_PLACE_avx512fp16; i++)
    for (size_t w = 0; w < sizeof all / 8; w++)
      ((uint64_t *)&all)[w] |= ((const uint64_t *)&smelt_feature_list[i].need)[w];
  return smelt_features_of(&mine) == 0 && smelt_features_of(&all) >> SMELT_PLACE_avx512fp16 == 1 ? 0 : 1;
}
"""
    (tmp_path / "probe.c").write_text(program)
    subprocess.run([*host_compiler.command(), "-w", f"-I{include}", "probe.c", "-o", "probe"], check=True, cwd=tmp_path)
    assert subprocess.run([tmp_path / "probe"], check=False).returncode == 0
    assert feature.name in found[1] and set(feature.needs) <= {known.name for known in FEATURES}


def test_a_type_is_one_file(tmp_path: Path) -> None:
    """A copy of the package without the record of the recipe does not know the type; with it, all tables do."""
    line = f"    {recipe('## A type').strip()},\n"
    copy = tmp_path / "smelt"
    shutil.copytree(Path(smelt.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "include"))
    table = copy / "base" / "dtype.py"
    whole = table.read_text(encoding="utf-8")
    assert line in whole
    program = """
from smelt.base.dtype import BY_NAME, BY_ONNX, BY_ONNX_NAME, find_dtype
assert "f32" in BY_NAME and "f6e2m3" in BY_NAME
try:
    made = find_dtype("f6e3m2")
    print(made.bits, made.compute, BY_ONNX[28] is made, BY_ONNX_NAME["float6e3m2"] is made, made.numpy.name)
except KeyError as error:
    print(error)
"""
    told: list[str] = []
    for text in (whole.replace(line, ""), whole):
        table.write_text(text, encoding="utf-8")
        told.append(python(program, tmp_path))
    assert "no element type 'f6e3m2'; there are f32, f64" in told[0]
    assert told[1] == "6 f32 True True float6_e3m2fn"


def test_a_backend_is_one_folder(tmp_path: Path) -> None:
    """The folder as an installed package, found by its entry point and by nothing else."""
    shutil.copytree(Path(__file__).parent / "plain_backend", tmp_path / "plain_backend")
    info = tmp_path / "plain_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain_backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[smelt.backends]\nplain = plain_backend:PlainBackend\n")
    onnx.save(model(helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])), tmp_path / "m.onnx")
    program = f"""
import numpy as np
import smelt
with smelt.compile({str(tmp_path / "m.onnx")!r}, backend="plain", force=True, levels="v2", threads=1) as compiled:
    (y,) = compiled.run({{"x": np.zeros((2, 3), np.float32)}})
    print(y.sum(), compiled.coverage.in_kernels, *{{region.backend for region in compiled.result.plan.regions}})
"""
    assert python(program, tmp_path) == "-6.0 2 plain"


def python(program: str, folder: Path) -> str:
    """What a process says that finds packages in a folder first."""
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_recipe_is_listed_with_its_files() -> None:
    table = PAGE.partition("| to add |")[2].partition("\n\n")[0]
    for heading in re.findall(r"^## (An? .+)$", PAGE, re.MULTILINE):
        assert f"[{heading}]" in table, f"{heading} has no line in the table of docs/extending.md"
