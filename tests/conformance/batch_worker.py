"""One process that runs many cases as one model: a JSON request per line in, a JSON answer per line out.

Input: a file of pickled cases, and {"names", "levels", "against"} on stdin: cases of the same opsets. Output:
{"status", "detail", "ran", "nodes"}. Invariant: cases that stock ONNX Runtime does not pass are left out; the others
share a library, and each is compared with its own outputs; or, `against` another backend, with what that one gives.
`nodes` are those in kernels of the one backend, and of the other.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "codegen"))
sys.path.insert(0, str(Path(__file__).parent))
from serving import Answer, Request, serve


def main() -> None:
    serve(_prepare)


def _prepare() -> Callable[[Request], Answer]:
    with open(sys.argv[1], "rb") as file:
        cases = {case.name: case for case in pickle.load(file)}
    return lambda request: run(
        [cases[name] for name in request["names"]], tuple(request["levels"]), request.get("against", "")
    )


def run(cases: list[Any], levels: tuple[str, ...], against: str = "") -> Answer:
    from worker import run as run_one

    good = [case for case in cases if run_one(case, "stock", ())["status"] == "pass"]
    if not good:
        return {"status": "pass", "detail": "", "ran": 0, "nodes": (0, 0)}
    try:
        nodes = _compared(good, levels, against) if against else _run_together(good, levels)
    except Exception as error:
        return {"status": "error", "detail": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    return {"status": "pass", "detail": "", "ran": len(good), "nodes": nodes}


def _run_together(cases: list[Any], levels: tuple[str, ...]) -> tuple[int, int]:
    from onnx.backend.test.runner import Runner

    results, nodes = _results(cases, levels, "c")
    for case, found in zip(cases, results, strict=True):
        _, wanted = next(iter(case.data()))
        Runner.assert_similar_outputs(wanted, found, rtol=case.rtol, atol=case.atol)
    return nodes, 0


def _compared(cases: list[Any], levels: tuple[str, ...], against: str) -> tuple[int, int]:
    """Both backends agree as closely as element-wise results must with the reference."""
    from plain_backend import PlainBackend
    from smelt.check.contract import compare_all
    from smelt.codegen import register_backend

    register_backend(PlainBackend)
    fast, in_fast = _results(cases, levels, "c")
    slow, in_slow = _results(cases, levels, against)
    for case, found, wanted in zip(cases, fast, slow, strict=True):
        problem = compare_all(found, wanted, None, "elementwise").problem
        assert not problem, f"{case.name}: {problem}"
    return in_fast, in_slow


def _results(cases: list[Any], levels: tuple[str, ...], backend: str) -> tuple[list[list[Any]], int]:
    """The outputs of each case, and how many nodes are in kernels."""
    from merged import feeds_of, merge, split

    import smelt

    models = [case.model() for case in cases]
    inputs = [next(iter(case.data()))[0] for case in cases]
    model = merge(models) if len(models) > 1 else models[0]
    feeds = feeds_of(models, inputs) if len(models) > 1 else inputs[0]
    with smelt.compile(model, backend=backend, force=True, levels=levels, verify=False, threads=1) as compiled:
        return list(split(models, compiled.run(feeds))), compiled.coverage.in_kernels


if __name__ == "__main__":
    main()
