"""What is known inside of If, Loop and Scan, and of what they give.

Input: facts so far, a node with bodies, and the function that states the facts of one node. Output: facts of the node's
outputs; those of the bodies' own values are added. Invariant: a carried value has the facts that hold before the first
trip and, by the body itself, after every trip; what changes from trip to trip is a size of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from smelt.ir.kernel import Ix, Sym, of
from smelt.ir.walk import nested_graphs
from smelt.ops.facts import Fact, Facts, declared_fact, source

NESTING_LIMIT = 8
PATIENT_DEPTH = 2  # deeper loops are looked at once, not once for each way of stating their sizes

Known = Fact | None
State = Callable[[Facts, ir.Node, int], None]


def outputs_of_bodies(facts: Facts, node: ir.Node, depth: int, state: State) -> list[Known]:
    """One for each output, None where nothing is known; none at all for a node without bodies that are understood."""
    if depth >= NESTING_LIMIT:
        return []
    if node.op_type == "If":
        return _branches(facts, node, depth, state)
    if node.op_type == "Loop":
        return _loop(facts, node, depth, state)
    if node.op_type == "Scan" and facts.opsets.get("", 1) >= 9:
        return _scan(facts, node, depth, state)
    return []


def _graph(node: ir.Node, name: str) -> ir.Graph | None:
    found = node.attributes.get(name)
    return None if found is None or found.is_ref() or found.type != ir.AttributeType.GRAPH else found.as_graph()


def _walk(facts: Facts, graph: ir.Graph, depth: int, state: State) -> list[Known]:
    """Facts of a nested graph's outputs."""
    for value in graph.initializers.values():
        source(facts, value)
    for node in graph:
        state(facts, node, depth + 1)
    return [_without_contents(facts.by_value.get(v)) for v in graph.outputs]


def _without_contents(fact: Known) -> Known:
    return None if fact is None else Fact(fact.dtype, fact.shape)


# If


def _branches(facts: Facts, node: ir.Node, depth: int, state: State) -> list[Known]:
    """What both branches agree on, or what the branch that is always taken says."""
    graphs = {name: graph for name in ("then_branch", "else_branch") if (graph := _graph(node, name)) is not None}
    sides = {name: _walk(facts, graph, depth, state) for name, graph in graphs.items()}
    taken = _truth(facts, node.inputs[0]) if node.inputs else None
    names = ["then_branch", "else_branch"] if taken is None else ["then_branch" if taken else "else_branch"]
    kept = [sides[name] for name in names if name in sides]
    if len(kept) != len(names) or any(len(side) < len(node.outputs) for side in kept):
        return []
    return [outs[0] if all(o == outs[0] for o in outs) else None for outs in zip(*kept, strict=False)]


def _truth(facts: Facts, value: ir.Value | None) -> bool | None:
    fact = facts.by_value.get(value) if value is not None else None
    if value in facts.constants and (contents := facts.constants[value].contents):
        return bool(contents[0])
    if fact is not None and fact.contents and fact.contents[0].const is not None:
        return bool(fact.contents[0].const)
    return None


# Loop and Scan


def _loop(facts: Facts, node: ir.Node, depth: int, state: State) -> list[Known]:
    """Inputs: trips, condition, carried. The body gets a number, the condition and what is carried."""
    body, carried = _graph(node, "body"), len(node.inputs) - 2
    if body is None or carried < 0 or len(body.inputs) != carried + 2 or len(body.outputs) <= carried:
        return []
    number, condition = (_stated(facts, v, dtype) for v, dtype in zip(body.inputs, ("i64", "b"), strict=False))
    first = [number, condition, *(_known(facts, v) for v in node.inputs[2:])]
    outer = _symbols(facts)
    found = _invariant(facts, body, first, {2 + n: 1 + n for n in range(carried)}, depth, state)
    made = [_outside(facts, v, f, outer) for v, f in zip(node.outputs, found[0][2:], strict=False)]
    rows = zip(node.outputs[carried:], found[1][1 + carried :], strict=False)
    return made + [_outside(facts, v, _stacked(facts, v, f), outer) for v, f in rows]


def _scan(facts: Facts, node: ir.Node, depth: int, state: State) -> list[Known]:
    """Inputs: carried, then what is walked along an axis. The body gets what is carried and one slice of each."""
    body, count = _graph(node, "body"), node.attributes.get("num_scan_inputs")
    walked = 0 if count is None or count.is_ref() else count.as_int()
    carried = len(node.inputs) - walked
    if body is None or not 0 < walked <= len(node.inputs) or len(body.inputs) != len(node.inputs):
        return []
    axes = _ints(node, "scan_input_axes") or [0] * walked
    slices = [_slice(_known(facts, v), axis) for v, axis in zip(node.inputs[carried:], axes, strict=False)]
    first = [*(_known(facts, v) for v in node.inputs[:carried]), *slices]
    if len(first) != len(body.inputs):
        return []
    outer = _symbols(facts)
    found, _ = _invariant(facts, body, first, {n: n for n in range(carried)}, depth, state)
    return [_outside(facts, v, f, outer) for v, f in zip(node.outputs, found[:carried], strict=False)]


