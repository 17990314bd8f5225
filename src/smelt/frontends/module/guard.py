"""Which calls a captured graph serves.

Input: an exported program, or what was written of one. Output: `Guard`. Invariant: a call that passes has the dtypes
and constants of the traced one, and sizes that tracing left free; what is written is numbers and text.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smelt.base.errors import ExportError


class CaptureError(ExportError):
    """Why a module cannot be captured whole."""

    def __init__(self, message: str) -> None:
        super().__init__("SM-EXPORT-003", message)


@dataclass(frozen=True)
class Guard:
    """Per argument: the dtype and the sizes, a number or the name of a symbol; or the value that it must equal."""

    in_spec: Any
    checks: tuple[Any, ...]
    ranges: Mapping[str, tuple[int, float]]

    @classmethod
    def of(cls, program: Any) -> Guard:
        from torch.export.graph_signature import ConstantArgument, InputKind

        users = [s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
        placeholders = [n for n in program.graph_module.graph.nodes if n.op == "placeholder"]
        checks: list[Any] = []
        for spec, node in zip(users, placeholders[len(placeholders) - len(users) :], strict=True):
            value = node.meta.get("val")
            if isinstance(spec.arg, ConstantArgument):
                checks.append(("equal", spec.arg.value))
            elif isinstance(value, torch.Tensor):
                checks.append(("tensor", value.dtype, tuple(_size(s) for s in value.shape)))
            else:
                checks.append(("number", type(value)))
        ranges = {str(k): (int(v.lower), _upper(v.upper)) for k, v in program.range_constraints.items()}
        return cls(program.call_spec.in_spec, tuple(checks), ranges)

    def to_json(self) -> Any:
        """Numbers and text only."""
        return {
            "checks": [_written(check) for check in self.checks],
            "ranges": {k: list(v) for k, v in self.ranges.items()},
        }

    @classmethod
    def from_json(cls, in_spec: Any, written: Mapping[str, Any]) -> Guard:
        ranges = {str(k): (int(low), float(high)) for k, (low, high) in written["ranges"].items()}
        return cls(in_spec, tuple(_read(check) for check in written["checks"]), ranges)

    def refuses(self, leaves: Sequence[Any]) -> str:
        """Why a call does not fit, or nothing. Structures have been compared already."""
        sizes: dict[str, int] = {}
        derived: list[tuple[int, Any, int]] = []
        for place, (check, value) in enumerate(zip(self.checks, leaves, strict=True)):
            if check[0] == "equal":
                if type(value) is not type(check[1]) or value != check[1]:
                    return f"argument {place} is {value!r}, not {check[1]!r}"
                continue
            if check[0] != "tensor":
                return f"argument {place} is a number that may vary"
            if not isinstance(value, torch.Tensor) or value.dtype != check[1]:
                return f"argument {place} is no tensor of {check[1]}"
            wrong = _misfit(place, value.shape, check[2], sizes, derived)
            if wrong:
                return wrong
        for place, size_of, size in derived:
            if size_of(sizes) != size:
                return f"a size of argument {place} does not fit the others"
        return self._outside(sizes)

    def _outside(self, sizes: Mapping[str, int]) -> str:
        for name, (low, high) in self.ranges.items():
            if name in sizes and not low <= sizes[name] <= high:
                wanted = f"{low} or more" if math.isinf(high) else f"{low} to {high}"
                return f"a size is {sizes[name]}, where it takes {wanted}"
        return ""


def _written(check: Any) -> Any:
    if check[0] == "equal":
        if check[1] is not None and not isinstance(check[1], (bool, int, float, str)):
            raise CaptureError(f"an argument is a {type(check[1]).__name__}, which cannot be saved")
        return ["equal", check[1]]
    if check[0] == "tensor":
        return [
            "tensor",
            str(check[1]).removeprefix("torch."),
            [s if isinstance(s, (int, str)) else None for s in check[2]],
        ]
    return [check[0], check[1].__name__]


def _read(check: Any) -> Any:
    if check[0] == "tensor":
        dtype = getattr(torch, check[1])
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"{check[1]} is no dtype")
        return "tensor", dtype, tuple(check[2])
    return tuple(check)


def _misfit(
    place: int, shape: Any, wanted: Sequence[Any], sizes: dict[str, int], derived: list[tuple[int, Any, int]]
) -> str:
    if len(shape) != len(wanted):
        return f"argument {place} has {len(shape)} dimensions, not {len(wanted)}"
    for size, expected in zip(shape, wanted, strict=True):
        if expected is None:
            continue
        if expected.__class__ is int:
            if size != expected:
                return f"a size of argument {place} is {size}, not {expected}"
        elif expected.__class__ is str:
            if sizes.setdefault(expected, size) != size:
                return f"sizes that must be equal differ in argument {place}"
        else:
            derived.append((place, expected, size))
    return ""


def _upper(bound: Any) -> float:
    return int(bound) if getattr(bound, "is_Integer", False) else float("inf")


def _size(size: Any) -> int | str | Callable[[Mapping[str, int]], int]:
    """A number, the name of a symbol, or what a derived size is once its symbols are known."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return str(expression)

    def derived(sizes: Mapping[str, int]) -> int:
        if any(str(s) not in sizes for s in expression.free_symbols):
            return -1
        return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))

    return derived
