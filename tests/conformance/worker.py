"""One process that runs cases: a JSON request per line in, a JSON answer per line out.

Input: a file of pickled cases that the runner wrote, and {"name", "mode", "levels"} on stdin. Output: {"status",
"detail", "in_kernels", "nodes", "left"} on the stream that stdout was. Invariant: memory is limited, so that a case
that runs away ends as an error and not with the machine.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
MEMORY_BYTES = 6_000_000_000


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    with open(sys.argv[1], "rb") as file:
        cases = {case.name: case for case in pickle.load(file)}
    print(json.dumps({"ready": sorted(cases)}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(
            json.dumps(run(cases[request["name"]], request["mode"], tuple(request["levels"]))), file=answers, flush=True
        )


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
        "left": sorted({f"{left.node.op_type}: {left.reason}" for left in plan.left}),
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
