"""The same bits on every machine: whatever the caches, the processors and the threads of the session are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from smelt.base.config import Config, child_environment
from smelt.pipeline import Options, compile_to
from smelt.toolchain import bounds_environment, find_compiler

RNG = np.random.default_rng(3)
MACHINES = (
    "threads=1", "threads=3", "threads=5,l3=1048576", "threads=8", "threads=16,l2=4194304", "threads=64,processors=64",
    "threads=128,l1=131072,l2=4194304", "l1=16384,l2=262144", "threads=7,l1=16384,l2=262144",
)  # fmt: skip
THREADS = (1, 2, 3, 5, 8, 16, 64)
RUN = """
import sys, numpy as np
from smelt.runtime import Executable, SessionSettings
x = dict(np.load(sys.argv[2]))
wanted = dict(np.load(sys.argv[3])) if len(sys.argv) > 5 else None
for threads in map(int, sys.argv[4].split(",")):
    model = Executable.open(sys.argv[1], SessionSettings(threads=threads))
    for turn in range(2):
        found = model.run(x)
        if wanted is None:
            wanted = {f"arr_{place}": array for place, array in enumerate(found)}
            np.savez(sys.argv[3], *found)
        for place, array in enumerate(found):
            if not np.array_equal(array, wanted[f"arr_{place}"]):
                sys.exit(f"output {place} differs with {threads} threads, run {turn}")
"""
COMPILE = """
import sys
from pathlib import Path
from smelt.base.config import Config
from smelt.pipeline import Options, compile_to
compile_to(sys.argv[1], Path(sys.argv[2]), Options(force=True, verify=False), Config.from_env().with_(log="quiet"))
"""
FEED = """
import sys, numpy as np
from smelt.runtime import Executable, SessionSettings
x = dict(np.load(sys.argv[2]))
for threads in (1, 2):
    Executable.open(sys.argv[1], SessionSettings(threads=threads)).run(x)
