"""Artifacts to be run elsewhere, with calls and what stock ONNX Runtime gives for them.

Input: a folder and options of `smelt.compile`. Output: <folder>/<case>/artifact and <folder>/<case>/calls/*.npz, as
deployed.py reads them. Invariant: a cache of its own lies beside the folder, and the user's is not touched.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime as ort
import platform_models

import smelt
from smelt.base import Config

HERE = Path(__file__).parent
MODELS = {"encoder": platform_models.encoder, "micro": platform_models.micro}


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=280, **options)


def make_cases(root: Path, **options: object) -> Path:
    """<root>/<case>/artifact and <root>/<case>/calls/*.npz, as deployed.py reads them."""
    environment = {key: str(value) for key, value in options.pop("environment", {}).items()}
    config = Config.from_env(
        {"PATH": os.environ["PATH"], "SMELT_CACHE_DIR": str(root.parent / "cache"), "SMELT_STRICT": "1", **environment}
    )
    for name, build in MODELS.items():
        proto = build()
        with smelt.compile(proto, root / name / "artifact", config=config, force=True, verify=False, **options) as made:
            assert made.coverage.in_kernels > 0.9 * made.coverage.nodes, made.explain()
        write_calls(root / name / "calls", name, proto.SerializeToString())
    return root


def write_calls(folder: Path, name: str, proto: bytes) -> None:
    folder.mkdir()
    stock = ort.InferenceSession(proto, providers=["CPUExecutionProvider"])
    for number, feeds in enumerate(platform_models.feeds(name)):
        np.savez(folder / f"{number}.npz", expected_y=stock.run(["y"], feeds)[0], **feeds)
