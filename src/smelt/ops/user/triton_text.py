"""A `@triton.jit` function of the user's -> a Python module that stands alone, for Triton's compiler elsewhere.

Input: a JIT function. Output: `TritonText`: the text of the function and of every JIT function that it calls, imports
of Triton's own modules, numbers that it reads from around it. Invariant: nothing else is carried; a name that stands
for something else is an error that says so.
"""

from __future__ import annotations

import ast
import importlib
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from smelt.base.errors import KernelError


@dataclass(frozen=True)
class TritonText:
    """`places` are file and first line of each function, by its name in the text."""

    text: str
    places: tuple[tuple[str, str, int], ...]


@dataclass
class _Collected:
    title: str
    imports: dict[str, None] = field(default_factory=dict[str, None])
    values: dict[str, str] = field(default_factory=dict[str, str])
    functions: dict[str, Any] = field(default_factory=dict[str, Any])
    language: dict[str, str] = field(default_factory=dict[str, str])  # other names of Triton's own functions


def as_jit(function: Any) -> Any:
    """What TRITON_INTERPRET made of a function is one that compiles again."""
    if type(function).__name__ != "InterpretedFunction":
        return function
    jit: Any = importlib.import_module("triton.runtime.jit")
    return jit.JITFunction(function.fn)


def triton_text(title: str, function: Any) -> TritonText:
    """`title` is the kernel's name for messages."""
    found = _Collected(title, dict.fromkeys(("import triton", "import triton.language as tl")))
    _collect(found, function.__name__, function)
    bodies = [
        f"@triton.jit\n{_respelled(one.src, found.language).rstrip()}\n" for one in reversed(found.functions.values())
    ]
    values = [f"{name} = {text}" for name, text in found.values.items()]
    places = [(name, str(one.file_name), _line_of(one)) for name, one in _with_places(found)]
    return TritonText("\n".join((*found.imports, *values, "", *bodies)), tuple(places))


def _respelled(text: str, names: Mapping[str, str]) -> str:
    """With Triton's functions called by their full names, as its interpreter needs it; lines stay where they are."""
    lines = [line.encode() for line in text.split("\n")]
    used = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(used, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line, start = lines[node.lineno - 1], node.col_offset
        lines[node.lineno - 1] = line[:start] + names[node.id].encode() + line[start + len(node.id.encode()) :]
    return b"\n".join(lines).decode()


def _with_places(found: _Collected) -> Iterator[tuple[str, Any]]:
    for name, one in found.functions.items():
        if getattr(one, "file_name", None) and getattr(one, "starting_line_number", None):
            yield name, one


def _line_of(function: Any) -> int:
    """Of `def`, which decorators stand before."""
    lines = [line.lstrip() for line in function.raw_src]
    before = next((place for place, line in enumerate(lines) if line.startswith("def ")), 0)
    return int(function.starting_line_number) + before


def _collect(found: _Collected, name: str, function: Any) -> None:
    known = found.functions.get(name)
    if known is not None and known.fn is not function.fn:
        raise _unknown(found, name, "stands for two functions")
    if known is not None:
        return
    if function.__name__ != name:
        raise _unknown(found, name, f"is another name of the function {function.__name__}; call it by its own")
    found.functions[name] = function
    for used, value in _read_from_around(function):
        _carry(found, used, value)


def _read_from_around(function: Any) -> Iterator[tuple[str, Any]]:
    """Names that the function's text reads and the function does not define, with what they stand for."""
    plain = function.fn
    free = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False))
    names = (node.id for node in ast.walk(ast.parse(textwrap.dedent(function.src))) if isinstance(node, ast.Name))
    for name in dict.fromkeys(names):
        if name in free:
            yield name, free[name].cell_contents
        elif name in plain.__globals__ and name not in plain.__code__.co_varnames:
            yield name, plain.__globals__[name]


def _carry(found: _Collected, name: str, value: Any) -> None:
    value = as_jit(value)
    module = str(getattr(value, "__module__", None) or "")
    if hasattr(value, "src") and hasattr(value, "arg_names") and not module.startswith("triton."):
        _collect(found, name, value)
    elif isinstance(value, types.ModuleType) and _is_tritons(value.__name__):
        found.imports[f"import {value.__name__} as {name}"] = None
    elif _is_constexpr(value):
        found.values[name] = f"tl.constexpr({value.value!r})"
    elif _is_dtype(value):
        found.values[name] = f"tl.{value}"
    elif _is_tritons(module) and _in_language(value):
        found.language[name] = f"tl.{value.__name__}"
    elif _is_tritons(module) and hasattr(value, "__name__"):
        found.imports[f"from {module} import {value.__name__} as {name}"] = None
    elif isinstance(value, (bool, int, float, str)):
        raise _unknown(found, name, "is a global number, which Triton takes as tl.constexpr alone")
    else:
        raise _unknown(found, name, f"is a {type(value).__name__}")


def _in_language(value: Any) -> bool:
    language: Any = importlib.import_module("triton.language")
    return getattr(language, getattr(value, "__name__", ""), None) is value


def _is_tritons(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "constexpr" and isinstance(value.value, (bool, int, float, str))


def _is_dtype(value: Any) -> bool:
    return type(value).__name__ == "dtype" and type(value).__module__.startswith("triton")


def _unknown(found: _Collected, name: str, what: str) -> KernelError:
    hint = "A kernel reads its arguments, tl.constexpr values, Triton's own functions and other @triton.jit functions."
    return KernelError("SM-KERNEL-001", f"kernel {found.title}: {name} {what}", hint=hint)
