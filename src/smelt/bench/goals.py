"""Results -> which of the project's speed goals are met.

Input: outcomes of the runs `models`, `sizes` and `decode`. Output: a `Goal` each, met or not, with what falls short.
Invariant: a goal is met only when every model has been measured, and open until then; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from smelt.bench.architectures import SUITES
from smelt.bench.outcome import Outcome, Row
from smelt.bench.summary import summarize

MEAN: Final = 1.15
SHARE: Final = 0.80
COMPILE_S: Final = 60.0
MOBILEBERT: Final = (1.3, 1.05)


@dataclass(frozen=True)
class Goal:
    """`met` is None while results are missing; `short` lists what falls short, is missing, or how far it got."""

    text: str
    met: bool | None
    short: tuple[str, ...] = ()

    def __str__(self) -> str:
        word = {True: "met", False: "NOT MET", None: "open"}[self.met]
        return f"{word:8} {self.text}" + "".join(f"\n           {line}" for line in self.short)


def judge(outcomes: Mapping[str, Outcome]) -> list[Goal]:
    return [
        _each("every model ahead of the best peer (lower 95% bound above 1)", outcomes, "models", _behind_best),
        _mean(outcomes),
        _each("mobilebert 1.3x over stock, 1.05x over the best peer", outcomes, "models", _mobilebert, ("mobilebert",)),
        _each("80% of the FMA limit on models bound by it", outcomes, "models", _below_limit),
        _each("batch 8, 37 and 512 tokens: ahead of the best peer", outcomes, "sizes", _behind_best),
        _each("decoding: token rate ahead of every peer", outcomes, "decode", _behind_best),
        _memory(outcomes),
        _each("compiled in under 60 s", outcomes, "models", _slow_compile),
    ]


def _each(
    text: str, outcomes: Mapping[str, Outcome], run: str, fault: Callable[[Row], str], only: Sequence[str] = ()
) -> Goal:
    wanted = only or SUITES["decode" if run == "decode" else "models"]
    rows = [row for row in _ours(outcomes.get(run)) if _model(row) in wanted]
    faults = [(row, row.problem or fault(row)) for row in rows]
    short = [f"{row.case}, {row.threads} threads: {said}" for row, said in faults if said]
    return _goal(text, short, sorted(set(wanted) - {_model(row) for row in rows}))


def _ours(outcome: Outcome | None) -> list[Row]:
    return [row for row in outcome.rows if row.is_ours] if outcome else []


def _model(row: Row) -> str:
    """Without size and scale: `bert-base b8 (tiny)` is bert-base."""
    return row.case.partition(" ")[0]


def _goal(text: str, short: Sequence[str], missing: Sequence[str]) -> Goal:
    unknown = (f"not measured: {', '.join(missing)}",) if missing else ()
    return Goal(text, False if short else None if missing else True, (*short, *unknown))


def _behind_best(row: Row) -> str:
    against = row.vs_best or row.ratio
    if against is None:
        return "compared with nobody"
    return "" if against.low > 1 else f"{against} against {row.best or 'the first'}"


def _mobilebert(row: Row) -> str:
    stock, best = row.ratio, row.vs_best
    if stock is None or best is None:
        return "not compared with stock and others"
    if stock.value >= MOBILEBERT[0] and best.value >= MOBILEBERT[1]:
        return ""
    return f"{stock} over stock, {best} over {row.best}"


def _below_limit(row: Row) -> str:
    if row.share is None:
        return "no limit measured"
    return f"{row.share:.0%}" if row.bound == "FMA" and row.share < SHARE else ""


def _slow_compile(row: Row) -> str:
    if row.compile_s is None:
        return "not measured"
    return f"{row.compile_s:.0f} s" if row.compile_s >= COMPILE_S else ""


def _mean(outcomes: Mapping[str, Outcome]) -> Goal:
    text = f"geometric mean at least {MEAN} over the best peer"
    outcome = outcomes.get("models")
    missing = sorted(set(SUITES["models"]) - {_model(row) for row in _ours(outcome) if row.vs_best})
    found = [one for one in summarize(outcome) if one.whom.startswith("the best")] if outcome else []
    goal = _goal(text, [str(one) for one in found if one.mean < MEAN], missing)
    return Goal(text, goal.met, (*goal.short, *(str(one) for one in found if one.mean >= MEAN)))


def _memory(outcomes: Mapping[str, Outcome]) -> Goal:
    outcome = outcomes.get("models")
    rows = outcome.rows if outcome else ()
    stock = {(row.case, row.threads): row.peak_mb for row in rows if row.peer == "ort"}

    def fault(row: Row) -> str:
        theirs = stock.get((row.case, row.threads))
        if theirs is None or row.peak_mb is None:
            return "not compared with stock"
        return f"{row.peak_mb:.0f} MB against {theirs:.0f}" if row.peak_mb > theirs else ""

    return _each("peak memory no higher than stock ONNX Runtime's", outcomes, "models", fault)
