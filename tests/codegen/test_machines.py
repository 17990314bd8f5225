"""The same bits on every machine: whatever the caches, the processors and the threads of the session are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.pipeline import Options, compile_to

RNG = np.random.default_rng(3)
MACHINES = (
    "threads=1", "threads=3", "threads=8", "threads=64,processors=64", "threads=128,l1=131072,l2=4194304",
    "l1=16384,l2=262144", "l2=4194304,threads=16",
)  # fmt: skip
THREADS = (1, 2, 3, 5, 8, 16, 64)
RUN = """
import sys, numpy as np
from smelt.runtime import Executable, SessionSettings
x = dict(np.load(sys.argv[2]))
for threads in map(int, sys.argv[4].split(",")):
    model = Executable.open(sys.argv[1], SessionSettings(threads=threads))
    for turn in range(3):
        np.savez(f"{sys.argv[3]}-{threads}-{turn}.npz", *model.run(x))
"""


def weight(name: str, *shape: int):
    array = (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return helper.make_tensor(name, TensorProto.FLOAT, shape, array.tobytes(), raw=True)


def model():
    """A layer of a transformer over 256 tokens, and convolutions: 1x1, 3x3 of many and of few channels, depthwise."""
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q0"]), helper.make_node("MatMul", ["x", "wk"], ["k0"]),
        helper.make_node("MatMul", ["x", "wv"], ["v0"]),
        *(helper.make_node("Reshape", [f"{n}0", "heads"], [f"{n}1"]) for n in "qkv"),
        *(helper.make_node("Transpose", [f"{n}1"], [f"{n}2"], perm=[0, 2, 1, 3]) for n in "qv"),
        helper.make_node("Transpose", ["k1"], ["k2"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["q2", "k2"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v2"], ["o"]), helper.make_node("Transpose", ["o"], ["o1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o1", "rows"], ["o2"]), helper.make_node("MatMul", ["o2", "wo"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "gain", "bias"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w1"], ["h"]), helper.make_node("Relu", ["h"], ["h1"]),
        helper.make_node("MatMul", ["h1", "w2"], ["y"]),
        helper.make_node("Conv", ["i", "c1"], ["i1"], pads=[1] * 4), helper.make_node("Relu", ["i1"], ["i2"]),
        helper.make_node("Conv", ["i2", "c2"], ["i3"]), helper.make_node("Relu", ["i3"], ["i4"]),
        helper.make_node("Conv", ["i4", "c3"], ["i5"], pads=[1] * 4, group=96),
        helper.make_node("Relu", ["i5"], ["i6"]),
        helper.make_node("Conv", ["i6", "c4"], ["z"]),
    ]  # fmt: skip
    weights = [
        *(weight(n, 192, 192) for n in ("wq", "wk", "wv", "wo")), weight("w1", 192, 1536), weight("w2", 1536, 192),
        weight("gain", 192), weight("bias", 192), weight("c1", 32, 24, 3, 3), weight("c2", 96, 32, 1, 1),
        weight("c3", 96, 1, 3, 3), weight("c4", 64, 96, 1, 1),
        helper.make_tensor("heads", TensorProto.INT64, [4], [1, -1, 4, 48]),
        helper.make_tensor("rows", TensorProto.INT64, [3], [1, -1, 192]),
    ]  # fmt: skip
    ends = [("x", [1, "n", 192]), ("i", [1, 24, 57, 61]), ("y", None), ("z", None)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    graph = helper.make_graph(nodes, "machines", values[:2], values[2:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machines")
    config = Config.from_env().with_(log="quiet")
    result = compile_to(model(), folder / "artifact", Options(force=True, verify=False), config)
    assert not result.plan.fallbacks
    feeds = {"x": RNG.standard_normal((1, 256, 192)), "i": RNG.standard_normal((1, 24, 57, 61))}
    np.savez(folder / "feeds.npz", x=feeds["x"].astype(np.float32), i=feeds["i"].astype(np.float32))
    return folder


def results(artifact: Path, machine: str, threads: tuple[int, ...]) -> list[list[np.ndarray]]:
    stem = artifact / machine.replace("=", "-")
    command = [sys.executable, "-c", RUN, str(artifact / "artifact"), str(artifact / "feeds.npz"), str(stem)]
    environment = {**os.environ, "SMELT_MACHINE": machine}
    subprocess.run([*command, ",".join(map(str, threads))], check=True, env=environment)
    files = sorted(artifact.glob(f"{stem.name}-*.npz"))
    assert len(files) == 3 * len(threads)
    return [list(np.load(file).values()) for file in files]


def alike(found: list[list[np.ndarray]], wanted: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for one in found for a, b in zip(one, wanted, strict=True))


def test_bits_do_not_depend_on_threads_or_caches(artifact: Path) -> None:
    first, *rest = results(artifact, "l2=1048576", (1, 2))
    assert alike(rest, first)
    for machine in MACHINES[:3]:
        assert alike(results(artifact, machine, (2,)), first), machine


@pytest.mark.full
@pytest.mark.parametrize("machine", MACHINES)
def test_bits_are_the_same_with_any_number_of_threads(artifact: Path, machine: str) -> None:
    wanted = results(artifact, "l2=1048576", (1,))[0]
    assert alike(results(artifact, machine, THREADS), wanted)


def test_a_machine_that_cannot_be_read_is_refused_when_the_library_is_loaded(artifact: Path) -> None:
    program = f"from smelt.runtime import Executable; Executable.open({str(artifact / 'artifact')!r})"
    environment = {**os.environ, "SMELT_MACHINE": "l2=1,cores=4"}
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert made.returncode != 0 and "SMELT_MACHINE" in made.stderr and "l1, l2, l3, processors, threads" in made.stderr
