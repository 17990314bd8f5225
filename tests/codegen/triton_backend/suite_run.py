"""Cases of ONNX's node suite by Triton's interpreter: `python tests/codegen/triton_backend/suite_run.py [PATTERN]`.

Input: the cases of the installed onnx. Output: a status for each. Invariant: `pass` means that every node of the case
ran in Triton kernels, in each of their forms, and that every output is what the suite says.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))

import numpy as np
from onnx.backend.test.runner import Runner
from simulate import Simulated, captured
from suite import load_cases

from smelt.ir.kernel import Unsupported


@cache
def cases() -> dict[str, Any]:
    return {case.name: case for case in load_cases() if case.kind == "node"}


def run_case(name: str) -> str:
    """`pass`, or `left: why`, `unsupported: why`, `mismatch: what`, `error: what`."""
    case = cases()[name]
    try:
        made = captured(case.model())
        if made.plan.fallbacks:
            return f"left: {made.plan.fallbacks[0].reason}"
        regions = [Simulated(region, made.facts, made.model.graph.inputs) for region in made.plan.regions]
        for inputs, outputs in case.data():
            for pick in (0, 1):
                _compare(case, made.model.graph, regions, inputs, outputs, pick)
    except Unsupported as unsupported:
        return f"unsupported: {unsupported}"
    except AssertionError as error:
        return f"mismatch: {_short(error)}"
    except Exception as error:
        return f"error: {type(error).__name__}: {_short(error)}"
    return "pass"


def _compare(case: Any, graph: Any, regions: list[Simulated], inputs: Any, outputs: Any, pick: int) -> None:
    values = {value: np.asarray(array) for value, array in zip(graph.inputs, inputs, strict=False)}
    for value in graph.initializers.values():
        values.setdefault(value, np.asarray(value.const_value.numpy()))
    for region in regions:
        values |= region.run(values, pick)
    Runner.assert_similar_outputs(outputs, [values[o] for o in graph.outputs], rtol=case.rtol, atol=case.atol)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def main() -> None:
    pattern, started = (sys.argv[1] if len(sys.argv) > 1 else ""), time.monotonic()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for name in (n for n in cases() if re.search(pattern, n)):
        status, _, reason = run_case(name).partition(": ")
        counts[status] += 1
        if status == "left":
            reasons[reason] += 1
        elif status != "pass":
            print(f"{status:12} {name}: {reason}", flush=True)
    print(dict(counts), f"{time.monotonic() - started:.0f} s")
    for reason, count in reasons.most_common():
        print(f"{count:5} left: {reason}")


if __name__ == "__main__":
    main()
