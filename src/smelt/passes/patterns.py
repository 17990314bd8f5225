"""`smelt.patterns`: rules of one's own, beside those of smelt.

Input: functions over `onnx_ir` nodes, or rules of `onnxscript.rewriter`. Output: named rules that selectors can choose.
Invariant: registering changes no run that does not ask for the rule by its name or set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from smelt.base.errors import ConfigError
from smelt.passes import TABLE, run_passes
from smelt.passes.rewriter.rules import Match, Rewrite, Rule, borrowed
from smelt.passes.rewriter.selection import named


def rule(name: str, ops: str | Iterable[str] = (), sets: Iterable[str] = ()) -> Callable[[Match], Rule]:
    """Make a rule of a function, and register it.

        @smelt.patterns.rule("double-to-add", ops="Mul")
        def double(node, rewrite):
            "x * 2 -> x + x"
            if rewrite.number(node.inputs[1]) == 2:
                return rewrite.op("Add", node.inputs[0], node.inputs[0])

    The function gets a node and a `Rewrite`, and returns what takes the place of the node's outputs, or None. `ops` are
    the op types it is tried at (`Op` or `domain::Op`), `sets` the sets that it joins.
    """
    kinds = frozenset((ops,) if isinstance(ops, str) else ops)

    def made(match: Match) -> Rule:
        text = (match.__doc__ or "").strip().partition("\n")[0]
        found = Rule(name, match, kinds, tuple(sets), text)
        TABLE.register(found)
        return found

    return made


def register(given: Any, name: str | None = None, sets: Iterable[str] = ()) -> Rule:
    """Register a rule: one made by `rule`, or a rule or set of rules of `onnxscript.rewriter`."""
    found = named(given, name) if isinstance(given, Rule) else borrowed(given, name)
    if found is None:
        raise ConfigError("SM-PASS-004", f"a {type(given).__name__} is no rule")
    found = replace(found, sets=(*found.sets, *sets))
    TABLE.register(found)
    return found


def forget(name: str) -> None:
    """Take a registered rule away again."""
    TABLE.own.pop(name, None)


def names() -> list[str]:
    """Every pass and rule, in the order in which they run."""
    return TABLE.names()


def sets() -> dict[str, tuple[str, ...]]:
    """Every set with what belongs to it."""
    return TABLE.sets


def describe() -> list[tuple[str, str, str]]:
    """(name, sets, what it does) of every pass and rule."""
    own = [(rule.name, ", ".join(rule.sets), rule.text) for rule in TABLE.own.values()]
    return [*((e.name, ", ".join(e.sets), e.text) for e in TABLE.entries.values()), *own]


__all__ = ["Rewrite", "Rule", "describe", "forget", "names", "register", "rule", "run_passes", "sets"]
