"""Run the ONNX node suite through stock ONNX Runtime and through smelt, by default options and by force.

Input: the cases of the installed onnx. Output: a table, a JSON file, and exit code 1 when a bar is missed. Invariant:
a case counts as passed only when its outputs were compared; `BackendIsNotSupposedToImplementIt` is no pass.
"""

from __future__ import annotations

import argparse
import pickle
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from kept import read, run_kept, write
from pool import WORKER
from suite import load_cases

STATUSES = ("pass", "mismatch", "error", "crashed", "hanged")
MODES = ("stock", "default", "force")
BARS = {"float32": 0.95, "whole": 0.85}
TITLES = {"float32": "float32 cases of the families", "whole": "integer and bool cases of the families"}
Results = dict[str, dict[str, dict[str, Any]]]


def main() -> int:
    arguments = _arguments()
    results: Results = read(arguments.json, fresh=not arguments.reuse)
    cases = [case for case in load_cases() if re.search(arguments.only, case.name)]
    names = [case.name for case in cases]
    with tempfile.NamedTemporaryFile(suffix=".cases") as file:
        # Making the cases takes seconds, so workers read them from here.
        pickle.dump(cases, file)
        file.flush()
        for mode in arguments.modes:
            _run_mode(mode, names, results, arguments, (sys.executable, str(WORKER), file.name))
    write(results, arguments.json)
    print(report(results, names))
    return 0 if not failures(results, names) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name matches this pattern")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--family", action="store_true", help="run only the cases that the bars are about")
    parser.add_argument("--passed", action="store_true", help="run only the cases that stock ONNX Runtime passes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that one case may take")
    parser.add_argument("--levels", default="v2", help="CPU levels to build, e.g. v2,v3; fewer are faster")
    parser.add_argument("--json", type=Path, default=Path("build/conformance.json"), help="where results are written")
    parser.add_argument("--reuse", action="store_true", help="keep what the JSON file has of the cases not run now")
    return parser.parse_args()


def _run_mode(
    mode: str, names: list[str], all_found: Results, arguments: argparse.Namespace, command: Sequence[str]
) -> None:
    found = all_found.setdefault(mode, {})
    if arguments.reuse and mode == "stock" and all(name in found for name in names):
        return
    stock = all_found.get("stock", {})
    if arguments.family and mode != "stock":
        names = [n for n in names if stock.get(n, {}).get("families")]
    if arguments.passed and mode != "stock":
        names = [n for n in names if stock.get(n, {}).get("status") == "pass"]
    levels = [level for level in arguments.levels.split(",") if level]
    requests = [{"name": name, "mode": mode, "levels": levels} for name in names]

    def put(request: dict[str, Any], answer: dict[str, Any]) -> str:
        found[request["name"]] = answer
        return request["name"]

    run_kept(f"{mode:8}", requests, command, arguments, put, lambda: write(all_found, arguments.json))


def failures(results: Results, names: list[str]) -> list[tuple[str, str]]:
    """(mode, case) of every case that stock ONNX Runtime passes and smelt does not."""
    stock = results.get("stock", {})
    good = [n for n in names if stock.get(n, {}).get("status") == "pass"]
    return [
        (mode, n) for mode in ("default", "force") for n in good
        if n in results.get(mode, {}) and results[mode][n]["status"] != "pass"
    ]  # fmt: skip


def report(results: Results, names: list[str]) -> str:
    lines = ["          " + "".join(f"{s:>10}" for s in STATUSES) + "     in kernels    partly    fallback   no node"]
    for mode in MODES:
        found = {n: r for n, r in results.get(mode, {}).items() if n in set(names)}
        if not found:
            continue
        counts = Counter(r["status"] for r in found.values())
        row = f"{mode:10}" + "".join(f"{counts[s]:>10}" for s in STATUSES)
        lines.append(row + ("" if mode == "stock" else _coverage_columns(found)))
    lines += _bars(results, names)
    for mode, name in failures(results, names):
        answer = results[mode][name]
        lines.append(f"{mode}: {name}: {answer['status']}: {answer['detail'][:300]}")
    return "\n".join(lines)


def _coverage_columns(found: dict[str, Any]) -> str:
    counts = Counter(_coverage(r) for r in found.values())
    return f"{counts['all']:>15}{counts['part']:>10}{counts['none']:>15}{counts['empty']:>10}"


def _coverage(answer: dict[str, Any]) -> str:
    nodes, inside = answer.get("nodes"), answer.get("in_kernels")
    if nodes is None:
        return "unknown"
    if nodes == 0:
        return "empty"
    return "all" if inside == nodes else "part" if inside else "none"


def _bars(results: Results, names: list[str]) -> list[str]:
    stock, force = results.get("stock", {}), results.get("force", {})
    lines: list[str] = []
    for family, bar in BARS.items():
        wanted = [n for n in names if stock.get(n, {}).get("status") == "pass" and family in stock[n]["families"]]
        ran = [n for n in wanted if n in force]
        if not ran:
            continue
        kinds = Counter(_coverage(force[n]) if force[n]["status"] == "pass" else "failed" for n in ran)
        share = (kinds["all"] + kinds["empty"]) / len(ran)
        lines.append(
            f"{TITLES[family]}: {kinds['all']} + {kinds['empty']} without a node left of {len(ran)} "
            f"({len(wanted)} that stock passes) all in kernels: {share:.1%} (bar {bar:.0%})"
        )
        left = Counter(reason for n in ran for reason in force[n].get("left", ()))
        lines += [f"    {count:4} {reason[:150]}" for reason, count in left.most_common(25)]
    return lines


if __name__ == "__main__":
    sys.exit(main())
