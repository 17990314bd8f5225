"""What is known of values: the record, and what a model itself states.

Input: values of a model. Output: `Facts`. Invariant: without `hints` a fact is true for every run that stock ONNX
Runtime takes: a symbol stands for one axis of one value until an op's own rule makes two equal. With `hints` the file
is believed: equal names are equal sizes, and declared shapes are right; whoever relies on that checks it at run time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from smelt.ir.faults import Faults
from smelt.ir.kernel import Buffer, Builder, Ix, Sym, Tensor, ix, of
from smelt.ir.kernel.index import Atom, substitute
from smelt.ir.sizes import is_derived
from smelt.ir.weights import is_packable
from smelt.ops.registry import SHORT

CONTENTS_LIMIT = 64
NO_NAMES = frozenset(("", "?", "None", "unk", "unknown", "dynamic", "-1"))


@dataclass(frozen=True)
class Fact:
    """A tensor value. `contents` are the elements of a small integer tensor as size expressions."""

    dtype: str
    shape: tuple[Ix, ...]
    contents: tuple[Ix, ...] | None = None


@dataclass
class Facts:
    """Facts by value, unsupported by node. `ids` numbers values so that no model string is needed further down;
    `faults` takes what an op's rule raises where it should not.

    `general` are the facts without hints, where those with hints rely on any; `inputs` are the model's own. `equal` are
    symbols that the rule of some op of the main graph, which every run computes, makes another size."""

    hints: bool = False
    relied: bool = False
    general: Facts | None = None
    inputs: frozenset[ir.Value] = frozenset()
    equal: dict[Atom, Ix] = field(default_factory=dict[Atom, Ix])
    found_equal: dict[Atom, Ix] = field(default_factory=dict[Atom, Ix])
    named: dict[str, tuple[ir.Value, int]] = field(default_factory=dict[str, tuple[ir.Value, int]])
    by_value: dict[ir.Value, Fact] = field(default_factory=dict[ir.Value, Fact])
    unsupported: dict[ir.Node, str] = field(default_factory=dict[ir.Node, str])
    ids: dict[ir.Value, int] = field(default_factory=dict[ir.Value, int])
    opsets: dict[str, int] = field(default_factory=dict[str, int])
    constants: dict[ir.Value, Buffer] = field(default_factory=dict[ir.Value, Buffer])
    faults: Faults = field(default_factory=Faults)

    def builder(self) -> Builder:
        return Builder(assuming=self.hints, equal=self.equal)

    def own_size(self, value: ir.Value, axis: int) -> Ix:
        """A symbol for one axis of one value, or what an op's rule makes it."""
        return substitute(of(Sym(f"{self.name(value)}.{axis}")), self.equal)

    def name(self, value: ir.Value) -> str:
        return f"v{self.ids.setdefault(value, len(self.ids))}"

    def tensor(self, builder: Builder, value: ir.Value) -> Tensor:
        """The value as an operand, in the type that it is computed in."""
        return builder.computable(self.stored(builder, value))

    def stored(self, builder: Builder, value: ir.Value) -> Tensor:
        """The value in its own type: known contents as size expressions, anything else as storage."""
        fact = self.by_value[value]
        if value in self.constants:
            return builder.stored(self.constants[value])
        if fact.contents is not None:
            flat = builder.vector_of(fact.contents, fact.dtype) if fact.contents else None
            if flat is not None:
                return flat if fact.shape == flat.shape else builder.reshape(flat, fact.shape)
        table = _reshaped_table(value)
        if table is not None and table in self.by_value:
            return builder.reshape(self.stored(builder, table), fact.shape)
        return builder.stored(Buffer(self.name(value), fact.dtype, fact.shape, weight=_weight(value)))


def source(facts: Facts, value: ir.Value) -> None:
    """What the model states of an input, a constant or a value whose node says nothing."""
    declared = declared_fact(facts, value)
    if declared is None:
        return
    facts.by_value[value] = declared
    constant = constant_buffer(facts, value, declared)
    if constant is not None:
        facts.constants[value] = constant


def constant_buffer(facts: Facts, value: ir.Value, fact: Fact) -> Buffer | None:
    """Storage with its contents, for a constant that is small enough to be written into code."""
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or tensor.size > CONTENTS_LIMIT:
        return None
    return filled(facts, value, fact, tensor)


def filled(facts: Facts, value: ir.Value, fact: Fact, tensor: ir.TensorProtocol) -> Buffer:
    array = np.asarray(tensor.numpy()).reshape(-1)
    contents = tuple(array.tolist())
    return Buffer(facts.name(value), fact.dtype, fact.shape, contents=contents, weight=_weight(value))


def _weight(value: ir.Value) -> ir.Value | None:
    return value if is_packable(value) else None


def _reshaped_table(value: ir.Value) -> ir.Value | None:
    """The weight that is reshaped for rows to be gathered from it: they are read from the weight as it is packed."""
    maker, users = value.producer(), value.uses()
    if maker is None or maker.op_type != "Reshape" or not users or value.is_graph_output():
        return None
    if any(user.node.op_type != "GatherBlockQuantized" for user in users):
        return None
    source = maker.inputs[0]
    return source if source is not None and source.is_initializer() and is_packable(source) else None


def declared_fact(facts: Facts, value: ir.Value) -> Fact | None:
    """From the type and shape that the model itself states."""
    dtype = SHORT.get(value.dtype) if value.dtype is not None else None
    if dtype is None or value.shape is None or not isinstance(value.type, ir.TensorType):
        return None
    return Fact(dtype, tuple(_size(facts, value, axis, d) for axis, d in enumerate(value.shape)))


def _size(facts: Facts, value: ir.Value, axis: int, dim: int | ir.SymbolicDim) -> Ix:
    own = facts.own_size(value, axis)
    if isinstance(dim, int):
        return own if dim < 0 or not _believed(facts, value) else ix(dim)
    if not facts.hints or dim.value is None or dim.value in NO_NAMES:
        return own
    if facts.named.setdefault(dim.value, (value, axis)) != (value, axis):
        facts.relied = True
    return of(Sym(f"d:{dim.value}"))


def _believed(facts: Facts, value: ir.Value) -> bool:
    """Whether a number in the value's shape holds: stock insists on it, it was derived, or hints are believed."""
    if value in facts.inputs or value.const_value is not None or is_derived(value):
        return True
    facts.relied = facts.relied or facts.hints
    return facts.hints
