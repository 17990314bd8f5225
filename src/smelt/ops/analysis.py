"""What is known of every value before anything is fused: dtype, symbolic shape, and contents of small integer tensors.

Input: a model. Output: `Facts`. Invariant: a fact is true for every run; what cannot be told is absent, with a reason
for the node that would need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel import Buffer, Builder, Ix, Refusal, Sym, Tensor, ix, of
from smelt.ir.kernel import expr as E

from .registry import SHORT, Call, Declaration, lookup

CONTENTS_LIMIT = 64
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Fact:
    """A tensor value. `contents` are the elements of a small integer tensor as size expressions."""

    dtype: str
    shape: tuple[Ix, ...]
    contents: tuple[Ix, ...] | None = None


@dataclass
class Facts:
    """Facts by value, refusals by node. `ids` numbers values so that no model string is needed further down."""

    by_value: dict[ir.Value, Fact] = field(default_factory=dict[ir.Value, Fact])
    refusals: dict[ir.Node, str] = field(default_factory=dict[ir.Node, str])
    ids: dict[ir.Value, int] = field(default_factory=dict[ir.Value, int])
    opsets: dict[str, int] = field(default_factory=dict[str, int])
    constants: dict[ir.Value, Buffer] = field(default_factory=dict[ir.Value, Buffer])

    def name(self, value: ir.Value) -> str:
        return f"v{self.ids.setdefault(value, len(self.ids))}"

    def tensor(self, builder: Builder, value: ir.Value) -> Tensor:
        """The value as an operand: known contents as size expressions, anything else as storage."""
        fact = self.by_value[value]
        if value in self.constants:
            return builder.stored(self.constants[value])
        if fact.contents is not None:
            flat = builder.vector_of(fact.contents, fact.dtype) if fact.contents else None
            if flat is not None:
                return flat if fact.shape == flat.shape else builder.reshape(flat, fact.shape)
        return builder.stored(Buffer(self.name(value), fact.dtype, fact.shape))


def analyze(model: ir.Model) -> Facts:
    """Walk the main graph once, in order. Iterative; nested graphs are left to ONNX Runtime."""
    facts = Facts(opsets={("" if d == "ai.onnx" else d): v for d, v in model.opset_imports.items()})
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        _source(facts, value)
    for node in model.graph:
        _node(facts, node)
    return facts


def _source(facts: Facts, value: ir.Value) -> None:
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
    array = np.asarray(tensor.numpy()).reshape(-1)
    return Buffer(facts.name(value), fact.dtype, fact.shape, contents=tuple(array.tolist()))


def declared_fact(facts: Facts, value: ir.Value) -> Fact | None:
    """From the type and shape that the model itself states."""
    dtype = SHORT.get(value.dtype) if value.dtype is not None else None
    if dtype is None or value.shape is None or not isinstance(value.type, ir.TensorType):
        return None
    return Fact(dtype, tuple(_size(facts, value, axis, d) for axis, d in enumerate(value.shape)))


def _size(facts: Facts, value: ir.Value, axis: int, dim: int | ir.SymbolicDim) -> Ix:
    if isinstance(dim, int):
        return ix(dim)
    if dim.value is None:
        return of(Sym(f"{facts.name(value)}.{axis}"))
    return of(Sym(f"d:{dim.value}"))


def _node(facts: Facts, node: ir.Node) -> None:
    try:
        outputs = meaning(facts, Builder(), node, None)
    except Refusal as refusal:
        facts.refusals[node] = str(refusal)
        outputs = [None] * len(node.outputs)
    for value, made in zip(node.outputs, outputs, strict=False):
        if made is not None and _bounded(made[1]):
            facts.by_value[value] = made[1]
        else:
            _source(facts, value)


def _bounded(fact: Fact) -> bool:
    return all(s.const is None or 0 <= s.const <= INT64_MAX for s in fact.shape)


def meaning(
    facts: Facts, builder: Builder, node: ir.Node, inside: dict[ir.Value, Tensor] | None
) -> list[tuple[Tensor, Fact] | None]:
    """A node's outputs in the tensor language. `inside` holds values already made in the same region."""
    declaration = declaration_of(facts, node)
    operands = [_operand(facts, builder, v, inside) for v in node.inputs]
    call = Call(
        builder, node.op_type, facts.opsets.get(node.domain, 1), operands, node.attributes, len(node.outputs),
        [SHORT.get(v.dtype) if v.dtype is not None else None for v in node.outputs],
    )  # fmt: skip
    made = declaration.lower(call)
    return [_output(builder, t) for t in made]


def _output(builder: Builder, tensor: Tensor | None) -> tuple[Tensor, Fact] | None:
    if tensor is None:
        return None
    contents = builder.values(tensor) if tensor.dtype in E.INTS and tensor.rank <= 1 else None
    return tensor, Fact(tensor.dtype, tensor.shape, contents)


def declaration_of(facts: Facts, node: ir.Node) -> Declaration:
    domain = "" if node.domain == "ai.onnx" else node.domain
    opset = facts.opsets.get(domain)
    if opset is None:
        raise Refusal(f"the model imports no opset for domain {domain!r}")
    found = lookup(domain, node.op_type, opset)
    if found is None:
        raise Refusal("no kernel for this op yet")
    return found


def _operand(
    facts: Facts, builder: Builder, value: ir.Value | None, inside: dict[ir.Value, Tensor] | None
) -> Tensor | None:
    if value is None:
        return None
    if inside is not None and value in inside:
        return inside[value]
    if value not in facts.by_value:
        raise Refusal(f"the type or rank of an input is unknown or has no kernel ({_type_text(value)})")
    return facts.tensor(builder, value)


def _type_text(value: ir.Value) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else "no type"
    return f"{dtype}, {'shape known' if value.shape is not None else 'no shape'}"


