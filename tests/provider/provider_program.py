"""Programs that load the provider, and small models for them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packages" / "onnxruntime-ep-smelt"
CHILD = Path(__file__).parent / "session_child.py"


def setup_module_of_package() -> Any:
    spec = importlib.util.spec_from_file_location("provider_setup", PACKAGE / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Program:
    """Programs with one cache folder and one library."""

    library: Path
    cache: Path
    folder: Path
    python: list[str] = field(default_factory=lambda: [sys.executable])

    def options(self, **more: str) -> dict[str, str]:
        return {"cache_dir": str(self.cache), "python": sys.executable, "time_limit": "250", **more}

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SMELT_LEVELS": "v3", "SMELT_TIMING": "0", **more}

    def __call__(self, *steps: dict[str, Any], **variables: str) -> tuple[list[Any], str]:
        """What each step gave, and what was logged."""
        filled = [{"options": self.options(), "profile": str(self.folder / "profile"), **step} for step in steps]
        task = json.dumps({"library": str(self.library), "steps": filled})
        done = subprocess.run(
            [*self.python, str(CHILD), task],
            capture_output=True, text=True, check=False, env=self.environment(**variables), timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        said, _, last = done.stdout.rstrip().rpartition("\n")  # stock prints, too
        return json.loads(last)["answers"], said + done.stderr


def rows(seed: int = 0, width: int = 512) -> onnx.ModelProto:
    """A chain over rows, which compiles fast. One weight is large enough to lie apart from the model, one is not."""
    rng = np.random.default_rng(seed)
    arrays = {"w": rng.standard_normal(width), "b": rng.standard_normal(1)}
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"], axis=-1),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in "xy")
    graph = helper.make_graph(nodes, "rows", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
