"""What is computed says nothing of how it is laid out: ops/ and ir/ know no panel, Winograd, CPU feature or cache."""

from __future__ import annotations

import re
from pathlib import Path

import smelt

ROOT = Path(smelt.__file__).parent
FOLDERS = ("ops", "ir")
WORDS = (
    "panel", "winograd", "nchw", "interleave", "micro[_ -]?kernel", "l1", "l2", "l3", "cache[_ -]?line",
    "page[_ -]?cache", "cache[_ -]?(?:block|level|size)", "(?<!accuracy[_ -])level",
    "simd", "sse", "avx", "avx2", "avx512", "vnni", "amx", "neon", "dotprod", "i8mm",
)  # fmt: skip
# An attribute of MatMulNBits is called accuracy_level.
FORBIDDEN = re.compile(rf"(?<![a-z0-9])({'|'.join(WORDS)})s?(?![a-z0-9])", re.IGNORECASE)


# What the toolchain is handed: a file of C is compiled once for each CPU level.
RECORDS_OF_STAGES = ("ir/records.py",)


def _files() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_ops_and_the_tensor_language_know_no_layout() -> None:
    found: list[str] = []
    for path in _files():
        name = path.relative_to(ROOT).as_posix()
        if name in RECORDS_OF_STAGES:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{name}:{number}: {match.group()}" for match in FORBIDDEN.finditer(line)]
    assert not found, "\n".join(found)


def test_the_check_sees_layouts_where_they_are() -> None:
    for name in ("formats.py", "winograd.py", "window_sizes.py"):
        text = (ROOT / "codegen" / "c" / "layout" / name).read_text(encoding="utf-8")
        assert FORBIDDEN.search(text), name
