"""`make zoo`: architectures of `transformers` through torch.compile and through smelt.export.

Input: the types that AutoModel knows. Output: a table, a JSON file that a stopped run goes on from, exit code 1 when
something is wrong. Invariant: every architecture is in the table, those that eager cannot run with the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
from kept import read, run_kept, write  # noqa: E402
from zoo_names import NAMES  # noqa: E402
from zoo_worker import MODES, STATUSES  # noqa: E402

BAD = frozenset(("crashed", "hanged", "error", "mismatch", "recompiled"))
BAR = 100
Results = dict[str, dict[str, Any]]


def main() -> int:
    given = _arguments()
    results: Results = read(given.json, fresh=given.fresh)
    requests = _requests(given, results)
    command = (sys.executable, "-W", "ignore", str(HERE / "zoo_worker.py"))

    def put(request: dict[str, Any], answer: dict[str, Any]) -> str:
        results.setdefault(request["name"], {})[request["mode"]] = answer
        return f"{request['name']} {request['mode']}: {answer['status']}"

    try:
        run_kept("zoo", requests, command, given, put, lambda: write(results, given.json))
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here")
    print(report(results, verbose=given.verbose))
    if given.markdown:
        given.markdown.write_text(page(results))
    return 0 if good(results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="", help="those whose name matches this pattern")
    parser.add_argument("--names", default="", help="these, in this order, with commas between them")
    parser.add_argument("--all", action="store_true", help="every type that AutoModel knows, not the chosen ones")
    parser.add_argument("--modes", nargs="+", default=["compile", "export"], choices=MODES)
    parser.add_argument("--status", default="", help="run again what had one of these, e.g. error,mismatch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that one model may take in one mode")
    parser.add_argument("--json", type=Path, default=Path("build/zoo.json"))
    parser.add_argument("--markdown", type=Path, help="write the table to this page as well")
    parser.add_argument("--fresh", action="store_true", help="forget what the JSON file has")
    parser.add_argument("--verbose", action="store_true", help="say why, also of what passed in part")
    return parser.parse_args()


def _requests(given: argparse.Namespace, results: Results) -> list[dict[str, Any]]:
    from zoo_build import kinds

    again = set(given.status.split(",")) if given.status else set[str]()
    known = given.names.split(",") if given.names else kinds() if given.all else NAMES
    names = [name for name in known if re.search(given.models, name)]
    wanted = [{"name": name, "mode": mode} for name in names for mode in given.modes]
    old = {(name, mode): answer["status"] for name, modes in results.items() for mode, answer in modes.items()}
    return [r for r in wanted if (r["name"], r["mode"]) not in old or old[r["name"], r["mode"]] in again]


def good(results: Results) -> bool:
    """Nothing wrong anywhere, and a hundred architectures right in every mode that was run."""
    counts = _counts(results)
    return all(not any(c[bad] for bad in BAD) and c["pass"] + c["partly"] >= BAR for c in counts.values())


def _counts(results: Results) -> dict[str, Counter[str]]:
    modes = sorted({mode for answers in results.values() for mode in answers})
    return {m: Counter(answers[m]["status"] for answers in results.values() if m in answers) for m in modes}


def report(results: Results, verbose: bool = False) -> str:
    lines = [f"{'architecture':28}" + "".join(f"{mode:>12}" for mode in MODES) + "   seconds  compiles (aot_eager)"]
    for name, answers in sorted(results.items()):
        lines.append(_line(name, answers))
        lines += _reasons(answers, verbose)
    lines += ["", *(_sum(mode, counts) for mode, counts in _counts(results).items())]
    return "\n".join(lines)


PAGE = """# Architectures

<!-- Made by `make zoo ARGS="--markdown docs/architectures.md"`. Change the sources, not this page. -->

Architectures of `transformers` {version}, shrunk to a few thousand weights, through `torch.compile(backend="smelt")`
and through `smelt.export`, at two sizes of inputs each. Matrices are scaled by five and weights that start alike are
varied, since an error hides behind small ones; one row of tokens is padded. A result is right when it is as near to the
model in float64 as eager torch is, within a factor of three or 1e-5.

