"""One process that runs many cases as one model: a JSON request per line in, a JSON answer per line out.

Input: a file of pickled cases, and {"names", "levels"} on stdin: cases of the same opsets. Output: {"status", "detail",
"ran"}. Invariant: cases that stock ONNX Runtime does not pass are left out; the others share a library, and each is
compared with its own outputs.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "codegen"))
sys.path.insert(0, str(Path(__file__).parent))
from serving import Answer, Request, serve


def main() -> None:
    serve(_prepare)


def _prepare() -> Callable[[Request], Answer]:
    with open(sys.argv[1], "rb") as file:
        cases = {case.name: case for case in pickle.load(file)}
    return lambda request: run([cases[name] for name in request["names"]], tuple(request["levels"]))


def run(cases: list[Any], levels: tuple[str, ...]) -> Answer:
    from worker import run as run_one

    good = [case for case in cases if run_one(case, "stock", ())["status"] == "pass"]
    if not good:
        return {"status": "pass", "detail": "", "ran": 0}
    try:
        _run_together(good, levels)
    except Exception as error:
        return {"status": "error", "detail": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    return {"status": "pass", "detail": "", "ran": len(good)}


def _run_together(cases: list[Any], levels: tuple[str, ...]) -> None:
    from merged import feeds_of, merge, split
    from onnx.backend.test.runner import Runner

    import smelt

    models = [case.model() for case in cases]
    data = [next(iter(case.data())) for case in cases]
    with smelt.compile(merge(models), force=True, levels=levels, verify=False, threads=1) as compiled:
        results = split(models, compiled.run(feeds_of(models, [inputs for inputs, _ in data])))
    for case, found, (_, wanted) in zip(cases, results, data, strict=True):
        Runner.assert_similar_outputs(wanted, found, rtol=case.rtol, atol=case.atol)


if __name__ == "__main__":
    main()
