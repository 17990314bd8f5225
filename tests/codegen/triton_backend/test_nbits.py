"""MatMulNBits in Triton kernels: few rows and many, every number of bits, zero points, biases, odd sizes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from mock_driver import Mock, mock_library
from onnx import TensorProto, helper, numpy_helper
from simulate import Simulated, captured

import smelt
from smelt.base.config import Config as Knobs
from smelt.codegen.triton.backend import CudaBackend, TritonRegionCode
from smelt.codegen.triton.binaries import Binaries, Job
from smelt.codegen.triton.kernel import TARGETS
from smelt.ops.block_quantized import node_reference

FORMS = [
    (bits, block, zeros, level)
    for bits, block, (zeros, level) in product((2, 4, 8), (16, 32, 128), (("", 0), ("u8", 0), ("f32", 0), ("u8", 4)))
]
DEPTH, COLUMNS = 70, 37


def operands(bits: int, block: int, zeros: str, dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng(bits * block)
    blocks = -(-DEPTH // block)
    made = {
        "w": rng.integers(0, 256, (COLUMNS, blocks, block * bits // 8)).astype(np.uint8),
        "s": (rng.random(COLUMNS * blocks) / 8 + 0.01).astype(dtype),
    }
    if zeros == "u8":
        made["z"] = rng.integers(0, 256, COLUMNS * -(-blocks * bits // 8)).astype(np.uint8)
    if zeros == "f32":
        made["z"] = (rng.random(COLUMNS * blocks) * 3).astype(dtype)
    return made


def model(bits: int, block: int, zeros: str, level: int, *, bias: bool = True, dtype: Any = np.float32) -> Any:
    constants = operands(bits, block, zeros, dtype)
    if bias:
        constants["b"] = np.linspace(-1, 1, COLUMNS).astype(dtype)
    names = ["x", "w", "s", "z" if zeros else "", "", "b" if bias else ""]
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=DEPTH, N=COLUMNS, bits=bits, block_size=block,
        accuracy_level=level,
    )  # fmt: skip
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.FLOAT16
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, ["rows", DEPTH])],
        [helper.make_tensor_value_info("y", kind, ["rows", COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), constants


def expected(x: Any, constants: Any, bits: int, block: int, level: int) -> Any:
    wide = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in constants.items()}
    return node_reference(
        x.astype(np.float64) if level == 0 else x, wide["w"], wide["s"], wide.get("z"), None, wide.get("b"),
        block_size=block, bits=bits, accuracy_level=level, K=DEPTH, N=COLUMNS,
    )  # fmt: skip


@pytest.mark.parametrize(("bits", "block", "zeros", "level"), FORMS)
def test_every_form_is_right_for_few_rows_and_for_many(bits: int, block: int, zeros: str, level: int):
    proto, constants = model(bits, block, zeros, level)
    made = captured(proto)
    assert not made.plan.fallbacks
    region = Simulated(made.plan.regions[0], made.facts, made.model.graph.inputs)
    assert {k.configs[0].function for k in region.kernels} == {"nbits_gemv", "nbits_gemm"}
    given = {v: np.asarray(v.const_value.numpy()) for v in made.model.graph.initializers.values()}
    for rows in (0, 1, 8, 9, 40):
        x = np.random.default_rng(rows).standard_normal((rows, DEPTH)).astype(np.float32)
        found = region.run(given | {made.model.graph.inputs[0]: x})[made.model.graph.outputs[0]]
        wanted = expected(x, constants, bits, block, level)
        assert found.shape == wanted.shape
        if rows:
            assert np.abs(found - wanted).max() <= 2e-6 * np.sqrt(np.mean(wanted**2)) + 2e-6 * np.abs(wanted).max()


def test_the_types_of_the_model_are_read_as_they_are():
    proto, _ = model(4, 32, "f32", 0, dtype=np.float16)
    made = captured(proto)
    region = Simulated(made.plan.regions[0], made.facts, made.model.graph.inputs)
    signature = next(k.signature for k in region.kernels if k.configs[0].function == "nbits_gemv")
    assert {name: signature[name] for name in ("a", "weights", "scales", "zeros", "bias")} == {
        "a": "*fp16", "weights": "*u8", "scales": "*fp16", "zeros": "*fp16", "bias": "*fp16"
    }  # fmt: skip


@pytest.mark.full
def test_both_kernels_compile_for_every_target(tmp_path: Path):
    made = captured(model(4, 32, "u8", 4)[0])
    kernels = Simulated(made.plan.regions[0], made.facts, made.model.graph.inputs).kernels
    binaries = Binaries(Knobs.from_env().with_(cache_dir=tmp_path))
    found = binaries.make([Job(k, c, t) for k in kernels for c in k.configs for t in TARGETS])
    assert not [f"{job.target.name}: {binary}" for job, binary in found.items() if isinstance(binary, str)]


def test_one_artifact_has_the_cpus_packed_weights_and_the_gpus_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:1])
    proto, constants = model(4, 32, "u8", 0)
    with smelt.compile(proto, device="cuda", levels="v2", output=tmp_path / "a", force=True, threads=1) as made:
        assert made.coverage.in_kernels == 1
        codes = [code for code in made.result.generated.codes if isinstance(code, TritonRegionCode)]
        mock = Mock(mock_library(tmp_path))
        mock.interpret({k.name: k for code in codes for k in code.device.kernels})
        monkeypatch.setenv("SMELT_CUDA_LIBRARY", str(mock.path))
        x = np.random.default_rng(0).standard_normal((5, DEPTH)).astype(np.float32)
        wanted = expected(x, constants, 4, 32, 0)
        np.testing.assert_allclose(made.run({"x": x})[0], wanted, rtol=1e-4, atol=1e-4)
        monkeypatch.setenv("SMELT_DEVICE_STAND_IN", "cuda")
        options = onnxruntime.SessionOptions()
        (tmp_path / "copy.so").write_bytes(next((tmp_path / "a").glob("smelt_*.so")).read_bytes())
        options.register_custom_ops_library(str(tmp_path / "copy.so"))
        session = onnxruntime.InferenceSession(str(tmp_path / "a" / "model.onnx"), options)
        found = session.run(None, {"x": x})[0]
    assert not mock.errors, mock.errors
    assert [line.split()[1] for line in mock.calls("cuLaunchKernel")] == ["nbits_gemv"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