def _ints(node: ir.Node, name: str) -> list[int]:
    found = node.attributes.get(name)
    return [] if found is None or found.is_ref() else list(found.as_ints())


def _known(facts: Facts, value: ir.Value | None) -> Known:
    return _without_contents(facts.by_value.get(value)) if value is not None else None


def _stated(facts: Facts, value: ir.Value, dtype: str) -> Fact:
    """A loop's number or condition: a scalar, or one element where the body says so."""
    declared = declared_fact(facts, value)
    return declared if declared is not None and declared.dtype == dtype else Fact(dtype, ())


def _slice(fact: Known, axis: int) -> Known:
    if fact is None or not -len(fact.shape) <= axis < len(fact.shape):
        return None
    gone = axis % len(fact.shape)
    return Fact(fact.dtype, tuple(s for n, s in enumerate(fact.shape) if n != gone))


def _invariant(
    facts: Facts, body: ir.Graph, first: Sequence[Known], back: dict[int, int], depth: int, state: State
) -> tuple[list[Known], list[Known]]:
    """Facts of the body's inputs that hold in every trip, and those of its outputs. `back` says which output an input
    comes from: as it starts, then with the sizes free that change, then with all of them free, then unknown."""
    given = list(first)
    if depth >= PATIENT_DEPTH:
        given = [_freed(facts, v, f, None) if n in back else f for n, (v, f) in enumerate(_pairs(body, given))]
    for _ in range(3):
        made = _trip(facts, body, given, depth, state)
        later = {n: made[place] for n, place in back.items()}
        if all(given[n] is None or _covers(facts, body.inputs[n], given[n], f) for n, f in later.items()):
            return given, made
        given = [_freed(facts, v, f, later[n]) if n in later else f for n, (v, f) in enumerate(_pairs(body, given))]
    given = [None if n in back else f for n, f in enumerate(given)]
    return given, _trip(facts, body, given, depth, state)


def _pairs(body: ir.Graph, given: Sequence[Known]) -> list[tuple[ir.Value, Known]]:
    return list(zip(body.inputs, given, strict=True))


def _trip(facts: Facts, body: ir.Graph, given: Sequence[Known], depth: int, state: State) -> list[Known]:
    """The body with these inputs; what was found before with others is forgotten."""
    for graph in nested_graphs(body):
        for node in graph:
            facts.unsupported.pop(node, None)
            for value in node.outputs:
                facts.by_value.pop(value, None)
        for value in graph.inputs:
            facts.by_value.pop(value, None)
    facts.by_value.update((value, fact) for value, fact in _pairs(body, given) if fact is not None)
    return _walk(facts, body, depth, state)


def _own(facts: Facts, value: ir.Value, axis: int) -> Ix:
    return of(Sym(f"{facts.name(value)}.{axis}"))


def _covers(facts: Facts, value: ir.Value, fact: Known, later: Known) -> bool:
    """Whether what the body gives back is again what it was given; a size of the value's own may be any."""
    if fact is None or later is None or fact.dtype != later.dtype or len(fact.shape) != len(later.shape):
        return False
    sides = enumerate(zip(fact.shape, later.shape, strict=True))
    return all(a == b or a == _own(facts, value, axis) for axis, (a, b) in sides)


def _freed(facts: Facts, value: ir.Value, fact: Known, later: Known) -> Known:
    """Sizes that differ from those of the next trip become the value's own; all of them where no next trip is known."""
    if fact is None or (later is not None and (later.dtype, len(later.shape)) != (fact.dtype, len(fact.shape))):
        return None
    kept = later.shape if later is not None else (None,) * len(fact.shape)
    sides = enumerate(zip(fact.shape, kept, strict=True))
    return Fact(fact.dtype, tuple(a if a == b else _own(facts, value, axis) for axis, (a, b) in sides))


# what leaves a body


def _symbols(facts: Facts) -> set[Sym]:
    return {s for fact in facts.by_value.values() for size in fact.shape for s in size.syms}


def _outside(facts: Facts, value: ir.Value, fact: Known, outer: set[Sym]) -> Known:
    """A size that only the body knows is the value's own outside."""
    if fact is None:
        return None
    sides = enumerate(fact.shape)
    return Fact(fact.dtype, tuple(s if s.syms <= outer else _own(facts, value, axis) for axis, s in sides))


def _stacked(facts: Facts, value: ir.Value, fact: Known) -> Known:
    """One row for each trip."""
    return None if fact is None else Fact(fact.dtype, (_own(facts, value, 0), *fact.shape))
