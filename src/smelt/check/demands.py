"""What a user asks of a compilation beyond an artifact that is right.

Input: the plan that came out, the findings, the faults and the options `strict`, `min_coverage` and `inputs`. Output:
the error that says which demand is not met, or None. Invariant: a model without nodes is wholly in kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from smelt.base.config import Config
from smelt.base.errors import ConfigError, CoverageError, InputError, SmeltError, StrictError
from smelt.check.findings import INPUTS_REFUSED, Findings
from smelt.ir.faults import Fault
from smelt.ir.records import Plan


class Demands(Protocol):
    @property
    def strict(self) -> bool: ...
    @property
    def min_coverage(self) -> float: ...
    @property
    def verify(self) -> bool: ...
    @property
    def inputs(self) -> Any: ...


def check_demands(options: Demands, config: Config) -> None:
    """Demands that cannot be met by any model."""
    if not 0.0 <= options.min_coverage <= 1.0:
        raise ConfigError("SM-CONFIG-001", f"min_coverage {options.min_coverage!r} is no share", hint="From 0 to 1.")
    if options.strict and not (options.verify and config.verify):
        raise ConfigError("SM-CONFIG-001", "strict and no verification", hint="Every region is to be verified.")


def unmet_demand(plan: Plan, findings: Findings | None, faults: Sequence[Fault], options: Demands) -> SmeltError | None:
    """The first demand that the compilation does not meet. Inputs of the user's own are one: what stock refuses tells
    nothing of the kernels, and an artifact without them is not what was meant."""
    refused = _refused_inputs(findings) if options.inputs is not None else ""
    if refused:
        return InputError("SM-INPUT-003", refused)
    if options.strict and faults:
        first = faults[0]
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        return StrictError("SM-VERIFY-003", f"fault in {first.stage}: {first.error}{more}", hint=first.repro)
    unverified = _unverified(plan, findings)
    if options.strict and unverified:
        return StrictError("SM-VERIFY-003", f"not verified: {unverified}")
    taken = sum(len(region.nodes) for region in plan.regions)
    share = taken / (taken + len(plan.fallbacks)) if taken or plan.fallbacks else 1.0
    if share >= options.min_coverage:
        return None
    asked = f"{options.min_coverage:.1%} was asked for"
    return CoverageError(
        "SM-VERIFY-004", f"{taken} of {taken + len(plan.fallbacks)} nodes are in kernels ({share:.1%}); {asked}"
    )


def _refused_inputs(findings: Findings | None) -> str:
    reasons = findings.rejected.values() if findings is not None else ()
    return next((why[why.index(INPUTS_REFUSED) :] for why in reasons if INPUTS_REFUSED in why), "")


def _unverified(plan: Plan, findings: Findings | None) -> str:
    """A region that nothing could tell about, whether it was kept or not."""
    if findings is not None:
        open_ones = [why for index, why in findings.rejected.items() if index not in findings.faults]
        if open_ones:
            return open_ones[0]
    known = {v.region for v in (findings.verdicts if findings is not None else ()) if v.error is not None}
    whole = None in known
    kept = [region for region in plan.regions if region.index not in known and not whole]
    return f"region {kept[0].index} of {len(kept[0].nodes)} nodes" if kept else ""
