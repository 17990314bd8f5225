"""How long a compilation takes, cold, after another model and from the cache, and where the time goes.

Input: a model of the zoo, a file, or a chain of many nodes. Output: `CompileTime`. Invariant: each compilation is a
fresh process, so imports are part of what is timed. The cold one has an empty cache folder, and of the units that no
model changes what the installation brings; the second one a folder in which another model was compiled; the cached one
that of the cold one.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from smelt.base import Config
from smelt.base.config import child_environment
from smelt.bench import zoo
from smelt.bench.contestant import import_path

_WIDTH_OF_A_FILE: Final = 160
_CHAIN: Final = ("Relu", "Neg", "Abs", "Ceil", "Floor")
_PROGRAM: Final = """
import json, sys, time
started = time.perf_counter()
from pathlib import Path
from smelt.pipeline import Options, compile_to
imported = time.perf_counter()
result = compile_to(Path(sys.argv[1]), Path(sys.argv[2]), Options())
compiled = time.perf_counter()
stages = {}
for stage in result.stages:
    stages[stage.name] = stages.get(stage.name, 0.0) + stage.seconds
found = result.library is not None and result.library.cached
print(json.dumps(found))
print(json.dumps({"import": imported - started, **stages, "(other)": compiled - imported - sum(stages.values())}))
"""


@dataclass(frozen=True)
class Compilation:
    """Seconds on the wall of a whole process, of CPU by it and its compilers, and on the wall by stage.

    `found` says that the library was in the cache.
    """

    wall_s: float
    cpu_s: float
    found: bool
    stages: Mapping[str, float]


@dataclass(frozen=True)
class CompileTime:
    """Compilations of one model; `second` follows one of another model, where such was asked for."""

    model: str
    cold: Compilation
    cached: Compilation
    second: Compilation | None = None


def measure_compile(name: str, config: Config, scale: zoo.Scale = "full") -> CompileTime:
    """`name` is a model of the zoo, `chain`, `chain:COUNT`, or the path of an ONNX file."""
    with tempfile.TemporaryDirectory(prefix="smelt-compile-") as folder:
        first = Path(folder) / "first.onnx"
        write_layers(first)
        if name.partition(":")[0] == "chain":
            model = Path(folder) / "chain.onnx"
            write_chain(model, int(name.partition(":")[2] or 100_000))
            return measure_file(name, model)
        if name.endswith(".onnx"):
            return measure_file(Path(name).stem, Path(name), first)
        return measure_file(name, zoo.export(name, config, scale), first)


def measure_file(name: str, model: Path, first: Path | None = None) -> CompileTime:
    with tempfile.TemporaryDirectory(prefix="smelt-compile-") as folder:
        cold = _compile(model, Path(folder), "cold")
        cached = _compile(model, Path(folder), "cached")
    if first is None:
        return CompileTime(name, cold, cached)
    with tempfile.TemporaryDirectory(prefix="smelt-compile-") as folder:
        _compile(first, Path(folder), "first")
        return CompileTime(name, cold, cached, _compile(model, Path(folder), "second"))


def write_chain(path: Path, count: int) -> None:
    """A chain of element-wise nodes over a matrix with a free number of rows."""
    names = [f"v{place}" for place in range(count + 1)]
    nodes = [helper.make_node(_CHAIN[i % len(_CHAIN)], [a], [b]) for i, (a, b) in enumerate(pairwise(names))]
    _write(path, nodes, {names[0]: ["n", 16]}, {names[-1]: ["n", 16]}, ())


def write_layers(path: Path) -> None:
    """A product, a convolution, a depthwise one and a pool: what is compiled once per machine is compiled for it."""
    shapes = {"w": [24, 32], "dense": [32, 8, 3, 3], "depthwise": [32, 1, 3, 3]}
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["image", "dense"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "depthwise"], ["b"], pads=[1, 1, 1, 1], group=32),
        helper.make_node("MaxPool", ["b"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MatMul", ["rows", "w"], ["product"]),
    ]
    inputs: dict[str, list[int | str]] = {"image": ["n", 8, 24, 24], "rows": ["m", 24]}
    _write(path, nodes, inputs, {"pooled": ["n", 32, 12, 12], "product": ["m", 32]}, weights)


def _write(
    path: Path, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]], weights: Sequence[onnx.TensorProto],
) -> None:  # fmt: skip
    given, made = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape)) for name, shape in values.items()]
        for values in (inputs, outputs)
    )
    graph = helper.make_graph(list(nodes), "g", given, made, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def _compile(model: Path, folder: Path, label: str) -> Compilation:
    command = [sys.executable, "-P", "-c", _PROGRAM, str(model), str(folder / label)]
    environment = child_environment({"SMELT_CACHE_DIR": str(folder / "cache"), **import_path()})
    started, used = time.perf_counter(), _cpu_of_children()
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall_s, cpu_s = time.perf_counter() - started, _cpu_of_children() - used
    found, stages = (json.loads(line) for line in finished.stdout.splitlines()[-2:])
    spent = {stage: float(seconds) for stage, seconds in cast("dict[str, Any]", stages).items()}
    return Compilation(wall_s, cpu_s, bool(found), spent)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_compile_times(times: Sequence[CompileTime]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title="compile time, s", title_justify="left")
    stages = list(dict.fromkeys(stage for time in times for stage in time.cold.stages))
    for column in ("model", "", "wall", "CPU", *stages):
        table.add_column(column, justify="left" if column in {"model", ""} else "right")
    for found in times:
        rows = [("cold", found.cold), ("cached" if found.cached.found else "again", found.cached)]
        if found.second is not None:
            rows.insert(1, ("second", found.second))
        for label, one in rows:
            times_s = (one.wall_s, one.cpu_s, *(one.stages.get(stage, 0.0) for stage in stages))
            table.add_row(found.model, label, *(f"{seconds:.2f}" for seconds in times_s))
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    console.print(table)
