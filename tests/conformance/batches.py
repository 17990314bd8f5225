"""Run the ONNX node suite in batches that share a library: quick enough for libraries that check bounds.

Input: the cases of the installed onnx. Output: the cases that fail, with what they say, and how many ran. Invariant: a
batch that fails, or ends its process, is halved until one case is left, so that every failure has a name. Cases that
cannot share a model (functions, sequences, optional values) are batches of their own.
"""

from __future__ import annotations

import argparse
import pickle
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from pool import run_all
from suite import Case, load_cases

WORKER = Path(__file__).with_name("batch_worker.py")
BATCH = 40
TIMEOUT_S = 600.0
Batch = tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name matches this pattern")
    parser.add_argument("--levels", default="v3")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    ran, failed = run_batches(node_cases(arguments.only), arguments.levels, arguments.workers)
    print(f"{ran} cases ran, {len(failed)} failed")
    for name, detail in failed.items():
        print(f"{name}: {detail}")
    return 1 if failed else 0


def node_cases(pattern: str = "") -> list[Case]:
    return [case for case in load_cases() if case.kind == "node" and re.search(pattern, case.name)]


def run_batches(cases: list[Case], levels: str, workers: int = 1) -> tuple[int, dict[str, str]]:
    """How many cases ran, and what each one that failed says."""
    todo, ran, failed = list(batches_of(cases)), 0, dict[str, str]()
    with tempfile.NamedTemporaryFile(suffix=".cases") as file:
        pickle.dump(cases, file)
        file.flush()
        while todo:
            requests = [{"names": list(batch), "levels": levels.split(",")} for batch in todo]
            todo = []
            command = (sys.executable, str(WORKER), file.name)
            for request, answer in run_all(requests, workers, TIMEOUT_S, command):
                names = tuple(request["names"])
                if answer["status"] == "pass":
                    ran += answer["ran"]
                elif len(names) == 1:
                    failed[names[0]] = f"{answer['status']}: {answer['detail']}"
                else:
                    todo += [names[: len(names) // 2], names[len(names) // 2 :]]
                print(f"{answer['status']:8} {len(names):3} cases from {names[0]}", file=sys.stderr, flush=True)
    return ran, failed


def batches_of(cases: Iterable[Case]) -> Iterator[Batch]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for case in cases:
        groups.setdefault(_kind(case), []).append(case.name)
    for names in groups.values():
        rest = iter(names)
        while batch := tuple(islice(rest, BATCH)):
            yield batch


def _kind(case: Case) -> tuple[Any, ...]:
    """What cases of one batch have in common."""
    model = case.model()
    plain = all(v.type.HasField("tensor_type") for v in (*model.graph.input, *model.graph.output))
    if model.functions or not plain:
        return (case.name,)
    return tuple(sorted((o.domain, o.version) for o in model.opset_import))


if __name__ == "__main__":
    sys.exit(main())
