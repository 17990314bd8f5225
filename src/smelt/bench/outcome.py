"""What a run measured.

Input: figures of peers on cases. Output: `Row` and `Outcome`, and both from and to plain data. Invariant: a row without
`problem` has every figure that applies; what is written and read again is equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, cast

from smelt.bench.paired import Ratio
from smelt.bench.roofline import Limits
from smelt.bench.work import Work

# What fits in a core's caches is held against their rate.
_IN_CACHE_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Row:
    """One peer on one case. `ratio` is to the first peer, `vs_best` to the fastest that is not smelt (`best`); one far
    `behind` was not timed to the end."""

    case: str
    about: str
    peer: str
    threads: int
    problem: str = ""
    median_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    load_s: float | None = None
    first_ms: float | None = None
    peak_mb: float | None = None
    ratio: Ratio | None = None
    best: str = ""
    vs_best: Ratio | None = None
    error: float | None = None
    tokens_per_s: float | None = None
    work: Work | None = None
    share: float | None = None
    bound: str = ""
    compile_s: float | None = None
    coverage: str = ""
    behind: bool = False

    @property
    def is_ours(self) -> bool:
        return self.peer.partition("#")[0] == "smelt"

    def with_share(self, limits: Limits) -> Row:
        """The time that no code can beat as a share of the time taken."""
        peer = self.peer.partition("#")[0]
        bytewise = self.work is not None and self.work.bytewise and not peer.endswith("-fp32")
        halved = self.work is not None and self.work.halved and (peer == "smelt" or peer.endswith("-bf16"))
        arithmetic, name = (
            (limits.dots, "8-bit") if bytewise else (limits.bf16, "bf16") if halved else (limits.fma, "FMA")
        )
        if self.median_ms is None or self.work is None or not arithmetic:
            return self
        bandwidth = limits.cached_copy if self.work.bytes <= _IN_CACHE_BYTES else limits.read
        bound = name if self.work.flops / arithmetic >= self.work.bytes / bandwidth else "memory"
        return replace(self, share=self.work.limit_s(arithmetic, bandwidth) / (self.median_ms / 1e3), bound=bound)


@dataclass(frozen=True)
class Outcome:
    """All rows of a run with the machine that they were measured on."""

    machine: str
    limits: tuple[Limits, ...]
    rows: tuple[Row, ...]


def as_facts(outcome: Outcome) -> dict[str, Any]:
    rows = [{**asdict(row), "verdict": row.ratio.verdict if row.ratio else None} for row in outcome.rows]
    limits = [asdict(found) for found in outcome.limits]
    return _finite({"machine": outcome.machine, "limits": limits, "rows": rows})


def _finite(facts: Any) -> Any:
    """JSON has no infinity: what is not a number becomes null."""
    if isinstance(facts, dict):
        return {key: _finite(value) for key, value in cast("dict[str, Any]", facts).items()}
    if isinstance(facts, list):
        return [_finite(value) for value in cast("list[Any]", facts)]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts


def from_facts(facts: Mapping[str, Any]) -> Outcome:
    limits = tuple(Limits(**one) for one in facts["limits"])
    return Outcome(str(facts["machine"]), limits, tuple(_row(one) for one in facts["rows"]))


def _row(facts: Mapping[str, Any]) -> Row:
    found = {key: value for key, value in facts.items() if key != "verdict"}
    for key in ("ratio", "vs_best"):
        found[key] = _ratio(found.get(key))
    found["work"] = Work(**found["work"]) if found.get("work") else None
    return Row(**found)


def _ratio(facts: Mapping[str, Any] | None) -> Ratio | None:
    if not facts:
        return None
    high: Any = math.inf if facts["high"] is None else facts["high"]
    return Ratio(**{**facts, "high": high})
