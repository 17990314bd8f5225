"""The table: ATen target -> converter.

Input: declarations of the families in `aten/`, and of users. Output: the converter of a target, and `table()`, which
lists all. Invariant: a target is its torch name, "aten::add.Tensor"; "aten::add" stands for the default overload; a
user's converter comes before the table's.

A converter is an `Expression`, or a function of a `Call` and of arguments named as in the torch schema. It takes those
that it names; one that it does not name must have its default value, or change no number (`_NEUTRAL`: `device`,
`layout`, `dtype`, since the result's type is known, ...):

    @converter("aten::transpose.int")
    def transpose(call: Call, self: Value, dim0: int, dim1: int) -> Value: ...

It returns a value, or a sequence of them for several results; the translator casts each to the type that torch says and
states its shape. It raises `Refused("why")` for what it cannot say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from smelt.export.call import Call
from smelt.export.expressions import Expression
from smelt.export.records import Origin, Refused

_NEUTRAL: Final = frozenset((
    "layout", "device", "pin_memory", "memory_format", "generator", "non_blocking", "out", "dtype", "half_to_float",
    "cudnn_enabled", "cudnn_enable", "benchmark", "deterministic", "allow_tf32", "scale_grad_by_freq", "sparse",
    "sparse_grad", "implicit", "requires_grad", "copy",
))  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Converter:
    target: str
    origin: Origin
    function: Callable[..., Any]
    complex: bool = False
    standalone: bool = False

    def __call__(self, call: Call, defaults: Mapping[str, Any]) -> Any:
        if isinstance(self.function, Expression):
            return self.function(call)
        wanted = _parameters(self.function)
        if wanted is None:
            return self.function(call)
        for name, value in call.arguments.items():
            if name not in wanted and name not in _NEUTRAL and not _same(value, defaults.get(name)):
                raise Refused(f"the argument {name}={value!r} of {self.target} is not supported")
        return self.function(call, **{name: value for name, value in call.arguments.items() if name in wanted})


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default) or value is None


_parameter_cache: dict[Any, frozenset[str] | None] = {}


def _parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """The arguments that a converter names, or None when it takes the call alone."""
    if function not in _parameter_cache:
        names = list(inspect.signature(function).parameters)[1:]
        _parameter_cache[function] = frozenset(names) if names else None
    return _parameter_cache[function]


_OWN: dict[str, Converter] = {}
_USER: dict[str, Converter] = {}


def declare(entries: Mapping[str, Expression | Callable[..., Any]]) -> None:
    """Add declarations to the project's own table."""
    for target, function in entries.items():
        name = full_name(target)
        assert name not in _OWN, f"{name} is declared twice"
        _OWN[name] = Converter(name, "table", function)


def converter(*targets: str, complex: bool = False, standalone: bool = False) -> Callable[[F], F]:
    """Add a function to the project's own table. `complex`: it also takes complex tensors (as pairs of reals).

    `standalone`: its form is slower than torch's own kernel, and is for models that have to run without torch.
    """

    def register(function: F) -> F:
        for target in targets:
            name = full_name(target)
            assert name not in _OWN, f"{name} is declared twice"
            _OWN[name] = Converter(name, "table", function, complex, standalone)
        return function

    return register


def register_converter(*targets: str, complex: bool = False) -> Callable[[F], F]:
    """Add or replace a converter, for any torch op:

    @smelt.register_converter("mylib::gelu_and_scale")
    def gelu_and_scale(call, x, scale):
        return call.op("Mul", call.op("Gelu", x), call.scalar(scale))
    """

    def register(function: F) -> F:
        for target in targets:
            name = full_name(target)
            _USER[name] = Converter(name, "user", function, complex)
        return function

    return register


def forget_converter(*targets: str) -> None:
    """Take back `register_converter`."""
    for target in targets:
        _USER.pop(full_name(target), None)


def full_name(target: str) -> str:
    """torch's own spelling: the default overload has no suffix."""
    return target.removesuffix(".default")


def find(name: str) -> Converter | None:
    return _USER.get(name) or _OWN.get(name)


def own_targets() -> dict[str, Converter]:
    return {**_OWN, **_USER}
