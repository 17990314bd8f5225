"""Functions and files of `src/` stay small, and no two modules import each other: `python tools/check_sizes.py [SRC]`,
part of `make check`.

Input: Python and C sources. Output: one line for each file or function that is too long and for each pair of modules
that import each other; the exit code is 1 when there is one. Invariant: a function's lines are those from `def` to its
end; an import inside a function counts, one for type checkers alone does not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILE_LINES: Final = 600
FUNCTION_LINES: Final = 80
MOST_FUNCTION_LINES: Final = 25  # of nine in ten functions
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(folder: Path) -> int:
    problems = [*long_files(folder), *long_functions(folder), *mutual_imports(folder)]
    print("\n".join(problems) or f"{folder}: files, functions and imports are as they should be")
    return 1 if problems else 0


def long_files(folder: Path) -> Iterator[str]:
    for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.h"), *folder.rglob("*.c"))):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines >= FILE_LINES:
            yield f"{path}: {lines} lines; a file has less than {FILE_LINES}"


def long_functions(folder: Path) -> Iterator[str]:
    lengths: list[int] = []
    for path, tree in _trees(folder):
        for node in ast.walk(tree):
            if isinstance(node, Function):
                lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
                if lengths[-1] > FUNCTION_LINES:
                    yield f"{path}:{node.lineno}: {node.name} has {lengths[-1]} lines; {FUNCTION_LINES} at most"
    ninetieth = sorted(lengths)[len(lengths) * 9 // 10] if lengths else 0
    if ninetieth >= MOST_FUNCTION_LINES:
        wanted = f"less than {MOST_FUNCTION_LINES} are asked for"
        yield f"{folder}: nine in ten functions have up to {ninetieth} lines; {wanted}"


def mutual_imports(folder: Path) -> Iterator[str]:
    names = {path: _module(folder, path) for path, _ in _trees(folder)}
    known = set(names.values())
    imports = {
        names[path]: set(_imported(tree, names[path], path.name == "__init__.py", known))
        for path, tree in _trees(folder)
    }
    for one, others in sorted(imports.items()):
        for other in sorted(others):
            # A package re-exports what is inside of it, which may know the package's other parts.
            inside = one.startswith(f"{other}.") or other.startswith(f"{one}.")
            if one < other and one in imports[other] and not inside:
                yield f"{one} and {other} import each other"


def _trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def _module(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, module: str, is_package: bool, known: set[str]) -> Iterator[str]:
    for node in _outside_type_checking(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".") if is_package else module.split(".")[:-1]
            base = above[: len(above) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{source}.{alias.name}"
                yield from [found] if found in known else [source] if source in known else []


def _outside_type_checking(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _outside_type_checking(node)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "src")))
