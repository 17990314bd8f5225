"""Catalogue and declarations -> the pages of the documentation that are never written by hand.

Input: the error catalogue, the op declarations. Output: Markdown, written by `python -m smelt.report.docs [FOLDER]`.
Invariant: the same sources give the same bytes; a test compares the pages in `docs/` with what this makes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from smelt.base.errors import CATALOGUE
from smelt.ops import SHORT, Declaration, declarations
from smelt.ops.unsupported import REASONS

_REMARK: Final = "<!-- Made by `python -m smelt.report.docs`. Change the sources, not this page. -->"
_FAMILIES: Final = {
    "CONFIG": "Options and environment",
    "LOAD": "Reading a model",
    "MODEL": "Rules of ONNX",
    "PASS": "Passes",
    "PLAN": "Partitioning",
    "CODEGEN": "Code generation",
    "TOOL": "Compilers",
    "CACHE": "The cache",
    "ARTIFACT": "Artifacts",
    "INPUT": "Inputs of a call",
    "BATCH": "Runs over data sets",
    "VERIFY": "Verification",
}


def errors_page() -> str:
    """Every code of the catalogue by family."""
    lines = ["# Errors", "", _REMARK, "", "`smelt explain-error CODE` prints the same in a terminal.", ""]
    for family, entries in groupby(CATALOGUE.values(), key=lambda entry: entry.code.split("-")[1]):
        lines += [f"## {_FAMILIES.get(family, family.capitalize())}", ""]
        for entry in entries:
            lines += [f"### {entry.code}: {entry.title}", "", entry.explanation, "", f"**Fix:** {entry.fix}", ""]
    return "\n".join(lines)


def ops_page() -> str:
    """Every op that has kernels, with the opsets it is declared for."""
    every = declarations()
    names = {(d.domain, d.name) for d in every}
    dtypes = ", ".join(sorted(dtype.name.lower() for dtype in SHORT))
    lines = [
        "# Ops",
        "",
        _REMARK,
        "",
        f"Kernels are made for {len(names)} ops, for tensors of {dtypes}.",
        "An op that is not listed, or is used in a way that its declaration refuses, runs in ONNX Runtime;",
        "`smelt explain` gives the reason for each node.",
        "",
        "| kind | ops |",
        "|---|---|",
        *_totals(every),
        "",
        "| op | domain | opsets | kind |",
        "|---|---|---|---|",
        *(f"| {d.name} | {d.domain or 'ai.onnx'} | {_opsets(d)} | {d.kind} |" for d in every),
        "",
        "## Standard ops without a kernel",
        "",
        "| op | why |",
        "|---|---|",
        *(f"| {name} | {REASONS[name]} |" for name in sorted(REASONS) if ("", name) not in names),
        "",
    ]
    return "\n".join(lines)


def _totals(every: list[Declaration]) -> Iterator[str]:
    counts = Counter({(d.domain, d.name): d.kind for d in every}.values())
    for kind, count in sorted(counts.items()):
        yield f"| {kind} | {count} |"


def _opsets(declaration: Declaration) -> str:
    last = declaration.before - 1
    if not declaration.before:
        return f"{declaration.since} and later"
    return str(last) if last == declaration.since else f"{declaration.since} to {last}"


PAGES: Final[Mapping[str, Callable[[], str]]] = {"errors.md": errors_page, "ops.md": ops_page}


def write_pages(folder: Path) -> None:
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
