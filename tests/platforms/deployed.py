"""Run where smelt is not: needs numpy and onnxruntime alone.

argv: a folder with one folder per case: artifact/, and calls/*.npz with inputs and expected outputs. Prints one line of
JSON. Invariant: the artifact is loaded as a deployment does it, by its manifest and `register_custom_ops_library`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort


def session(artifact: Path) -> ort.InferenceSession:
    manifest = json.loads((artifact / "manifest.json").read_text())
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    options.register_custom_ops_library(str(artifact / manifest["library"]["file"]))
    return ort.InferenceSession(str(artifact / manifest["model"]["file"]), options, providers=["CPUExecutionProvider"])


def error(made: np.ndarray, wanted: np.ndarray) -> float:
    assert made.shape == wanted.shape and made.dtype == wanted.dtype, (made.shape, wanted.shape)
    if not wanted.size:
        return 0.0
    exact = wanted.astype(np.float64)
    return float(np.max(np.abs(made - exact) / (np.abs(exact) + np.sqrt(np.mean(exact**2)))))


worst = 0.0
for case in sorted(Path(sys.argv[1]).iterdir()):
    live = session(case / "artifact")
    for call in sorted((case / "calls").glob("*.npz")):
        arrays = dict(np.load(call))
        wanted = arrays.pop("expected_y")
        worst = max(worst, error(live.run(["y"], arrays)[0], wanted))
present = [name for name in ("smelt", "torch", "onnx") if name in sys.modules]
print(json.dumps({"ort": ort.__version__, "error": worst, "present": present}))
