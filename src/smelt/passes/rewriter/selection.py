"""Which passes and rules run: names, sets of names, and text that chooses among them.

Input: a selector: `"default+ort"`, `"default-recompose-gelu"`, or a list of such text and rules. Output: the
chosen passes in the order of the table, rules of the user's before the last of them. Invariant: an unknown name is an
error that says which are known; what a process registered is chosen by its own name or set only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

from smelt.base.errors import ConfigError
from smelt.passes.rewriter.outcome import Pass
from smelt.passes.rewriter.rules import Rule, borrowed

Patterns = str | Rule | Sequence[Any]
NOTHING: Final = "none"


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    name: str
    make: Callable[[], Pass]
    sets: tuple[str, ...]
    text: str


@dataclass
class Table:
    """All that can be chosen: the passes in their order, and the rules of this process."""

    entries: Mapping[str, Entry]
    own: dict[str, Rule] = field(default_factory=dict[str, Rule])

    @property
    def sets(self) -> dict[str, tuple[str, ...]]:
        """Set -> names, in the order in which they run."""
        found: dict[str, list[str]] = {}
        for name, sets in self._rows():
            for each in sets:
                found.setdefault(each, []).append(name)
        return {name: tuple(names) for name, names in found.items()}

    def _rows(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        yield from ((entry.name, entry.sets) for entry in self.entries.values())
        yield from ((rule.name, rule.sets) for rule in self.own.values())

    def names(self) -> list[str]:
        return [*self.entries, *self.own]

    def register(self, rule: Rule) -> None:
        if rule.name in self.entries or rule.name in self.sets or rule.name == NOTHING:
            raise ConfigError("SM-PASS-004", f"{rule.name!r} is a name of smelt's own")
        if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", rule.name):
            raise ConfigError("SM-PASS-004", f"{rule.name!r} is not of small letters, digits and single hyphens")
        self.own[rule.name] = rule

    def chosen(self, given: Patterns | None) -> list[tuple[str, Callable[[], Pass]]]:
        """The passes to run. None stands for the default set."""
        items = ["default"] if given is None else [given] if isinstance(given, (str, Rule)) else list(given)
        wanted: dict[str, None] = {}
        foreign: list[Rule] = []
        for item in items:
            if isinstance(item, str):
                self._read(item, wanted)
                continue
            rule = item if isinstance(item, Rule) else borrowed(item)
            if rule is None:
                raise ConfigError("SM-PASS-004", f"a {type(item).__name__} is neither a name nor a rule")
            foreign.append(rule)
        return self._ordered(wanted, foreign)

    def _ordered(self, wanted: Iterable[str], foreign: list[Rule]) -> list[tuple[str, Callable[[], Pass]]]:
        names = set(wanted)
        rows = [(entry.name, entry.make) for entry in self.entries.values() if entry.name in names]
        rules = [rule for rule in self.own.values() if rule.name in names] + foreign
        at = len(rows) - (bool(rows) and rows[-1][0] == "remove-unused")
        return [*rows[:at], *((rule.name, _always(rule)) for rule in rules), *rows[at:]]

    def _read(self, text: str, wanted: dict[str, None]) -> None:
        """Names with `+` or `-` between them; a name may hold hyphens, so the longest that is known is taken."""
        rest, sets = text.strip(), self.sets
        sign = "+"
        while rest:
            if rest[0] in "+-, ":
                sign, rest = ("+" if rest[0] in ", " else rest[0]), rest[1:].lstrip()
                continue
            name = self._longest(rest, sets) or _unknown(rest, self)
            for each in sets.get(name, () if name == NOTHING else (name,)):
                if sign == "+":
                    wanted[each] = None
                else:
                    wanted.pop(each, None)
            rest, sign = rest[len(name) :].lstrip(), "+"

    def _longest(self, text: str, sets: Mapping[str, Any]) -> str | None:
        known = [name for name in (*self.names(), *sets, NOTHING) if re.match(rf"{re.escape(name)}(?=[-+, ]|$)", text)]
        return max(known, key=len, default=None)


def _unknown(text: str, table: Table) -> str:
    name = re.split(r"[+, ]", text)[0]
    known = [*table.sets, *table.names()]
    close = get_close_matches(name, known, n=1)
    hint = f"Is it meant to be {close[0]!r}?" if close else f"Sets: {', '.join(table.sets)}."
    raise ConfigError(
        "SM-PASS-002", f"there is no pass, rule or set {name!r}", hint=f"{hint} `smelt optimize --list-patterns`."
    )


def _always(rule: Rule) -> Callable[[], Pass]:
    return lambda: rule


def spelled(given: Patterns | None) -> str | list[str] | None:
    """A selector by names alone, for records."""
    if given is None or isinstance(given, str):
        return given
    items: list[Any] = [given] if isinstance(given, Rule) else list(given)
    return [item if isinstance(item, str) else str(getattr(item, "name", type(item).__name__)) for item in items]


def named(rule: Rule, name: str | None) -> Rule:
    return rule if name is None else replace(rule, name=name)
