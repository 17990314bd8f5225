"""Every Python example runs by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))
NEED_TORCH = {"bert", "generate", "gpt2_with_past", "unet_block"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_example_runs(path):
    if path.stem in NEED_TORCH:
        for package in ("torch", "transformers", "onnxscript"):
            pytest.importorskip(package)
    if path.stem.startswith("batch"):
        pytest.importorskip("pyarrow")
    if path.stem.startswith("eager") or path.stem == "own_triton_kernel":
        pytest.importorskip("torch")
    if path.stem in ("gpu_artifact", "own_triton_kernel"):
        pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


def test_there_are_examples_of_every_kind():
    names = {path.stem for path in EXAMPLES}
    assert names >= {"own_kernels", "own_triton_kernel", "mlp", "bert", "gpt2_with_past", "n_exp", "unet_block"}
