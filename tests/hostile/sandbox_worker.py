"""The other side of sandbox.py: a JSON request per line in, a JSON answer per line out.

Input: {"model", "work", "calls", "expected", "marker", "options"}. Output: the fields of `Answer`. Invariant: memory is
limited, so that a model that runs away ends as an error here and not with the machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    import smelt.frontends  # noqa: F401 - the first answer should not wait for it

    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    import smelt

    began = time.monotonic()
    out = Path(request["work"]) / "out"
    try:
        compiled = smelt.compile(request["model"], out, **request["options"])
    except smelt.SmeltError as error:
        return {"status": "refused", "code": error.code, "message": str(error)[:4000]}
    except Exception as error:
        return {"status": "raised", "message": f"{type(error).__name__}: {error}"[:4000]}
    coverage = compiled.coverage
    said: dict[str, Any] = {
        "status": "compiled",
        "message": compiled.explain()[:4000],
        "kernels": coverage.in_kernels,
        "nodes": coverage.nodes,
        "leaked": bool(request["marker"]) and leaked(compiled, out, request["marker"]),
        "seconds": time.monotonic() - began,
    }
    return {**said, "calls": [call(compiled, request, number) for number in range(len(request["calls"]))]}


def leaked(compiled: Any, out: Path, marker: str) -> bool:
    generated = compiled.result.generated
    texts = [unit.text for unit in generated.source.units] if generated is not None else []
    libraries = [path.read_bytes() for path in out.glob("*.so")]
    return any(marker in text for text in texts) or any(marker.encode() in content for content in libraries)


def call(compiled: Any, request: dict[str, Any], number: int) -> dict[str, str]:
    feeds = load(request["calls"][number])
    try:
        made = compiled.run(feeds)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"[:2000]
        if request["expected"] is None and fails(request["model"], feeds):
            return {"status": "right", "message": failure}
        return {"status": "failed", "message": failure}
    try:
        wanted = expected(request, number, feeds)
    except Exception as error:
        return {"status": "unchecked", "message": f"stock ONNX Runtime fails: {error}"[:2000]}
    try:
        compare(made, wanted)
    except AssertionError as error:
        return {"status": "wrong", "message": str(error)[:2000]}
    return {"status": "right", "message": ""}


def expected(request: dict[str, Any], number: int, feeds: dict[str, Any]) -> list[Any]:
    if request["expected"] is not None:
        return list(load(request["expected"][number]).values())
    return stock(request["model"], feeds)


def stock(model: str, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def fails(model: str, feeds: dict[str, Any]) -> bool:
    try:
        stock(model, feeds)
    except Exception:
        return True
    return False


def load(path: str) -> dict[str, Any]:
    with np.load(path) as arrays:
        return {name: arrays[f"a{i}"] for i, name in enumerate(json.loads(str(arrays["names"])))}


def compare(made: list[Any], wanted: list[Any]) -> None:
    assert len(made) == len(wanted), f"{len(made)} outputs, expected {len(wanted)}"
    for one, other in zip(made, wanted, strict=True):
        if not isinstance(other, np.ndarray):
            assert type(one) is type(other)
            continue
        assert one.dtype == other.dtype, f"{one.dtype}, expected {other.dtype}"
        assert one.shape == other.shape, f"{one.shape}, expected {other.shape}"
        if one.dtype.kind == "f" and one.size:
            finite = other[np.isfinite(other)].astype(np.float64)
            scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * min(scale, 1e30), equal_nan=True)
        else:
            np.testing.assert_array_equal(one, other)


if __name__ == "__main__":
    main(int(sys.argv[1]))