"""
FORMS = {
    "GEMM, packed ahead of time", "GEMM, packed at run time", "fused MLP", "attention, online softmax", "function",
    "convolution, depthwise", "convolution, im2col", "convolution, nchw", "convolution, pointwise",
    "convolution, winograd", "max pool",
}  # fmt: skip


def weight(name: str, *shape: int):
    array = (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return helper.make_tensor(name, TensorProto.FLOAT, shape, array.tobytes(), raw=True)


def layer():
    """A layer of a transformer over 256 tokens: products, attention, normalization, and rows that need no barrier."""
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
        helper.make_node("MatMul", ["y", "m1"], ["g"]), helper.make_node("Tanh", ["g"], ["g1"]),
        helper.make_node("MatMul", ["g1", "m2"], ["y1"]),
    ]  # fmt: skip
    weights = [
        *(weight(n, 192, 192) for n in ("wq", "wk", "wv", "wo")), weight("w1", 192, 1536), weight("w2", 1536, 192),
        weight("gain", 192), weight("bias", 192), weight("m1", 192, 96), weight("m2", 96, 192),
        helper.make_tensor("heads", TensorProto.INT64, [4], [1, -1, 4, 48]),
        helper.make_tensor("rows", TensorProto.INT64, [3], [1, -1, 192]),
    ]  # fmt: skip
    return nodes, weights, {"x": [1, 256, 192]}, {"x": [1, "n", 192]}, ["y", "y1"]


def images():
    """Convolutions: 7x7 and a pool, 3x3 of many channels, strided, 1x1, depthwise, and three that one task runs."""
    nodes = [
        helper.make_node("Conv", ["f", "c0"], ["f1"], pads=[3] * 4, strides=[2, 2]),
        helper.make_node("MaxPool", ["f1"], ["z0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Conv", ["i", "c1"], ["i1"], pads=[1] * 4), helper.make_node("Relu", ["i1"], ["i2"]),
        helper.make_node("Conv", ["i2", "c2"], ["i3"]), helper.make_node("Relu", ["i3"], ["i4"]),
        helper.make_node("Conv", ["i4", "c3"], ["i5"], pads=[1] * 4, group=96),
        helper.make_node("Relu", ["i5"], ["i6"]), helper.make_node("Conv", ["i6", "c4"], ["z1"]),
        helper.make_node("Conv", ["z1", "c5"], ["z2"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Conv", ["z2", "c6"], ["z3"], pads=[1] * 4),
    ]  # fmt: skip
    weights = [
        weight("c0", 32, 3, 7, 7), weight("c1", 32, 24, 3, 3), weight("c2", 96, 32, 1, 1), weight("c3", 96, 1, 3, 3),
        weight("c4", 128, 96, 1, 1), weight("c5", 160, 128, 3, 3), weight("c6", 128, 160, 3, 3),
    ]  # fmt: skip
    shapes = {"f": [1, 3, 96, 90], "i": [1, 24, 57, 61]}
    return nodes, weights, shapes, shapes, ["z0", "z1", "z3"]


def others():
    """Attention over long rows, recurrent layers, reductions, products of 8 bits, few rows and run-time operands."""
    nodes = [
        helper.make_node("MatMul", ["lq", "lk"], ["ls"]), helper.make_node("Softmax", ["ls"], ["lp"], axis=-1),
        helper.make_node("MatMul", ["lp", "lv"], ["u0"]),
        helper.make_node("LSTM", ["t", "lw", "lr"], ["u1"], hidden_size=96, direction="bidirectional"),
        helper.make_node("GRU", ["t", "gw", "gr"], ["u2"], hidden_size=96),
        helper.make_node("ReduceMean", ["lq"], ["u3"], axes=[0, 2]),
        helper.make_node("ReduceMax", ["lv"], ["u4"], axes=[1]),
        helper.make_node("ReduceSum", ["lk"], ["u5"]), helper.make_node("CumSum", ["lv", "axis"], ["u6"]),
        helper.make_node("Gemm", ["few", "wf"], ["u7"]), helper.make_node("MatMul", ["run", "lv"], ["u8"]),
        helper.make_node("MatMulInteger", ["b", "wb"], ["u9"]),
        helper.make_node("LSTM", ["long", "sw", "sr"], ["u10"], hidden_size=64),
    ]  # fmt: skip
    small = RNG.integers(-127, 127, (192, 160), np.int8)
    weights = [
        weight("lw", 2, 384, 64), weight("lr", 2, 384, 96), weight("gw", 1, 288, 64), weight("gr", 1, 288, 96),
        weight("sw", 1, 256, 16), weight("sr", 1, 256, 64),
        weight("wf", 700, 500), helper.make_tensor("axis", TensorProto.INT64, [], [1]),
        helper.make_tensor("wb", TensorProto.INT8, small.shape, small.tobytes(), raw=True),
    ]  # fmt: skip
    shapes = {
        "lq": [2, 130, 32], "lk": [2, 32, 2304], "lv": [2, 2304, 32], "t": [20, 4, 64], "few": [3, 700],
        "run": [2, 90, 2304], "b": [200, 192], "long": [400, 1, 16],
    }  # fmt: skip
    return nodes, weights, shapes, shapes, [f"u{place}" for place in range(11)]


def model():
    nodes, weights, sizes, shapes, outputs = [], [], {}, {}, []
    for made in (layer(), images(), others()):
        nodes, weights, outputs = nodes + made[0], weights + made[1], outputs + made[4]
        sizes |= made[2]
        shapes |= made[3]
    kinds = {"b": TensorProto.UINT8, "u9": TensorProto.INT32}
    ends = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shapes.get(name))
        for name in (*shapes, *outputs)
    ]
    graph = helper.make_graph(nodes, "machines", ends[: len(shapes)], ends[len(shapes) :], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), sizes


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled, with inputs, and with the bits of one thread in `wanted.npz`, which are right."""
    folder = tmp_path_factory.mktemp("machines")
    proto, sizes = model()
    feeds = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    feeds["b"] = RNG.integers(0, 255, sizes["b"], np.uint8)
    np.savez(folder / "feeds.npz", **feeds)
    config = Config.from_env().with_(log="quiet")
    result = compile_to(proto, folder / "artifact", Options(force=True, verify=False), config)
    assert not result.plan.fallbacks
    assert result.generated is not None
    kernels = [kernel for entry in result.generated.source.entries for kernel in entry.kernels]
    assert {kernel.form for kernel in kernels} >= FORMS
    assert any(kernel.kind == "window" and not kernel.launcher for kernel in kernels)  # a stage of tile fusion
    run(folder, "l2=1048576", (1, 2))
    found = [array for _, array in sorted(np.load(folder / "wanted.npz").items(), key=lambda one: int(one[0][4:]))]
    stock = InferenceSession(proto.SerializeToString()).run(None, feeds)
    for array, right in zip(found, stock, strict=True):
        exact = right.astype(np.float64)
        allowed = 1e-5 * (np.abs(exact) + np.sqrt(np.mean(exact**2))) if right.dtype.kind == "f" else 0
        assert array.shape == right.shape and np.all(np.abs(array - exact) <= allowed)
    return folder


