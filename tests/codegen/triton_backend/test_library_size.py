"""One library for every target: small enough to ship, and right on a machine that has no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import smelt
from smelt.base import Config
from smelt.bench import zoo
from smelt.codegen.triton.backend import CudaBackend
from smelt.codegen.triton.kernel import TARGETS

MOST_BYTES = 5_000_000


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_distilbert_for_all_targets_is_small_and_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(CudaBackend, "targets", TARGETS)
    model = zoo.export("distilbert", Config.from_env())
    smelt.compile(model, tmp_path / "out", device="cuda", levels=("v2", "v3", "v4"), force=True).close()
    library = next((tmp_path / "out").glob("smelt_*.so"))
    assert library.stat().st_size < MOST_BYTES
    for target in ("gfx942", "gfx1100", "sm_80", "sm_120"):
        assert target.encode() in library.read_bytes()
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = ort.InferenceSession(str(tmp_path / "out" / "model.onnx"), options, providers=["CPUExecutionProvider"])
    stock = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for batch, length in ((1, 1), (2, 37), (1, 300)):
        given = zoo.feeds("distilbert", batch, length)
        for found, wanted in zip(session.run(None, given), stock.run(None, given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
