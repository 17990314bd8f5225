"""One artifact for a GPU and for the CPU: Triton kernels beside C kernels of the same ops.

Where onnxruntime has the CUDA provider the GPU's kernels run, elsewhere the CPU's. Needs the extra `triton` to compile.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import smelt

GRAPH = (
    "(float[n,256] x, float[256] b) => (float[n,256] y) { a = Add(x, b) s = Sigmoid(a) c = Mul(a, s) y = Softmax(c) }"
)

model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {GRAPH}')
with tempfile.TemporaryDirectory() as folder:
    artifact = Path(folder) / "artifact"
    made = smelt.compile(model, device="cuda", output=artifact, force=True)
    library = next(artifact.glob("smelt_*.so"))
    print(
        f"{made.coverage.in_kernels} of {made.coverage.nodes} nodes in kernels, {library.stat().st_size / 1e6:.1f} MB"
    )

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
    providers = [name for name in wanted if name in onnxruntime.get_available_providers()]
    session = onnxruntime.InferenceSession(str(artifact / "model.onnx"), options, providers=providers)
    x = np.random.default_rng(0).standard_normal((8, 256)).astype(np.float32)
    y = session.run(None, {"x": x, "b": np.zeros(256, np.float32)})[0]
    print(f"ran with {providers[0]}; rows sum to {y.sum(-1).min():.6f} .. {y.sum(-1).max():.6f}")
    made.close()
