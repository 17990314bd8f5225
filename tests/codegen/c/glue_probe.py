"""Run by test_glue.py under other ONNX Runtime releases and CPUs: needs numpy and onnxruntime alone.

argv: custom-op library, folder with {add,gather,many,scratch,level}.onnx. Prints one line of JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

library, folder = sys.argv[1], Path(sys.argv[2])


def run(name: str, feeds: dict) -> list:
    options = ort.SessionOptions()
    options.register_custom_ops_library(library)
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    return ort.InferenceSession(str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )


def failure(name: str, feeds: dict) -> str:
    try:
        run(name, feeds)
    except Exception as error:
        return str(error)
    return ""


a = np.arange(3000, dtype=np.float32).reshape(3, 10, 100)
for shape in ((3, 10, 100), (), (0, 4), (1,)):
    x = np.resize(a, shape).astype(np.float32)
    (y,) = run("add", {"a": x, "b": x})
    assert y.shape == shape and np.array_equal(y, x + x), shape
many = {f"a{i}": np.full((i % 3, 2, 1), i, np.float32) for i in range(100)}
for i, value in enumerate(run("many", many)):
    assert np.array_equal(value, many[f"a{99 - i}"])
(good,) = run("scratch", {"a": np.array([10, 0, 100_000, 5_000_000, 64], np.int64)})
assert good == 5
text = failure("add", {"a": a, "b": a[:, :9]})
assert "smelt region add: input 1 has shape [3,9,100]: axis 1 has size 9, expected 10" in text, text
text = failure("gather", {"a": a[0, 0, :5], "b": np.array([0, 7], np.int64)})
assert "index 7 out of range for an axis of size 5" in text, text
print(json.dumps({"ort": ort.__version__, "level": int(run("level", {})[0])}))