def run(artifact: Path, machine: str, threads: tuple[int, ...]) -> None:
    """The same bits as before; the first run says which."""
    wanted = artifact / "wanted.npz"
    known = ["known"] if wanted.is_file() else []
    command = [sys.executable, "-c", RUN, str(artifact / "artifact"), str(artifact / "feeds.npz"), str(wanted)]
    environment = {**os.environ, "SMELT_MACHINE": machine}
    made = subprocess.run(
        [*command, ",".join(map(str, threads)), *known], env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, (machine, made.stderr)


def within_bounds(program: str, *arguments: str, **variables: str) -> None:
    """In a process whose libraries check every access to memory."""
    environment = child_environment(bounds_environment(find_compiler(Config.from_env())))
    made = subprocess.run(
        [sys.executable, "-c", program, *arguments], env={**environment, **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert made.returncode == 0, (variables, made.stdout[-2000:] + made.stderr[-4000:])


@pytest.mark.parametrize("machine", [MACHINES[1], MACHINES[4], MACHINES[8]])
def test_bits_do_not_depend_on_threads_or_caches(artifact: Path, machine: str) -> None:
    run(artifact, machine, (3, 8))


@pytest.mark.full
@pytest.mark.parametrize("machine", MACHINES)
def test_bits_are_the_same_with_any_number_of_threads(artifact: Path, machine: str) -> None:
    run(artifact, machine, THREADS)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="libraries that check bounds need gcc")
def test_no_machine_makes_kernels_leave_their_memory(artifact: Path, tmp_path: Path) -> None:
    """Memory is planned when code is generated, block sizes when it is loaded."""
    proto, _ = model()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    within_bounds(COMPILE, str(tmp_path / "model.onnx"), str(tmp_path / "artifact"))
    for machine in MACHINES:
        within_bounds(FEED, str(tmp_path / "artifact"), str(artifact / "feeds.npz"), SMELT_MACHINE=machine)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="libraries that check bounds need gcc")
def test_steps_of_a_recurrent_layer_keep_to_their_memory_on_a_machine_of_large_caches(tmp_path: Path) -> None:
    """A span of steps has the products of its inputs in scratch memory, and is as long as the machine's L2 allows."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [400, 1, 16][:n]) for name, n in (("x", 3), ("y", 0))
    ]
    values[1].type.tensor_type.ClearField("shape")
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=64)
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weight("w", 1, 256, 16), weight("r", 1, 256, 64)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "feeds.npz", x=RNG.standard_normal((400, 1, 16)).astype(np.float32))
    within_bounds(COMPILE, str(tmp_path / "model.onnx"), str(tmp_path / "artifact"))
    for machine in ("l2=1048576", "l2=4194304"):
        within_bounds(FEED, str(tmp_path / "artifact"), str(tmp_path / "feeds.npz"), SMELT_MACHINE=machine)


def test_a_machine_that_cannot_be_read_is_refused_when_the_library_is_loaded(artifact: Path) -> None:
    program = f"from smelt.runtime import Executable; Executable.open({str(artifact / 'artifact')!r})"
    environment = {**os.environ, "SMELT_MACHINE": "l2=1,cores=4"}
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert made.returncode != 0 and "SMELT_MACHINE" in made.stderr and "l1, l2, l3, processors, threads" in made.stderr
