"""Triton kernels of users: through ONNX models, by the mock driver and Triton's interpreter."""

from __future__ import annotations

import os
import random as random_number
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import user_triton as own
from mock_driver import Mock, mock_library
from onnx import TensorProto, helper

import smelt
from smelt.base.errors import KernelError
from smelt.codegen.triton import binaries
from smelt.codegen.triton.backend import CudaBackend, TritonRegionCode
from smelt.codegen.triton.kernel import TARGETS

torch = pytest.importorskip("torch")
NAMES = ("Softmax", "Twice", "Split", "Doubled", "Op")


@pytest.fixture(autouse=True)
def one_target(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:1])
    yield
    for name in NAMES:
        smelt.forget_kernel(f"my.domain::{name}")


@pytest.fixture
def mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock(mock_library(tmp_path))
    monkeypatch.setenv("SMELT_CUDA_LIBRARY", str(made.path))
    return made


def model(op: str, shape: Any, dtype: int = TensorProto.FLOAT, results: Any = None, **attributes: Any) -> Any:
    """The op between two of ONNX's own, where it gives what it takes."""
    results = results or [(dtype, shape)]
    plain = len(results) == 1 and results[0][0] == dtype
    names = ["o"] if plain else [f"y{n}" for n in range(len(results))]
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node(op, ["n"], names, domain="my.domain", **attributes),
    ]
    if plain:
        nodes.append(helper.make_node("Abs", ["o"], ["y"]))
    outputs = [helper.make_tensor_value_info("y" if plain else f"y{n}", *one) for n, one in enumerate(results)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", dtype, shape)], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compiled(proto: Any, folder: Path, **options: Any) -> Any:
    return smelt.compile(proto, device="cuda", levels="v2", output=folder, force=True, threads=1, **options)


def on_gpu(made: Any, folder: Path, mock: Mock, x: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the artifact gives where the mock driver runs its launches."""
    codes = [code for code in made.result.generated.codes if isinstance(code, TritonRegionCode)]
    mock.interpret({k.name: k for code in codes for k in code.device.kernels})
    monkeypatch.setenv("SMELT_DEVICE_STAND_IN", "cuda")
    options = onnxruntime.SessionOptions()
    copy = folder.parent / f"{folder.name}.so"
    copy.write_bytes(next(folder.glob("smelt_*.so")).read_bytes())
    options.register_custom_ops_library(str(copy))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    out = session.run(None, {"x": x})
    assert not mock.errors, mock.errors
    return out


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("c", [own.SOFTMAX_C, ""], ids=["with C", "alone"])
def test_a_softmax_runs_on_a_gpu_and_with_c_text_on_the_cpu(
    c: str, mock: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    smelt.kernel("my.domain::Softmax", c, triton=own.softmax, reference=own.softmax_reference)
    x = random(5, 33)
    wanted = own.softmax_reference(-x.astype("d"), 2.0)
    with compiled(model("Softmax", ["n", 33], scale=2.0), tmp_path / "a") as made:
        assert made.coverage.in_kernels == 3
        assert any("Triton code of my.domain::Softmax was verified" in note for note in made.result.findings.notes)
        if c:
            np.testing.assert_allclose(made.run({"x": x})[0], wanted, rtol=2e-6)
        else:
            with pytest.raises(Exception, match=r"my.domain::Softmax: this kernel is for a GPU alone"):
                made.run({"x": x})
        for rows in (5, 1, 0):
            out = on_gpu(made, tmp_path / "a", mock, x[:rows], monkeypatch)
            np.testing.assert_allclose(out[0], wanted[:rows], rtol=2e-6)


@pytest.mark.parametrize(("name", "onnx_type"), [("float16", TensorProto.FLOAT16), ("bfloat16", TensorProto.BFLOAT16)])
def test_a_kernel_takes_the_types_that_the_model_has(name: str, onnx_type: int, tmp_path: Path):
    smelt.kernel("my.domain::Softmax", triton=own.softmax, reference=own.softmax_reference)
    with compiled(model("Softmax", ["n", 20], onnx_type), tmp_path / "a") as made:
        kinds = [k.signature for code in made.result.generated.codes for k in code.device.kernels if k.user]
        notes = " ".join(made.result.findings.notes)
    assert {"float16": "*fp16", "bfloat16": "*bf16"}[name] in kinds[0].values() and "was verified" in notes


def test_several_launches_share_memory_and_have_grids_of_their_own(
    mock: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    smelt.kernel("my.domain::Twice", triton=own.transposed_twice, reference=lambda x: x + 2)
    x = random(37, 21)
    with compiled(model("Twice", ["n", "m"]), tmp_path / "a") as made:
        out = on_gpu(made, tmp_path / "a", mock, x, monkeypatch)
    np.testing.assert_array_equal(out[0], np.abs((-x + 1) + 1))
    grids = [line.split(" grid ")[1].split()[0] for line in mock.calls("cuLaunchKernel") if "tile_kernel" in line]
    assert grids == ["2x3x1", "3x2x1"]


def test_results_of_other_types_and_constants_that_are_types(
    mock: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    smelt.kernel("my.domain::Split", triton=own.split, reference=lambda x: (x > 0, np.trunc(x).astype(np.int32)))
    x = random(9, 40) * 10
    results = [(TensorProto.BOOL, ["n", 40]), (TensorProto.INT32, ["n", 40])]
    with compiled(model("Split", ["n", 40], results=results), tmp_path / "a") as made:
        top, bottom = on_gpu(made, tmp_path / "a", mock, x, monkeypatch)
    np.testing.assert_array_equal(top, -x > 0)
    np.testing.assert_array_equal(bottom, np.trunc(-x).astype(np.int32))


def test_the_first_configuration_of_an_autotuned_kernel_is_taken(tmp_path: Path):
    smelt.kernel("my.domain::Doubled", triton=own.doubled, reference=lambda x: x * 2)
    with compiled(model("Doubled", ["n", 40]), tmp_path / "a") as made:
        [kernel] = [k for code in made.result.generated.codes for k in code.device.kernels if k.user]
    assert kernel.configs[0].constants == (("BLOCK", 64),) and kernel.configs[0].warps == 2


def test_a_heuristic_that_every_size_decides_alike_is_a_constant(tmp_path: Path):
    smelt.kernel("my.domain::Op", triton=own.evenly(64), reference=lambda x: x)
    with compiled(model("Op", ["n", 64]), tmp_path / "a") as made:
        [kernel] = [k for code in made.result.generated.codes for k in code.device.kernels if k.user]
    assert dict(kernel.configs[0].constants)["EVEN"] is True


def test_without_a_device_a_kernel_of_triton_alone_is_refused(tmp_path: Path):
    smelt.kernel("my.domain::Softmax", triton=own.softmax, reference=own.softmax_reference)
    with pytest.raises(KernelError, match=r"my.domain::Softmax .*a Triton function alone: compile for a GPU"):
        smelt.compile(model("Softmax", ["n", 33]), tmp_path / "a")
    assert not (tmp_path / "a").exists()


WRONG = {
    "differs": (own.doubled, lambda x: x * 3, "differs from its reference"),
    "writes beyond": (own.launching(own.beyond_kernel), lambda x: x, "memory outside of result 0 is written"),
    "reads beyond": (own.launching(own.read_beyond_kernel), lambda x: np.roll(x, -1), "differs from its reference"),
    "writes an operand": (own.launching(own.over_kernel), lambda x: x, "operand 0 is written"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_an_error_and_nothing_is_written(what: str, tmp_path: Path):
    launcher, reference, said = WRONG[what]
    smelt.kernel("my.domain::Op", triton=launcher, reference=lambda x: reference(x))
    with pytest.raises(KernelError, match=said) as found:
        compiled(model("Op", [5, 8]), tmp_path / "a")
    assert "my.domain::Op" in str(found.value) and not (tmp_path / "a").exists()


def test_text_that_does_not_compile_is_told_with_the_users_file_and_line(tmp_path: Path):
    smelt.kernel("my.domain::Op", triton=own.launching(own.broken_kernel), reference=lambda x: x)
    lines = Path(own.__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "no_such_function" in text)
    with pytest.raises(KernelError, match=rf"user_triton.py:{line}: Triton does not compile it") as found:
        compiled(model("Op", [5, 8]), tmp_path / "a")
    assert "no_such_function" in str(found.value)


def _branching(x: Any) -> Any:
    y = torch.empty_like(x)
    kernel = own.over_kernel if x.shape[0] > 100 else own.beyond_kernel
    kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y


def _by_size(x: Any) -> Any:
    y = torch.empty_like(x)
    own.beyond_kernel[(1,)](x, y, x.numel(), BLOCK=x.shape[0])
    return y


def _by_chance(x: Any) -> Any:
    return own.softmax(x, scale=random_number.random())


def _raising(x: Any) -> Any:
    raise RuntimeError("not today")


def _next_power(x: Any) -> Any:
    y = torch.empty_like(x)
    own.beyond_kernel[(1,)](x, y, x.numel(), BLOCK=own.triton.next_power_of_2(x.shape[0]))
    return y


REFUSED = {
    "a power of a size": (_next_power, "the constant BLOCK depends on a size that the model leaves open"),
    "a heuristic": (own.evenly(33), "the constant EVEN depends on a size that the model leaves open"),
    "a torch op": (lambda x: own.softmax(x + 1), "the torch op add is neither an allocation"),
    "a branch": (_branching, "decides by a size that the model leaves open"),
    "a constant": (_by_size, "the constant BLOCK depends on a size that the model leaves open"),
    "an exception": (_raising, "launcher raised RuntimeError: not today"),
    "chance": (_by_chance, "gives other launches each time"),
    "nothing": (lambda x: torch.empty_like(x), "launches nothing"),
    "its operand": (lambda x: (own.softmax(x), x)[1], "a result is not a tensor of its own"),
    "a global": (own.launching(own.number_kernel), "NUMBER is a global number"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_launcher_that_cannot_be_taken_is_told(what: str, tmp_path: Path):
    launcher, said = REFUSED[what]
    smelt.kernel("my.domain::Op", triton=launcher, reference=lambda x: x)
    with pytest.raises(KernelError, match=said):
        compiled(model("Op", ["n", 8]), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_kernel_that_asks_for_too_much_is_left_out_of_that_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:2])
    monkeypatch.setitem(binaries.MOST_SHARED, "sm_86", -1)
    smelt.kernel("my.domain::Doubled", triton=own.doubled, reference=lambda x: x * 2)
    proto = model("Doubled", ["n", 40])
    del proto.graph.node[2], proto.graph.node[0]
    proto.graph.node[0].input[0], proto.graph.node[0].output[0] = "x", "y"
    with compiled(proto, tmp_path / "a") as made:
        unit = next(u for u in made.result.generated.source.units if "smelt_user" in u.name)
    assert "SMELT_CUBIN, 80" in unit.text and "SMELT_CUBIN, 86" not in unit.text
    monkeypatch.setitem(binaries.MOST_SHARED, "sm_80", -1)
    with pytest.raises(KernelError, match=r"my.domain::Doubled fits no target: the kernel needs 0 bytes"):
        compiled(proto, tmp_path / "b")


def test_an_op_with_neither_c_nor_triton_is_an_error():
    with pytest.raises(KernelError, match="neither C text nor a Triton launcher"):
        smelt.kernel("my.domain::Op", reference=lambda x: x)


OF_TORCH = """
import sys
import torch, triton
import smelt
import user_triton as own
from smelt.codegen.triton.backend import CudaBackend

CudaBackend.targets = CudaBackend.targets[:1]

@torch.library.triton_op("smelt_test::triton_softmax", mutates_args={})
def op(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    y = torch.empty_like(x)
    n = x.shape[-1]
    torch.library.wrap_triton(own.softmax_kernel)[(x.numel() // n,)](x, y, n, scale, BLOCK=triton.next_power_of_2(n))
    return y

op.register_kernel("cpu")(lambda x, scale=1.0: torch.softmax(x * scale, -1))
smelt.kernel("smelt_test::triton_softmax")
function = lambda x: torch.ops.smelt_test.triton_softmax(-x, 2.0)
exported = smelt.export(function, (torch.randn(5, 33),), dynamic_shapes=({0: "n"},))
exported.save(sys.argv[1] + "/model.onnx")
made = smelt.compile(sys.argv[1] + "/model.onnx", sys.argv[1] + "/a", device="cuda", levels="v2", force=True)
print(made.coverage.in_kernels, made.coverage.nodes, *made.result.findings.notes)
"""


def test_an_op_of_torchs_triton_library_is_taken_as_it_is(tmp_path: Path):
    """In a process of its own: torch traces no kernels that Triton's interpreter runs."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    env = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": paths}
    command = [sys.executable, "-W", "ignore", "-c", OF_TORCH, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 2 The Triton code of smelt_test::triton_softmax was verified"), done.stdout


def test_a_triton_op_without_a_function_for_the_cpu_needs_a_reference():
    @torch.library.triton_op("smelt_test::no_reference", mutates_args={})
    def op(x: torch.Tensor) -> torch.Tensor:
        return own.softmax(x)

    with pytest.raises(KernelError, match="no function in Python for a CPU") as found:
        smelt.kernel("smelt_test::no_reference")
    assert "reference=function" in found.value.hint and op is not None
