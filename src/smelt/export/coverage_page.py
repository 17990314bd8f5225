"""The list of what the exporter converts -> docs/aten.md.

Input: `table()`. Output: Markdown, written by `python -m smelt.export.coverage_page [FOLDER]`. Invariant: the same
versions of torch and onnxscript give the same bytes; a test compares the page in `docs/` with what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

from smelt.export.coverage import table

_REMARK = "<!-- Made by `python -m smelt.export.coverage_page`. Change the sources, not this page. -->"
_ORIGINS = {
    "table": (
        "smelt's own table",
        "Written for speed, for training and for dynamic sizes, and checked against PyTorch's operator database.",
    ),
    "torchlib": (
        "onnxscript's torchlib",
        "Used where the table has no entry. What the table refuses is not handed on to torchlib.",
    ),
    "decomposition": (
        "torch's decompositions",
        "Tried last: the ops that an op decomposes into are converted in turn. Some end in an op that nothing"
        " converts; such a node stays in torch, with the reason.",
    ),
}


def versions() -> str:
    """The versions that the list depends on."""
    found: list[str] = []
    for package in ("torch", "onnxscript"):
        try:
            found.append(f"{package} {version(package).split('+')[0]}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def aten_page() -> str:
    entries = table()
    about = f"What `smelt.export` and the PyTorch backend convert ({versions()}):"
    lines = ["# ATen targets", "", _REMARK, "", about, ""]
    lines += ["| by | targets |", "|---|---|"]
    by_origin = {origin: [e.target for e in entries if e.origin == origin] for origin in _ORIGINS}
    lines += [f"| {_ORIGINS[origin][0]} | {len(targets)} |" for origin, targets in by_origin.items()]
    lines += ["", "Overloads are named in brackets; `default` is the one without a name.", ""]
    for origin, targets in by_origin.items():
        title, text = _ORIGINS[origin]
        lines += [f"## {title[0].upper()}{title[1:]}", "", text, "", ", ".join(_grouped(targets)), ""]
    return "\n".join(lines)


def _grouped(targets: Iterable[str]) -> list[str]:
    """`aten::add` with the overloads `Scalar` and `Tensor` -> "`add` (Scalar, Tensor)"."""
    groups: list[str] = []
    for op, members in groupby(targets, key=lambda target: target.split(".")[0]):
        overloads = [member.partition(".")[2] or "default" for member in members]
        suffix = "" if overloads == ["default"] else f" ({', '.join(overloads)})"
        groups.append(f"`{op.removeprefix('aten::')}`{suffix}")
    return groups


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    (folder / "aten.md").write_text(aten_page())
