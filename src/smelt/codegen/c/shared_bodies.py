"""Window kernels that differ in numbers alone become one function with these numbers as arguments.

Input: the texts of kernels, by name. Output: texts of the same functions. Invariant: a kernel that has no like is
unchanged. Only kernels of windows take part: their sizes go to the functions of window.h, which read them at run time
anyway; loops over known sizes are faster where the compiler knows them too.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# Decimal integers and float constants, but no part of a name, size of an array or argument of a macro that pastes.
_NUMBER: Final = re.compile(
    r"(?<![\w.\[])(?<!INT64_C\()(?<!aligned\()(?:(?P<float>(?<=\()-?0x[0-9a-f.]+p[+-]\d+f)|\d+)(?![\w.])"
)
_HEAD: Final = "void SMELT_NAME({})(void *p, int64_t task) {{\n"


@dataclass(frozen=True)
class _Arguments:
    """The numbers in which a group of kernels differs: `columns` are the values of all kernels, by the argument."""

    letter: str
    kind: str
    columns: dict[tuple[str, ...], str]

    def declare(self) -> str:
        names = self.columns.values()
        return "".join(f"  const {self.kind} {name} = {self.letter}_[{at}];\n" for at, name in enumerate(names))

    def table(self, kernel: int) -> str:
        values = ", ".join(column[kernel] for column in self.columns)
        return f"  static const {self.kind} {self.letter}_[] = {{{values or '0'}}};\n"


@dataclass(frozen=True)
class Body:
    """The text of some kernels, by their names."""

    kernels: tuple[str, ...]
    text: str


def share_bodies(kernels: Mapping[str, str], windows: Container[str]) -> list[Body]:
    """One text for each group of alike kernels, in the order of their first. `windows` are the names of those that may
    be: a kernel that is more than one function keeps to itself."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, text in kernels.items():
        groups[_outline(name, text) if name in windows else text].append(name)
    return [Body(tuple(names), _joined({name: kernels[name] for name in names})) for names in groups.values()]


def _outline(name: str, text: str) -> str:
    """The text without its numbers; all of it where it keeps to itself."""
    if not text.startswith(_HEAD.format(name)):
        return text
    return _NUMBER.sub(lambda m: "<float>" if m["float"] else "<integer>", _body(name, text))


def _body(name: str, text: str) -> str:
    return text.removeprefix(_HEAD.format(name))


def _joined(kernels: Mapping[str, str]) -> str:
    if len(kernels) == 1:
        return next(iter(kernels.values()))
    bodies = [_body(name, text) for name, text in kernels.items()]
    integers, floats = _Arguments("integer", "int64_t", {}), _Arguments("float", "float", {})
    body = _with_arguments(bodies, integers, floats)
    name = f"shared_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    text = f"SMELT_SHARED void {name}(void *p, int64_t task, const int64_t *integer_, const float *float_) {{\n"
    text += f"  (void)integer_, (void)float_;\n{integers.declare()}{floats.declare()}{body}"
    for place, kernel in enumerate(kernels):
        tables = integers.table(place) + floats.table(place)
        text += f"\n{_HEAD.format(kernel)}{tables}  {name}(p, task, integer_, float_);\n}}\n"
    return text


def _with_arguments(bodies: Sequence[str], integers: _Arguments, floats: _Arguments) -> str:
    """The first body, with an argument wherever the numbers of the bodies differ."""
    columns = iter(list(zip(*(_NUMBER.finditer(body) for body in bodies), strict=True)))

    def argument(found: re.Match[str]) -> str:
        column = tuple(match[0] for match in next(columns))
        if len(set(column)) == 1:
            return found[0]
        taken = floats if found["float"] else integers
        return taken.columns.setdefault(column, f"{taken.letter}{len(taken.columns)}")

    return _NUMBER.sub(argument, bodies[0])
