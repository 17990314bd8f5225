"""What is known of every value before anything is fused: dtype, symbolic shape, and contents of small integer tensors.

Input: a model. Output: `Facts`. Invariant: a fact is true for every run; what cannot be told is absent, with a reason
for the node that would need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import onnx_ir as ir

from smelt.base.dtype import BY_NAME
from smelt.ir.direct import is_direct
from smelt.ir.faults import Faults
from smelt.ir.kernel import Builder, Ix, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, substitute
from smelt.ir.kernel.run_time_sizes import depends_on
from smelt.ir.narrowed import is_narrowed
from smelt.ir.walk import subgraphs
from smelt.ops.bodies import outputs_of_bodies
from smelt.ops.facts import CONTENTS_LIMIT, Fact, Facts, filled, source
from smelt.ops.registry import SHORT, Call, Declaration, lookup
from smelt.ops.shape_only import PartialCall, Sized, shapes_of
from smelt.ops.unsupported import reason

FOLLOWED_LIMIT = 32
INVOLVED_LIMIT = 400
_FOLLOWED = frozenset((*E.INTS, "b"))
MAX_WALKS = 4
INT64_MAX = 2**63 - 1
OwnRules = Mapping[tuple[str, str], Callable[[Call], "Sequence[Tensor | None] | None"]]


def analyze(model: ir.Model, faults: Faults | None = None) -> Facts:
    """What is known when the file's names and declarations are believed; and without, where that makes a difference.

    A fault costs its node."""
    faults = faults if faults is not None else Faults()
    facts = _analyzed(model, faults, hints=True)
    if facts.relied:
        facts.general = _general(model, faults)
    return facts


def _general(model: ir.Model, faults: Faults) -> Facts:
    """Facts without hints. Sizes that an op makes equal are one symbol: a walk finds them, the next one uses them."""
    facts, equal = _analyzed(model, faults, hints=False), dict[Atom, Ix]()
    for _ in range(MAX_WALKS):
        found = {s: substitute(size, equal) for s, size in facts.found_equal.items() if s not in equal}
        found = {s: size for s, size in found.items() if not depends_on(size, s)}
        if not found:
            break
        for symbol, size in found.items():
            own = substitute(size, equal)
            if symbol not in equal and not depends_on(own, symbol):
                equal = {s: substitute(e, {symbol: own}) for s, e in equal.items()} | {symbol: own}
        facts = _analyzed(model, faults, hints=False, equal=equal)
    return facts


def _analyzed(model: ir.Model, faults: Faults, *, hints: bool, equal: Mapping[Atom, Ix] | None = None) -> Facts:
    """Walk the main graph once, in order; nested graphs where their nodes stand."""
    opsets = {("" if d == "ai.onnx" else d): v for d, v in model.opset_imports.items()}
    facts = Facts(hints, inputs=frozenset(model.graph.inputs), opsets=opsets, equal=dict(equal or {}), faults=faults)
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        source(facts, value)
    for node in model.graph:
        _node(facts, node)
    return facts


def _node(facts: Facts, node: ir.Node, depth: int = 0) -> None:
    try:
        _study(facts, node, depth)
    except Exception as error:
        facts.unsupported[node] = facts.faults.contain("analyze", error, [node])
        for value in node.outputs:
            facts.by_value.pop(value, None)
            facts.constants.pop(value, None)
            with suppress(Exception):  # what the model declares may do for the nodes behind
                source(facts, value)


def _study(facts: Facts, node: ir.Node, depth: int) -> None:
    builder = facts.builder()
    try:
        outputs = [None if made is None else made[1] for made in lower(facts, builder, node, None)]
        facts.relied = facts.relied or builder.assumed
        if depth == 0:
            facts.found_equal = builder.found_equal | facts.found_equal
    except Unsupported as unsupported:
        facts.unsupported[node] = str(unsupported)
        outputs = _shapes(facts, node, depth)
    outputs = [*outputs, *[None] * (len(node.outputs) - len(outputs))]
    for value, fact in zip(node.outputs, outputs, strict=False):
        if fact is not None and _bounded(fact):
            facts.by_value[value] = fact
        else:
            source(facts, value)
    if node.op_type == "Constant" and not node.domain:
        _constant_node(facts, node)


def _constant_node(facts: Facts, node: ir.Node) -> None:
    """A constant is known, and read as a buffer with contents, whether it is an initializer or a node."""
    value = node.outputs[0]
    attribute = node.attributes.get("value")
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return
    tensor = attribute.as_tensor()
    dtype = SHORT.get(tensor.dtype)
    if dtype is None:
        return
    fact = facts.by_value.setdefault(value, Fact(dtype, tuple(ix(d) for d in tensor.shape.numpy())))
    if fact.contents is None and 0 < tensor.size <= CONTENTS_LIMIT:
        facts.constants[value] = filled(facts, value, fact, tensor)


def _shapes(facts: Facts, node: ir.Node, depth: int) -> list[Fact | None]:
    """What a shape rule says of a node without a lowering."""
    try:
        if _domain(node) == "" and any(True for _ in subgraphs(node)):
            return outputs_of_bodies(facts, node, depth, _node)
        builder = facts.builder()
        operands = [facts.tensor(builder, v) if v is not None and v in facts.by_value else None for v in node.inputs]
        unknown = frozenset(i for i, v in enumerate(node.inputs) if v is not None and operands[i] is None)
        call = PartialCall(*_parts(facts, builder, node, operands), unknown=unknown)
        found = shapes_of(_domain(node), call)
    except Unsupported:
        return []
    return [_sized(facts, v, s) for v, s in zip(node.outputs, found or (), strict=False)]


def _sized(facts: Facts, value: ir.Value, sized: Sized | None) -> Fact | None:
    if sized is None:
        return None
    free = (facts.own_size(value, axis) for axis in range(len(sized.shape)))
    sizes = (None if s is None else ix(s) for s in sized.shape)
    return Fact(sized.dtype, tuple(own if s is None or _involved(s) else s for own, s in zip(free, sizes, strict=True)))


def _involved(size: Ix) -> bool:
    """Too long to be of use: the value's own size is taken as it comes, for no region computes it."""
    return len(size.key) > INVOLVED_LIMIT


