"""One declaration per ONNX op: name, versions, types, lowering, cost, flops, and optionally a numpy reference.

Input: functions decorated with `@op`. Output: `lookup(domain, name, opset)`. Invariant: one declaration answers for a
range of since-versions; no model is converted to another opset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from smelt.base.dtype import KERNEL_DTYPES
from smelt.ir.kernel import Builder, Ix, Sym, Tensor, Unsupported, of
from smelt.ops.work import Shapes, read_work

SHORT: dict[ir.DataType, str] = {ir.DataType(dtype.onnx): dtype.name for dtype in KERNEL_DTYPES}
LONG = {short: long for long, short in SHORT.items()}


def _no_own_size(output: int, axis: int) -> Ix:
    raise Unsupported(f"the size of output {output} along axis {axis} depends on data")


@dataclass
class Call:
    """One node being lowered: operands as tensors, attributes, and the builder that makes new tensors."""

    k: Builder
    op: str
    opset: int
    inputs: Sequence[Tensor | None]
    attributes: Mapping[str, ir.Attr]
    n_outputs: int
    out_dtypes: Sequence[str | None] = ()
    own_size: Callable[[int, int], Ix] = _no_own_size
    direct: bool = False  # a convolution that must not be transformed
    stored: Sequence[str | None] = ()  # types of the operands in memory, as far as they are known
    narrowed: bool = False  # a Cast of a weight that was made narrow on request

    def x(self, position: int = 0) -> Tensor:
        """A required operand."""
        found = self.maybe(position)
        if found is None:
            raise Unsupported(f"input {position} is missing")
        return found

    def pack(self, position: int, layout: str) -> Tensor | None:
        """An operand in a layout of the backend's, made once for many calls."""
        return self.k.pack(self.x(position), layout)

    def maybe(self, position: int) -> Tensor | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def has(self, name: str) -> bool:
        return name in self.attributes

    def int(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, default, ir.AttributeType.INT))

    def float(self, name: str, default: float | None = None) -> float:
        """A float attribute: float32 in the format, defaults included."""
        return float(np.float32(self._attribute(name, default, ir.AttributeType.FLOAT)))

    def str(self, name: str, default: str | None = None) -> str:
        return str(self._attribute(name, default, ir.AttributeType.STRING))

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(int(v) for v in self._attribute(name, default, ir.AttributeType.INTS))

    def floats(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        return tuple(float(v) for v in self._attribute(name, default, ir.AttributeType.FLOATS))

    def strs(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        return tuple(str(v) for v in self._attribute(name, default, ir.AttributeType.STRINGS))

    def _attribute(self, name: str, default: Any, kind: ir.AttributeType) -> Any:
        if name in self.attributes:
            attribute = self.attributes[name]
            if attribute.is_ref():
                raise Unsupported(f"attribute {name} refers to a function's attribute")
            if attribute.type != kind:
                raise Unsupported(f"attribute {name} has another type than {kind.name}")
            return attribute.value
        if default is None:
            raise Unsupported(f"attribute {name} is missing")
        return default

    def found_size(self, output: int, axis: int) -> Sym:
        """A symbol for a size of an output that only the data tell."""
        own = self.own_size(output, axis)
        symbol = next(iter(own.syms), None)
        if symbol is None or of(symbol) != own:
            raise Unsupported("a size that depends on data must equal another one")
        return symbol

    def values(self, position: int) -> tuple[Ix, ...] | None:
        """The elements of a small integer operand as size expressions; None when the operand is absent."""
        operand = self.maybe(position)
        if operand is None:
            return None
        found = self.k.values(operand)
        if found is None:
            raise Unsupported(f"the contents of input {position} cannot be told from the inputs' shapes")
        return found

    def numbers(self, position: int) -> tuple[int, ...] | None:
        """Like `values`, when plain numbers are needed at compile time."""
        found = self.values(position)
        if found is None:
            return None
        plain = [v.const for v in found]
        if any(p is None for p in plain):
            raise Unsupported(f"input {position} is not a constant")
        return tuple(p for p in plain if p is not None)


Lowering = Callable[[Call], "Tensor | Sequence[Tensor | None]"]
Reference = Callable[..., "np.ndarray[Any, Any] | tuple[np.ndarray[Any, Any], ...]"]
Cost = Literal["view", "move", "cheap", "heavy"]
Made = Literal["", "contraction", "convolution", "pool"]


@dataclass(frozen=True)
class Declaration:
    """`since` is the first opset version this lowering holds for, `before` the first one it does not (0: none).

    `cost` says what a node is to partitioning: a view, data that are moved, one cheap operation, or worth a region of
    its own; where the node decides it, a function. `steps`: a rounding error before it may become a whole step after
    it. `flops` are those of one element of the result; `work` counts them where they are no such multiple.
    `makes` is the definition of the tensor language that a node is above all, where it is one that kernels are written
    for. `in_stock` is false for ops that stock ONNX Runtime has no kernel for."""

    domain: str
    name: str
    since: int
    before: int
    kind: str
    lowering: Lowering
    reference: Reference | None = None
    cost: Cost | Callable[[ir.Node], Cost] = "cheap"
    steps: bool = False
    flops: float = 0.0
    work: Callable[[Shapes], float] | None = None
    makes: Made = ""
    in_stock: bool = True

    def lower(self, call: Call) -> tuple[Tensor | None, ...]:
        made = self.lowering(call)
        return (made,) if isinstance(made, Tensor) else tuple(made)


KINDS = ("elementwise", "reduction", "normalization", "movement", "shape", "product", "window", "function")
_COSTS: dict[str, Cost] = {"movement": "move", "shape": "view", "product": "heavy", "normalization": "heavy"}
_FLOPS = {"elementwise": 1.0}
_MADE: dict[str, Made] = {"product": "contraction"}
_WORK: dict[str, Callable[[Shapes], float]] = {"reduction": read_work}


@dataclass
class _Registry:
    by_name: dict[tuple[str, str], list[Declaration]] = field(default_factory=dict[tuple[str, str], list[Declaration]])


_registry = _Registry()


def op(
    *names: str, since: int = 1, before: int = 0, kind: str, domain: str = "", reference: Reference | None = None,
    cost: Cost | Callable[[ir.Node], Cost] | None = None, steps: bool | Collection[str] = False,
    flops: float | Mapping[str, float] | None = None, work: Callable[[Shapes], float] | None = None,
    makes: Made | None = None,
) -> Callable[[Lowering], Lowering]:  # fmt: skip
    """Declare the lowering of one or more ops of a domain for opsets in [since, before).

    What is not told of `cost`, `flops` and `makes` follows from the kind; `steps` and `flops` may differ by name."""
    assert kind in KINDS, kind
    usual, rule = _FLOPS.get(kind, 0.0), work or _WORK.get(kind)

    def register(lowering: Lowering) -> Lowering:
        for name in names:
            each = flops.get(name, usual) if isinstance(flops, Mapping) else usual if flops is None else flops
            stepping = steps if isinstance(steps, bool) else name in steps
            weight = cost or _COSTS.get(kind, "cheap")
            made = _MADE.get(kind, "") if makes is None else makes
            declaration = Declaration(
                domain, name, since, before, kind, lowering, reference, weight, stepping, each, rule, made
            )
            _registry.by_name.setdefault((domain, name), []).append(declaration)
        return lowering

    return register


def cost_of(node: ir.Node) -> Cost:
    """What a node is to partitioning; an op that is not declared is one cheap operation."""
    found = _latest(node)
    if found is None:
        return "cheap"
    return found.cost(node) if callable(found.cost) else found.cost


def made_by(node: ir.Node) -> Made:
    """What a node is above all, as far as its name tells."""
    found = _latest(node)
    return "" if found is None else found.makes


def _latest(node: ir.Node) -> Declaration | None:
    found = _registry.by_name.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    return found[-1] if found is not None else None


def register_declaration(declaration: Declaration) -> None:
    _registry.by_name.setdefault((declaration.domain, declaration.name), []).append(declaration)


def forget_declaration(domain: str, name: str) -> None:
    _registry.by_name.pop((domain, name), None)


def lookup(domain: str, name: str, opset: int) -> Declaration | None:
    """The declaration that holds for an opset version, or None."""
    for declaration in _registry.by_name.get(("" if domain == "ai.onnx" else domain, name), ()):
        if declaration.since <= opset and (not declaration.before or opset < declaration.before):
            return declaration
    return None


def declarations() -> list[Declaration]:
    """All declarations, in the order of their names: coverage docs and tests derive from it."""
    return [d for key in sorted(_registry.by_name) for d in _registry.by_name[key]]
