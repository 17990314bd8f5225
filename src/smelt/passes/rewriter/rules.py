"""A rule: one pattern of nodes and what takes its place.

Input: a node, and a `Rewrite` that makes nodes in front of it. Output: the values that take the place of the node's
outputs, or None where the rule does not apply. Invariant: what a rule made and then gave up is gone again; outputs of
the graph keep their names; a result of another type than the one it replaces is an error that names the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.base.errors import ConfigError
from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import Array, Names, add_constant, array_of, replace_value, scalar_of

_DOMAIN_VERSION = 1
Result = ir.Value | Sequence[ir.Value] | None


class Rewrite:
    """What a rule may do at one node."""

    def __init__(self, node: ir.Node, model: ir.Model, names: Names) -> None:
        self.node = node
        self.model = model
        self._names = names
        self._made: list[ir.Node] = []

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return self.model.opset_imports.get("", 0)

    def op(
        self, op_type: str, *inputs: ir.Value | None, domain: str = "", outputs: int = 1, like: ir.Value | None = None,
        **attributes: Any,
    ) -> Any:  # fmt: skip
        """A new node; its output, or the list of them. `like`: a value of the same type and shape, if one is known."""
        assert self.node.graph is not None
        values = [ir.Value(name=self._names.fresh("v")) for _ in range(outputs)]
        if like is not None:
            values[0].type, values[0].shape = like.type, like.shape
        given = [attribute(name, value) for name, value in attributes.items()]
        made = ir.Node(domain, op_type, inputs, given, outputs=values, name=self._names.fresh(op_type))
        made.metadata_props.update(self.node.metadata_props)
        self.node.graph.insert_before(self.node, made)
        self._made.append(made)
        return values[0] if outputs == 1 else values

    def constant(self, content: Any, like: ir.Value | None = None) -> ir.Value:
        """An initializer; of the type of `like`, if given."""
        graph = self.node.graph
        if not isinstance(graph, ir.Graph):
            raise TypeError("functions have no initializers")
        dtype = like.dtype.numpy() if like is not None and like.dtype is not None else None
        return add_constant(graph, np.asarray(content, dtype), self._names)

    def array(self, value: ir.Value | None, max_size: int = 1024) -> Array | None:
        """The content of a small constant."""
        return array_of(value, max_size)

    def number(self, value: ir.Value | None) -> float | None:
        """The number in a constant of one element."""
        return scalar_of(value)

    def give_up(self) -> None:
        for made in reversed(self._made):
            if made.graph is not None:
                made.graph.remove(made, safe=True)
        self._made.clear()

    def keep(self) -> None:
        for made in self._made:
            self.model.opset_imports.setdefault(made.domain, _DOMAIN_VERSION)


def attribute(name: str, value: Any) -> ir.Attr:
    """A Python value as an attribute."""
    return ir.convenience.convert_attribute(name, value)


Match = Callable[[ir.Node, Rewrite], Result]


@dataclass(frozen=True)
class Rule:
    """A named rule. `ops`: the op types of the nodes it is tried at, `Op` or `domain::Op`; none means every node."""

    name: str
    apply: Match
    ops: frozenset[str] = frozenset()
    sets: tuple[str, ...] = ()
    text: str = ""

    def __call__(self, model: ir.Model) -> Outcome:
        names = Names(model)
        count = 0
        for graph in model_graphs(model):
            for node in [node for node in graph if self._fits(node)]:
                if node.graph is not None and self._applied(node, model, names):
                    count += 1
        return Outcome(Counter({"applied": count}) if count else Counter())

    def _fits(self, node: ir.Node) -> bool:
        return not self.ops or (f"{node.domain}::{node.op_type}" if node.domain else node.op_type) in self.ops

    def _applied(self, node: ir.Node, model: ir.Model, names: Names) -> bool:
        rewrite = Rewrite(node, model, names)
        try:
            result = self.apply(node, rewrite)
            values = [] if result is None else [result] if isinstance(result, ir.Value) else list(result)
            done = bool(values) and self._replaced(node, values)
        except BaseException:
            rewrite.give_up()
            raise
        if not done:
            rewrite.give_up()
            return False
        rewrite.keep()
        drop_unread([node])
        return True

    def _replaced(self, node: ir.Node, values: list[ir.Value]) -> bool:
        if len(values) != len(node.outputs):
            raise self._wrong(node, f"gives {len(values)} values for {len(node.outputs)} outputs")
        for old, new in zip(node.outputs, values, strict=True):
            if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
                raise self._wrong(node, f"gives a {new.dtype.name} value for a {old.dtype.name} one")
            if new.producer() is None and old.is_graph_output():
                return False
        for old, new in zip(node.outputs, values, strict=True):
            new.type = new.type or old.type
            new.shape = new.shape or old.shape
            if not replace_value(old, new):
                return False
        return True

    def _wrong(self, node: ir.Node, what: str) -> ConfigError:
        return ConfigError("SM-PASS-003", f"the rule {self.name!r} {what}", node=node.name)


def drop_unread(nodes: Iterable[ir.Node]) -> None:
    """Take nodes that nothing reads out of their graph, and what only they have read."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node.graph is None or any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue
        makers = [maker for value in node.inputs if value is not None and (maker := value.producer()) is not None]
        node.graph.remove(node, safe=True)
        pending.extend(makers)


def borrowed(given: Any, name: str | None = None) -> Rule | None:
    """A rule or a set of rules of `onnxscript.rewriter`, as a rule; None for anything else."""
    apply = getattr(given, "apply_to_model", None)
    if apply is None:
        return None
    title = name or getattr(given, "name", None) or type(given).__name__
    return _Borrowed(str(title), _never, text="from onnxscript.rewriter", apply_to_model=apply)


def _never(node: ir.Node, rewrite: Rewrite) -> None:
    del node, rewrite


@dataclass(frozen=True)
class _Borrowed(Rule):
    """Rules of onnxscript walk the model themselves."""

    apply_to_model: Callable[[ir.Model], int] = lambda _: 0

    def __call__(self, model: ir.Model) -> Outcome:
        count = self.apply_to_model(model)
        return Outcome(Counter({"applied": count}) if count else Counter())
