"""A kernel's Python module: the device functions that it calls, then the kernel in its forms.

Input: texts of kernels with the placeholder @KERNEL@, names of device functions. Output: a module that Triton imports.
Invariant: the module imports nothing but triton; equal kernels have equal modules and names.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

FUNCTIONS: Final = Path(__file__).parent / "device" / "functions.py"
_HEAD: Final = "import triton\nimport triton.language as tl\n"


def module_of(forms: Mapping[str, str], functions: Iterable[str]) -> tuple[str, str]:
    """The kernel's name, and its module. `forms` are texts by the suffix of their function."""
    called = [_sources()[name][0] for name in _needed(functions)]
    plain = "\n\n".join([*called, *forms.values()])
    name = f"k{hashlib.sha256(plain.encode()).hexdigest()[:12]}"
    made = [text.replace("@KERNEL@", f"{name}_{suffix}") for suffix, text in forms.items()]
    return name, f"{_HEAD}\n\n" + "\n\n".join([*called, *made])


def _needed(functions: Iterable[str]) -> list[str]:
    """Those and what they call, in the order of the file."""
    found, waiting = set[str](), list(functions)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _sources()[name][1]
    return [name for name in _sources() if name in found]


@cache
def _sources() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Text of each device function, and the others that it calls."""
    text = FUNCTIONS.read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    names, lines = {node.name for node in nodes}, text.splitlines()
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for node in nodes:
        first = min((d.lineno for d in node.decorator_list), default=node.lineno) - 1
        called = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names}
        found[node.name] = "\n".join(lines[first : node.end_lineno]) + "\n", tuple(sorted(called))
    return found