def _bounded(fact: Fact) -> bool:
    return all(s.const is None or 0 <= s.const <= INT64_MAX for s in fact.shape)


def lower(
    facts: Facts, builder: Builder, node: ir.Node, inside: dict[ir.Value, Tensor] | None, own: OwnRules | None = None
) -> list[tuple[Tensor, Fact] | None]:
    """A node's outputs in the tensor language. `inside` holds values already made in the same region; `own` are rules
    of a backend, which come before the op's declaration where they give something."""
    declaration = declaration_of(facts, node)
    if declaration.in_stock:
        _check_types(facts, node)
    operands = [_operand(facts, builder, v, inside) for v in node.inputs]
    call = Call(*_parts(facts, builder, node, operands))
    call.own_size = lambda output, axis: facts.own_size(node.outputs[output], axis)
    call.direct, call.narrowed = is_direct(node), is_narrowed(node)
    call.stored = [facts.by_value[v].dtype if v in facts.by_value else None for v in node.inputs]
    rule = own.get((_domain(node), node.op_type)) if own is not None else None
    made = (rule(call) if rule is not None else None) or declaration.lower(call)
    return [_output(builder, tensor, value) for tensor, value in zip(made, node.outputs, strict=False)]


def _check_types(facts: Facts, node: ir.Node) -> None:
    """A result of narrow operands may be narrow or not: only the model tells."""
    narrow = any(v is not None and v in facts.by_value and facts.by_value[v].dtype in E.NARROW for v in node.inputs)
    if narrow and any(v.dtype is None for v in node.outputs if v.name):
        raise Unsupported("the type of an output is not known")


def _parts(
    facts: Facts, builder: Builder, node: ir.Node, operands: Sequence[Tensor | None]
) -> tuple[Builder, str, int, Sequence[Tensor | None], Mapping[str, ir.Attr], int, Sequence[str | None]]:
    declared = [SHORT.get(v.dtype) if v.dtype is not None else None for v in node.outputs]
    opset = facts.opsets.get(_domain(node), 1)
    return builder, node.op_type, opset, operands, node.attributes, len(node.outputs), declared


def _domain(node: ir.Node) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _output(builder: Builder, tensor: Tensor | None, value: ir.Value) -> tuple[Tensor, Fact] | None:
    """A result in the type that it is computed in, and what is stored of it where it leaves the region."""
    if tensor is None:
        return None
    made, dtype = builder.computable(tensor), tensor.dtype
    declared = SHORT.get(value.dtype) if value.dtype is not None else None
    if declared in E.NARROW and made.dtype == BY_NAME[declared].compute:
        dtype = declared
    return made, Fact(dtype, made.shape, _contents(builder, made))


def _contents(builder: Builder, tensor: Tensor) -> tuple[Ix, ...] | None:
    """Followed for what shape arithmetic is made of: a few integers or truth values."""
    if tensor.dtype not in _FOLLOWED:
        return None
    count = tensor.elements.const
    if count is None or not 0 <= count <= FOLLOWED_LIMIT:
        return None
    found = builder.values(tensor)
    return None if found is None or any(_involved(v) for v in found) else found


def declaration_of(facts: Facts, node: ir.Node) -> Declaration:
    domain = _domain(node)
    opset = facts.opsets.get(domain)
    if opset is None:
        raise Unsupported(f"the model imports no opset for domain {domain!r}")
    found = lookup(domain, node.op_type, opset)
    if found is None:
        raise Unsupported(reason(domain, node.op_type))
    return found


def _operand(
    facts: Facts, builder: Builder, value: ir.Value | None, inside: dict[ir.Value, Tensor] | None
) -> Tensor | None:
    if value is None:
        return None
    if inside is not None and value in inside:
        return inside[value]
    if value not in facts.by_value:
        raise Unsupported(f"the type or rank of an input is unknown or has no kernel ({_type_text(value)})")
    return facts.tensor(builder, value)


def _type_text(value: ir.Value) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else "no type"
    return f"{dtype}, {'shape known' if value.shape is not None else 'no shape'}"
