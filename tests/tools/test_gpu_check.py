"""The report of `make gpu-check`: what it says without a GPU, and that its comparisons compute the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import smelt

SCRIPT = Path(__file__).parents[2] / "tools" / "gpu_check.py"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_a_machine_without_a_gpu_gets_a_report_that_says_so(tmp_path: Path):
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("there is a CUDA provider here")
    report = tmp_path / "deep" / "report.txt"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), "--report", str(report)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    head, line = report.read_text().splitlines()
    assert head.startswith("smelt gpu-check, onnxruntime ")
    assert line.startswith("FAIL  onnxruntime has no CUDAExecutionProvider")


@pytest.mark.parametrize("name", list(loaded().MODELS))
def test_inductor_is_given_what_the_model_computes(name: str):
    torch = pytest.importorskip("torch")
    script = loaded()
    text = f'<ir_version: 10, opset_import: ["" : {script.OPSET}]> g {script.MODELS[name]}'
    session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    given = {i.name: script._random(i.shape, 5) for i in session.get_inputs()}
    wanted = session.run(None, given)[0]
    found = script.torch_function(name)(*(torch.from_numpy(array) for array in given.values()))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_weights_of_4_bits_mean_what_the_provider_computes():
    case = loaded().weights_of_4_bits()
    x = np.random.default_rng(1).standard_normal((7, 512)).astype(np.float32)
    session = onnxruntime.InferenceSession(case.model.SerializeToString())
    np.testing.assert_allclose(session.run(None, {"x": x})[0], case.reference({"x": x}), rtol=1e-4, atol=1e-4)


def test_a_users_kernel_is_among_the_cases():
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    script = loaded()
    try:
        case = script.users_kernel()
        assert [node.domain for node in case.model.graph.node] == ["", "example"]
        x = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)
        np.testing.assert_allclose(case.reference({"x": x}).sum(-1), 1)
    finally:
        smelt.forget_kernel("example::Softmax")


def test_torch_compile_is_judged_by_double_precision():
    pytest.importorskip("torch")
    script = loaded()
    line, right = script.torch_checked("layer norm", device="cpu")
    assert right and line.startswith("ok    torch.compile, layer norm: error "), line
    line, right = script.torch_checked("layer norm", device="meta")
    assert not right and line.startswith("FAIL  torch.compile, layer norm: "), line
