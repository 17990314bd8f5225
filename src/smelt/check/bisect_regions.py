"""Rounds of trying a plan, until every region that is left has passed.

Input: a plan and a function that tries one: generates, builds and examines it. Output: the last attempt, and what was
found on the way. Invariant: what is kept passed as it is. A region whose convolutions are transformed is tried first
with these as they are stated. One of which some outputs are right is tried without the nodes that only the others need.
Else a region at fault is cut into parts and these are tried, so that a bad node costs itself and a few neighbours; the
good parts are joined again at the end, if they pass as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar

import onnx_ir as ir

from smelt.check.findings import Fault, Findings
from smelt.ir.records import Plan, Region
from smelt.partition import Splitter

# Parts are a quarter of what they come from. A round costs a build; one that looks for lost time costs timing too.
# What has no kernels as a whole costs neither: its parts are cut until they have some.
ROUNDS: Final[dict[Fault, int]] = {"wrong": 8, "slow": 3, "unverified": 3, "unsupported": 99}
TRIMS: Final = 2  # rounds that may take off what wrong outputs need; a fault that stays lies deeper


class Attempt(Protocol):
    @property
    def plan(self) -> Plan: ...


T = TypeVar("T", bound=Attempt)
Try = Callable[[Plan, tuple[int, ...]], tuple[T, Findings]]  # the plan, and the regions that need no verification


def bisect_regions(plan: Plan, attempt: Try[T], exact: Callable[[Region], bool]) -> tuple[T, Findings]:
    """`exact` asks a region's backend for code that rounds less: whether there is any."""
    return _Rounds(plan, attempt, exact).run(plan)


class _Rounds(Generic[T]):
    def __init__(self, plan: Plan, attempt: Try[T], exact: Callable[[Region], bool]) -> None:
        self.attempt = attempt
        self.exact = exact
        self.splitter = Splitter(plan)
        self.first = {region.index: len(region.nodes) for region in plan.regions}
        self.cut: set[int] = set()
        self.direct: set[int] = set()
        self.passed: set[int] = set()
        self.findings = Findings()

    def run(self, plan: Plan) -> tuple[T, Findings]:
        number = 0
        while True:
            before = self.findings
            made, found = self._try(plan)
            if not found.rejected:
                break
            plan, direct = self._as_stated(made.plan, found)
            if direct and not found.faults:  # no region is wrong alone, so that none need fall back yet
                self.findings = replace(before, rejected={**before.rejected, **{i: found.rejected[i] for i in direct}})
            else:
                plan = self._narrowed(plan, found, number)
            number += set(found.faults.values()) != {"unsupported"}
        return (made, self.findings) if not self.cut else self._rejoined(made)

    def _try(self, plan: Plan) -> tuple[T, Findings]:
        made, found = self.attempt(plan, tuple(sorted(self.passed)))
        self.findings = self.findings.merge(found)
        self.passed |= {v.region for v in found.verdicts if v.region is not None and v.error is not None}
        self.passed -= found.rejected.keys()
        return made, found

    def _as_stated(self, plan: Plan, found: Findings) -> tuple[Plan, set[int]]:
        """Regions at fault with their convolutions as they are stated, and which ones have any that were not."""
        wrong = {index for index, fault in found.faults.items() if fault != "unsupported"}
        suspects = wrong if found.faults else found.rejected.keys()
        direct = {r.index for r in plan.regions if r.index in suspects and self.exact(r)}
        self.direct |= direct & self.first.keys()
        self.cut |= direct
        return self.splitter.renewed(plan, direct), direct

    def _narrowed(self, plan: Plan, found: Findings, number: int) -> Plan:
        """Parts in place of regions at fault; what cannot be cut further falls back."""
        faulty = {index for index, fault in found.faults.items() if number < ROUNDS[fault]}
        wrong = {v.region: v.failing for v in found.verdicts if v.region in faulty and number < TRIMS}
        plan, trimmed = self.splitter.trim(plan, wrong, found.rejected)
        plan, parts = self.splitter.split(plan, faulty - trimmed)
        self.cut |= parts.keys() | trimmed
        return plan.without({index: why for index, why in found.rejected.items() if index not in self.cut})

    def _rejoined(self, made: T) -> tuple[T, Findings]:
        """Each run of good parts as one region: fewer borders, less memory traffic."""
        parts, notes, apart = made.plan, self._notes(made.plan), set[ir.Node]()
        joined, new = self.splitter.rejoin(parts)
        while new:
            again, found = self.attempt(joined, tuple(sorted(self.passed)))
            failed = new & found.rejected.keys()
            if not found.rejected:
                made, self.findings = again, self.findings.merge(found)
                break
            notes += (f"Some parts stay apart: together they fail ({next(iter(found.rejected.values()))}).",)
            if not failed or set(found.faults.values()) != {"unsupported"}:  # which may cost much to find out
                break
            apart.update(node for region in joined.regions if region.index in failed for node in region.nodes)
            joined, new = self.splitter.rejoin(parts, apart)
        kept = {region.index for region in made.plan.regions} | {None}
        rejected = {index: why for index, why in self.findings.rejected.items() if index not in self.cut}
        verdicts = tuple(v for v in self.findings.verdicts if v.region in kept or v.region in rejected)
        return made, replace(self.findings, verdicts=verdicts, rejected=rejected, notes=(*self.findings.notes, *notes))

    def _notes(self, plan: Plan) -> tuple[str, ...]:
        kept = self.splitter.nodes_by_origin(plan)
        return tuple(self._note(index, kept.get(index, 0), count) for index, count in self.first.items()
                     if index in self.cut)  # fmt: skip

    def _note(self, index: int, kept: int, count: int) -> str:
        why = self.findings.rejected[index]
        if index in self.direct and kept == count:
            return f"Region {index} computes its 3x3 convolutions without Winograd's transform ({why})."
        return f"Region {index} was cut into parts ({why}): {kept} of its {count} nodes stay in kernels."
