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
from dataclasses import dataclass, field
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
    parser.add_argument("--against", default="", help="compare with this backend (plain) instead of the case's outputs")
    arguments = parser.parse_args()
    done = run_batches(node_cases(arguments.only), arguments.levels, arguments.workers, arguments.against)
    ran, failed = done.ran, done.failed
    print(f"{ran} cases ran, {len(failed)} failed")
    if arguments.against:
        print(f"{done.nodes[0]} nodes in kernels of c, {done.nodes[1]} in those of {arguments.against}")
    for name, detail in failed.items():
        print(f"{name}: {detail}")
    return 1 if failed else 0


def node_cases(pattern: str = "") -> list[Case]:
    return [case for case in load_cases() if case.kind == "node" and re.search(pattern, case.name)]


@dataclass
class Done:
    """How many cases ran, and what each one that failed says; nodes in kernels of the one backend, and of the other."""

    ran: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])
    nodes: tuple[int, int] = (0, 0)


def run_batches(cases: list[Case], levels: str, workers: int = 1, against: str = "") -> Done:
    todo, done = list(batches_of(cases)), Done()
    with tempfile.NamedTemporaryFile(suffix=".cases") as file:
        pickle.dump(cases, file)
        file.flush()
        while todo:
            requests = [{"names": list(batch), "levels": levels.split(","), "against": against} for batch in todo]
            todo = []
            command = (sys.executable, str(WORKER), file.name)
            for request, answer in run_all(requests, workers, TIMEOUT_S, command):
                names = tuple(request["names"])
                if answer["status"] == "pass":
                    done.ran += answer["ran"]
                    done.nodes = (done.nodes[0] + answer["nodes"][0], done.nodes[1] + answer["nodes"][1])
                elif len(names) == 1:
                    done.failed[names[0]] = f"{answer['status']}: {answer['detail']}"
                else:
                    todo += [names[: len(names) // 2], names[len(names) // 2 :]]
                print(f"{answer['status']:8} {len(names):3} cases from {names[0]}", file=sys.stderr, flush=True)
    return done


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
