"""ONNX Runtime's own machine-independent optimizer, as an optional pre-pass.

Input: a path to a model, and one to write. Output: the model as ONNX Runtime's EXTENDED level leaves it. Invariant: the
level is never higher, because layouts chosen there are those of this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast


def ort_preoptimize(source: Path, target: Path) -> None:
    """Write the optimized model to `target`; large tensors go to a file beside it."""
    import onnxruntime as ort  # only this optional pass needs it, and it loads a large library

    options = cast(Any, ort).SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", target.name + ".data")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1048576")
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