| word | what it says |
|---|---|
| pass | right at both sizes, all of it in ONNX Runtime, compiled no more often than by `aot_eager` |
| partly | the same, with some nodes left in torch |
| refused | `aot_eager` or `torch.export` itself cannot take it |
| hanged | no answer within the time limit |

`compile` is torch.compile as it comes, `plain` the same without kernels of smelt's own, `export` is `smelt.export`. An
empty cell was not run. Results are kept from run to run, so rows may come from sources of different days. Of {declared}
architectures that `make zoo` knows, {run} were run for this page:

{sums}

| architecture | {modes} | compiles (allowed) |
|---|{rule}---|
{rows}
{rest}"""
REST = """
## Why not all

What is not all in ONNX Runtime, and what torch itself refuses. `torch.export` takes no control flow that depends on
data, and exporters built on it, torch.onnx's among them, stop there too; through `torch.compile` such a model is cut in
graphs at that place.

| architecture | way | result | why |
|---|---|---|---|
{reasons}
"""


def page(results: Results) -> str:
    """The table as Markdown: what was run, and nothing else."""
    import transformers

    counts = _counts(results)
    modes = [mode for mode in MODES if mode in counts]
    rows = [f"| {name} | {' | '.join(_states(answers, modes))} |" for name, answers in sorted(results.items())]
    sums = "\n".join(f"- {_sum(mode, counts[mode])}" for mode in modes)
    return PAGE.format(
        version=transformers.__version__, sums=sums, declared=len(NAMES), run=len(results), modes=" | ".join(modes),
        rule="---|" * len(modes), rows="\n".join(rows), rest=_rest(results),
    )  # fmt: skip


def _rest(results: Results) -> str:
    """A table of what did not pass whole, or nothing."""
    reasons = [
        f"| {name} | {mode} | {answer['status']} | {_why(answer)} |"
        for name, answers in sorted(results.items())
        for mode, answer in sorted(answers.items())
        if answer["status"] != "pass"
    ]
    return REST.format(reasons="\n".join(reasons)) if reasons else ""


def _why(answer: dict[str, Any]) -> str:
    """The first sentence, fit for a cell."""
    said = answer.get("detail") or "; ".join([*answer.get("left", []), *answer.get("fallbacks", [])])
    first = re.split(r"(?<=[a-z)])\.? (?=[A-Z(])", said, maxsplit=1)[0]
    return first[:160].replace("|", "\\|").replace("<", "\\<")


def _states(answers: dict[str, Any], modes: list[str]) -> list[str]:
    through = answers.get("compile") or answers.get("plain") or {}
    compiles = f"{through['graphs']} ({through['allowed']})" if "graphs" in through else ""
    return [*(answers.get(mode, {}).get("status", "") for mode in modes), compiles]


def _line(name: str, answers: dict[str, Any]) -> str:
    states = "".join(f"{answers.get(mode, {}).get('status', '-'):>12}" for mode in MODES)
    seconds = sum(answer.get("seconds", 0) for answer in answers.values())
    through = answers.get("compile") or answers.get("plain") or {}
    compiles = f"{through['graphs']} ({through['allowed']})" if "graphs" in through else ""
    return f"{name:28}{states}{seconds:10.0f}  {compiles}"


def _reasons(answers: dict[str, Any], verbose: bool) -> list[str]:
    lines: list[str] = []
    for mode, answer in answers.items():
        if answer["status"] in BAD or (verbose and answer["status"] != "pass"):
            said = answer.get("detail") or "; ".join([*answer.get("fallbacks", []), *answer.get("left", [])])
            lines.append(f"    {mode}: {said[:300]}")
    return lines


def _sum(mode: str, counts: Counter[str]) -> str:
    ran = sum(counts.values()) - counts["unbuilt"]
    parts = ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES) if counts[status])
    return f"{mode}: {counts['pass'] + counts['partly']} of {ran} right ({parts})"


if __name__ == "__main__":
    sys.exit(main())
