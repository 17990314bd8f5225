"""A program that loads the provider: reads steps as JSON from its first argument, prints what each gave.

Runs with nothing but onnxruntime and numpy, whatever their release.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

NAME = "SmeltExecutionProvider"


def options(step: dict) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.log_severity_level = step.get("log", 2)
    made.intra_op_num_threads = step.get("intra", 0)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    made.add_provider_for_devices(devices, step.get("options", {}))
    for key, value in step.get("config", {}).items():
        made.add_session_config_entry(key, value)
    return made


def feeds_of(session: ort.InferenceSession, size: int) -> dict[str, np.ndarray]:
    feeds = {}
    for index, value in enumerate(session.get_inputs()):
        shape = [dim if isinstance(dim, int) else size for dim in value.shape]
        numbers = np.random.default_rng(size + index).standard_normal(shape)
        types = {"tensor(bool)": bool, "tensor(string)": str}
        feeds[value.name] = (numbers > 0).astype(types[value.type]) if value.type in types else np.float32(numbers)
    return feeds


def distance(answer: np.ndarray, expected: np.ndarray) -> float:
    if answer.dtype.kind not in "fiub":
        return float(not np.array_equal(answer, expected))
    return float(np.abs(answer - expected).max(initial=0))


def run(step: dict) -> dict:
    model = Path(step["model"]).read_bytes() if step.get("bytes") else step["model"]
    if "list" in step:  # by name, as from 1.25 on
        session = ort.InferenceSession(model, providers=[NAME, "CPUExecutionProvider"])
    else:
        session = ort.InferenceSession(model, options(step))
    stock = ort.InferenceSession(step.get("stock", step["model"]), providers=["CPUExecutionProvider"])
    errors, same = [], True
    for size in step.get("sizes", [3, 3, 1, 5, 3]):
        feeds = feeds_of(stock, size)
        given = dict(zip([value.name for value in session.get_inputs()], feeds.values(), strict=True))
        answers, expected = session.run(None, given), stock.run(None, feeds)
        same &= [a.shape for a in answers] == [e.shape for e in expected]
        errors += [distance(a, e) for a, e in zip(answers, expected, strict=True)]
    return {"error": max(errors), "same_shapes": same, "claimed": claimed(step, model)}


def claimed(step: dict, model: object) -> bool:
    """Whether the provider has the graph: a profile names who ran each node."""
    made = options(step)
    made.enable_profiling = True
    made.profile_file_prefix = step["profile"]
    session = ort.InferenceSession(model, made)
    session.run(None, feeds_of(session, 2))
    events = json.loads(Path(session.end_profiling()).read_text())
    return any(event.get("args", {}).get("provider") == NAME for event in events)


def compile_to(step: dict) -> list[str]:
    maker = ort.ModelCompiler(options(step), step["model"], embed_compiled_data_into_model=step.get("embed", False))
    maker.compile_to_file(step["to"])
    return sorted(os.listdir(Path(step["to"]).parent))


def main() -> None:
    task = json.loads(sys.argv[1])
    ort.register_execution_provider_library("smelt", task["library"])
    answers = []
    for step in task["steps"]:
        try:
            answers.append({"run": run, "compile": compile_to}[step["do"]](step))
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"ort": ort.__version__, "answers": answers}))


if __name__ == "__main__":
    main()
