"""C that a user wrote -> its functions as syntax trees, and what the last one's signature says.

Input: the text of one or more C functions; the last one is the kernel. Output: `Signature`, `Functions`. Invariant:
an error names the kernel and the line of the user's text. Nothing here knows tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from smelt.base.errors import KernelError

Form = Literal["element", "row", "tensor"]
ARRAY: Final = "smelt_array"
# C type -> dtype; `float` and `double` of an element or row form stand for the tensor's own type.
SCALARS: Final = {
    "float": "f32", "double": "f64", "int": "i32", "int32_t": "i32", "int64_t": "i64", "long": "i64", "bool": "b",
    "_Bool": "b", "uint8_t": "u8", "int8_t": "i8",
}  # fmt: skip
_PRELUDE: Final = (
    "typedef long int64_t; typedef int int32_t; typedef unsigned char uint8_t; typedef signed char int8_t; "
    f"typedef _Bool bool; typedef unsigned long size_t; typedef struct {ARRAY}_ {ARRAY};\n"
)
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE: Final = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_HEADER: Final = re.compile(r"(?:^|(?<=[};\n]))\s*((?:\w+[\s*]+)+)(\w+)\s*\(([^(){};]*)\)\s*\{", re.MULTILINE)
_PLACE: Final = re.compile(r"^[^:]*:(\d+):(?:\d+:)?\s*(.*)$", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """`type` is a key of `SCALARS`, or `smelt_array`; a pointer that is not const is written."""

    name: str
    type: str
    pointer: bool = False
    const: bool = False

    @property
    def is_output(self) -> bool:
        return self.pointer and not self.const

    @property
    def is_operand(self) -> bool:
        return self.pointer and self.const


@dataclass(frozen=True)
class Signature:
    name: str
    result: str
    parameters: tuple[Parameter, ...]

    @property
    def form(self) -> Form:
        pointers = [p for p in self.parameters if p.pointer]
        if not pointers:
            return "element"
        return "tensor" if any(p.type == ARRAY for p in pointers) else "row"

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_output)


@dataclass(frozen=True)
class Functions:
    """All functions of a text by name, as pycparser's trees."""

    kernel: str
    by_name: Mapping[str, Any]


def signature_of(kernel: str, text: str) -> Signature:
    """Of the last function of the text."""
    bare = _bare(text)
    headers = list(_HEADER.finditer(bare))
    if not headers:
        raise KernelError("SM-KERNEL-001", f"kernel {kernel}: the C text defines no function")
    found = headers[-1]
    line = bare.count("\n", 0, found.start(2)) + 1
    returned = re.sub(r"\b(static|inline)\b", "", found[1])
    tree = _parsed(kernel, f"{returned}{found[2]}({found[3]});", line)
    made = _signature(kernel, tree.ext[-1], line)
    _check(kernel, made, line)
    return made


def function_names(text: str) -> list[str]:
    """Of all functions that the text defines."""
    return [found[2] for found in _HEADER.finditer(_bare(text))]


def functions_of(kernel: str, text: str) -> Functions:
    tree = _parsed(kernel, re.sub(r"\b(static|inline)\b", lambda m: " " * len(m[0]), _bare(text)), 1)
    named = {one.decl.name: one for one in tree.ext if type(one).__name__ == "FuncDef"}
    return Functions(kernel, named)


def line_of(node: Any) -> int:
    coord = getattr(node, "coord", None)
    return int(coord.line) if coord is not None else 0


def at_line(kernel: str, node: Any, text: str) -> KernelError:
    """An error about a place in the user's C."""
    return KernelError("SM-KERNEL-001", f"kernel {kernel}, line {line_of(node)}: {text}")


def _bare(text: str) -> str:
    """Without comments and directives; lines stay where they are."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return _DIRECTIVE.sub(blank, _COMMENT.sub(blank, text))


def _parsed(kernel: str, text: str, line: int) -> Any:
    try:
        from pycparser import CParser
    except ImportError as error:
        raise KernelError(
            "SM-KERNEL-005", "kernels in C need the package pycparser", hint='pip install "onnx-smelt[kernels]"'
        ) from error
    parser = CParser()
    try:
        return parser.parse(f'{_PRELUDE}#line {line} "{_quoted(kernel)}"\n{text}', "prelude")
    except Exception as error:  # pycparser has one class of error, which moved between its releases
        found = _PLACE.match(str(error))
        reached = getattr(getattr(parser, "clex", None), "_lineno", 0)  # not every error of pycparser has a place
        said = f"line {found[1]}: {found[2]}" if found else f"line {reached}: {str(error).partition(': ')[2] or error}"
        raise KernelError("SM-KERNEL-001", f"kernel {kernel}: the C text cannot be read, {said}") from error


def _quoted(name: str) -> str:
    return re.sub(r"[^\w.]", "_", name)


def _signature(kernel: str, declaration: Any, line: int) -> Signature:
    function = declaration.type
    listed: list[Any] = function.args.params if function.args is not None else []
    parameters = [_parameter(kernel, one, line) for one in listed if getattr(one, "name", None)]
    returned = getattr(getattr(function.type, "type", None), "names", ("another type",))
    return Signature(declaration.name, " ".join(returned), tuple(parameters))


def _parameter(kernel: str, declared: Any, line: int) -> Parameter:
    kind = declared.type
    pointer = type(kind).__name__ in ("PtrDecl", "ArrayDecl")
    inner = kind.type if pointer else kind
    names = getattr(getattr(inner, "type", None), "names", None)
    spelled = " ".join(names) if names else ""
    if spelled not in SCALARS and spelled != ARRAY:
        known = ", ".join((*SCALARS, ARRAY))
        raise KernelError(
            "SM-KERNEL-001", f"kernel {kernel}, line {line}: parameter {declared.name} has a type other than {known}"
        )
    return Parameter(declared.name, spelled, pointer, pointer and "const" in inner.quals)


def _check(kernel: str, made: Signature, line: int) -> None:
    where = f"kernel {kernel}, line {line}"
    if made.form == "element" and made.result not in SCALARS:
        raise KernelError("SM-KERNEL-001", f"{where}: an element function returns its result; it has {made.result}")
    if made.form != "element" and not made.outputs:
        raise KernelError("SM-KERNEL-001", f"{where}: no parameter is written: outputs are pointers without const")
    if made.form != "element" and made.result not in ("void", "int"):
        raise KernelError("SM-KERNEL-001", f"{where}: a row or tensor function returns void, or int for an error")
