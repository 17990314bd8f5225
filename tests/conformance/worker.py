"""One process that runs cases: a JSON request per line in, a JSON answer per line out.

Input: a file of pickled cases that the runner wrote, and {"name", "mode", "levels"} on stdin. Output: {"status",
"detail", "in_kernels", "nodes", "left"}. Invariant: a case ends with an answer, whatever it raises.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from serving import Answer, Request, serve

MEMORY_BYTES = 6_000_000_000


def main() -> None:
    serve(_prepare, MEMORY_BYTES)


def _prepare() -> Callable[[Request], Answer]:
    with open(sys.argv[1], "rb") as file:
        cases = {case.name: case for case in pickle.load(file)}
    return lambda request: run(cases[request["name"]], request["mode"], tuple(request["levels"]))


def run(case: Any, mode: str, levels: tuple[str, ...]) -> dict[str, Any]:
    from suite import families

    model = case.model()
    answer: dict[str, Any] = {"status": "pass", "detail": "", "families": sorted(families(model))}
    try:
        answer |= _stock(case, model) if mode == "stock" else _smelt(case, model, mode == "force", levels)
    except AssertionError as error:
        answer |= {"status": "mismatch", "detail": _short(error)}
    except Exception as error:
        answer |= {"status": "error", "detail": f"{type(error).__name__}: {_short(error)}"}
    return answer


def _stock(case: Any, model: Any) -> dict[str, Any]:
    from smelt.runtime import SessionSettings, session_for

    session = session_for(model.SerializeToString(), settings=SessionSettings(threads=1))
    names = [i.name for i in session.get_inputs()]
    _compare(case, lambda inputs: session.run(None, dict(zip(names, inputs, strict=True))))
    return {}


def _smelt(case: Any, model: Any, force: bool, levels: tuple[str, ...]) -> dict[str, Any]:
    from smelt.backend import prepare

    prepared = prepare(model, "CPU", force=force, levels=levels, threads=1, verify=False)
    compiled = prepared.compiled
    plan = compiled.result.plan
    covered = {
        "in_kernels": compiled.coverage.in_kernels,
        "nodes": compiled.coverage.nodes,
        "left": sorted({f"{fallback.node.op_type}: {fallback.reason}" for fallback in plan.fallbacks}),
    }
    try:
        _compare(case, prepared.run)
    except AssertionError as error:
        return covered | {"status": "mismatch", "detail": _short(error)}
    except Exception as error:
        return covered | {"status": "error", "detail": f"{type(error).__name__}: {_short(error)}"}
    finally:
        compiled.close()
    return covered


def _compare(case: Any, call: Any) -> None:
    from onnx.backend.test.runner import Runner

    for inputs, outputs in case.data():
        Runner.assert_similar_outputs(outputs, list(call(inputs)), rtol=case.rtol, atol=case.atol)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]


if __name__ == "__main__":
    main()
