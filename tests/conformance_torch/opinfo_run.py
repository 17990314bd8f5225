"""Run PyTorch's operator database through smelt, and through torch.onnx's exporter for comparison.

Input: the entries of the installed torch's `op_db`. Output: a table, a JSON file, and exit code 1 when a bar is missed.
Invariant: an entry passes only when every sample of every dtype was compared and ran in ONNX Runtime alone.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
from kept import read, run_kept, write  # noqa: E402
from opinfo_worker import STATUSES, worst  # noqa: E402

BAR = 0.85
SAMPLE_SEED = 147
Results = dict[str, dict[str, dict[str, Any]]]


def main() -> int:
    arguments = _arguments()
    results: Results = read(arguments.json, fresh=not arguments.resume)
    try:
        for mode in arguments.modes:
            _run_mode(mode, results.setdefault(mode, {}), results, arguments)
    except KeyboardInterrupt:
        print(report(results, arguments.verbose))
        print("stopped; go on with --resume")
        return 1
    print(report(results, arguments.verbose))
    return 0 if all(good(results[mode]) for mode in arguments.modes if mode != "torch_onnx") else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="run the entries whose full name matches this pattern")
    parser.add_argument("--sample", type=int, default=0, help="this many of them, drawn with a fixed seed; 0 for all")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument(
        "--modes", nargs="+", default=["smelt", "torch_onnx"], help="smelt, kernels, plain, gradients, torch_onnx, ..."
    )
    parser.add_argument(
        "--compared", type=int, default=147, help="how many entries torch.onnx gets, drawn likewise; 0 for as many"
    )
    parser.add_argument("--limit", type=int, default=5, help="samples per entry and dtype; 0 for all")
    parser.add_argument(
        "--status", default="", help="with --resume: run again what had one of these, e.g. error,partly"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds that one entry and dtype may take")
    parser.add_argument("--json", type=Path, default=Path("build/conformance_torch.json"))
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has, run the rest")
    parser.add_argument("--verbose", action="store_true", help="list every entry that did not pass")
    return parser.parse_args()


def _requests(mode: str, found: dict[str, Any], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from opinfo_samples import dtypes_of, entries

    again = arguments.status.split(",") if arguments.status else []
    names = drawn({n: e for n, e in entries().items() if re.search(arguments.ops, n)}, arguments.sample)
    names = drawn(names, arguments.compared) if mode == "torch_onnx" else names
    wanted = [
        {"name": n, "dtype": d, "mode": mode, "limit": arguments.limit}
        for n, e in names.items()
        for d in dtypes_of(e)
        if d in arguments.dtypes.split(",")
    ]
    old = {key: answer["status"] for key, answer in found.items()} if arguments.resume else {}
    return [r for r in wanted if key_of(r) not in old or old[key_of(r)] in again]


def drawn(names: dict[str, Any], count: int) -> dict[str, Any]:
    """`count` of the entries, the same in every run; all of them for 0."""
    chosen = random.Random(SAMPLE_SEED).sample(sorted(names), count) if 0 < count < len(names) else names
    return {name: names[name] for name in names if name in set(chosen)}


def key_of(request: dict[str, Any]) -> str:
    return f"{request['name']} {request['dtype']}"


def _run_mode(mode: str, found: dict[str, Any], results: Results, arguments: argparse.Namespace) -> None:
    requests = _requests(mode, found, arguments)
    command = (sys.executable, "-W", "ignore", str(HERE / "opinfo_worker.py"))

    def put(request: dict[str, Any], answer: dict[str, Any]) -> str:
        found[key_of(request)] = answer
        return key_of(request)

    run_kept(f"{mode:10}", requests, command, arguments, put, lambda: write(results, arguments.json))


def by_entry(found: dict[str, Any]) -> dict[str, str]:
    """The status of each entry: its worst over dtypes."""
    grouped: dict[str, list[str]] = {}
    for key, answer in found.items():
        grouped.setdefault(key.split()[0], []).append(answer["status"])
    return {name: worst(statuses) for name, statuses in grouped.items()}


def good(found: dict[str, Any]) -> bool:
    """No wrong answer, no error of our own, and enough entries all in ONNX Runtime."""
    counts = Counter(by_entry(found).values())
    ran = sum(counts.values()) - counts["refused"]
    bad = sum(counts[s] for s in ("crashed", "hanged", "error", "mismatch"))
    return bad == 0 and counts["pass"] >= BAR * ran


def report(results: Results, verbose: bool = False) -> str:
    lines = [f"{'':22}" + "".join(f"{s:>10}" for s in reversed(STATUSES)) + "     passed of those run"]
    for mode, found in results.items():
        lines.append(_row(f"{mode} ops", by_entry(found).values()))
        for dtype in ("float32", "int64", "bool"):
            lines.append(_row(f"  {dtype}", (a["status"] for k, a in found.items() if k.endswith(" " + dtype))))
    if "smelt" in results and "torch_onnx" in results:
        lines += ["", *comparison(results["smelt"], results["torch_onnx"])]
    for mode, found in results.items():
        if verbose and mode != "torch_onnx":
            lines += _failures(mode, found)
    return "\n".join(lines)


def comparison(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Entries that both were asked about: how many either gets right, and how the rest of theirs ends."""
    both = {key for key in ours.keys() & theirs.keys() if ours[key]["status"] != "refused"}
    mine, other = (by_entry({key: found[key] for key in both}) for found in (ours, theirs))
    counts = Counter(other.values())
    right = [name for name, status in mine.items() if status in ("pass", "partly")]
    others = [name for name, status in other.items() if status == "pass"]
    return [
        f"of {len(mine)} ops that both were asked about:",
        f"  smelt        {len(right)} right, {sum(mine[name] == 'pass' for name in right)} in ONNX Runtime alone",
        f"  torch.onnx   {len(others)} right, {counts['mismatch']} wrong, "
        f"{len(other) - len(others) - counts['mismatch']} refused or failing",
        f"  only smelt   {len(set(right) - set(others))}, only torch.onnx {len(set(others) - set(right))}",
    ]


def _row(title: str, statuses: Iterable[str]) -> str:
    counts = Counter(statuses)
    ran = sum(counts.values()) - counts["refused"]
    share = f"{counts['pass'] / ran:.1%}" if ran else ""
    return f"{title:22}" + "".join(f"{counts[s]:>10}" for s in reversed(STATUSES)) + f"{share:>12} of {ran}"


def _failures(mode: str, found: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, answer in sorted(found.items(), key=lambda item: STATUSES.index(item[1]["status"])):
        if answer["status"] in ("pass", "refused"):
            continue
        first = next((s for s in answer.get("samples", ()) if s["status"] == answer["status"]), answer)
        detail = first.get("detail") or "; ".join(first.get("left", ()))
        lines.append(f"{mode}: {key}: {answer['status']}: {detail[:400]}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
