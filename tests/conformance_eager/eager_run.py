"""Run PyTorch's operator database on the device `ort` against the CPU, in every form that torch has of an op.

Input: the entries of the installed torch's `op_db`. Output: a table, a JSON file, on request a page of the docs, and
exit code 1 when anything differs. Invariant: an entry passes only when every sample of every form was compared.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance"), str(HERE.parent / "conformance_torch")]
from eager_page import page, table  # noqa: E402
from eager_worker import STATUSES  # noqa: E402
from kept import read, run_kept, write  # noqa: E402
from opinfo_run import key_of  # noqa: E402

Found = dict[str, dict[str, Any]]


def main() -> int:
    arguments = _arguments()
    found: Found = read(arguments.json, fresh=not arguments.resume)
    _run(found, arguments)
    print(table(found))
    if arguments.verbose:
        print("\n".join(failures(found)))
    if arguments.page is not None:
        arguments.page.write_text(page(found, arguments.limit))
    return 0 if good(found) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="run the entries whose full name matches this pattern")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument("--limit", type=int, default=5, help="samples per entry and dtype; 0 for all")
    parser.add_argument("--status", default="", help="with --resume: run again what had one of these")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one entry and dtype may take")
    parser.add_argument("--json", type=Path, default=Path("build/conformance_eager.json"))
    parser.add_argument("--page", type=Path, help="write the page of the docs here")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has, run the rest")
    parser.add_argument("--verbose", action="store_true", help="list everything that did not pass")
    return parser.parse_args()


def _requests(found: Found, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from opinfo_samples import dtypes_of, entries

    again = arguments.status.split(",") if arguments.status else []
    wanted = [
        {"name": name, "dtype": dtype, "limit": arguments.limit}
        for name, entry in entries().items()
        if re.search(arguments.ops, name)
        for dtype in dtypes_of(entry)
        if dtype in arguments.dtypes.split(",")
    ]
    return [r for r in wanted if key_of(r) not in found or found[key_of(r)]["status"] in again]


def _run(found: Found, arguments: argparse.Namespace) -> None:
    requests = _requests(found, arguments)
    command = (sys.executable, "-W", "ignore", str(HERE / "eager_worker.py"))

    def put(request: dict[str, Any], answer: dict[str, Any]) -> str:
        found[key_of(request)] = answer
        return key_of(request)

    run_kept("eager", requests, command, arguments, put, lambda: write(found, arguments.json))


def good(found: Found) -> bool:
    """Nothing differs from the CPU."""
    counts = Counter(answer["status"] for answer in found.values())
    return bool(found) and not any(counts[status] for status in STATUSES[:5])


def failures(found: Found) -> list[str]:
    lines: list[str] = []
    for key, answer in sorted(found.items()):
        if answer["status"] in ("crashed", "hanged"):
            lines.append(f"{key}: {answer['status']}: {answer['detail']}")
        for form, result in answer.get("forms", {}).items():
            if result["status"] not in ("pass", "refused"):
                lines.append(f"{key} {form}: {result['status']}: {result['detail']}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
