"""An exception of a stage -> the regions that it belongs to.

Input: what a stage raised over some regions, and how the stage is run on one of them alone. Output: `Findings` that
reject the guilty ones, so that they are cut into parts and tried again. Invariant: some region is rejected, so that
rounds of trying come to an end; what raises only over several regions together falls back whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smelt.base.errors import CompileError
from smelt.check.findings import Findings
from smelt.ir.faults import Faults
from smelt.ir.records import Region

_HUNG = "SM-TOOL-005"


def blame(
    stage: str, error: Exception, regions: Sequence[Region], probe: Callable[[Region], object], faults: Faults
) -> Findings:
    """Regions that raise alone, each with its own exception; all where none does."""
    if faults.strict:
        raise error
    raised = {region.index: _raised(probe, region) if len(regions) > 1 else error for region in regions}
    guilty = [(region, own) for region in regions if (own := raised[region.index]) is not None]
    if not guilty:
        return fall_back(stage, error, regions, faults)
    rejected = {region.index: faults.contain(stage, own, region.nodes) for region, own in guilty}
    # Each further try of a compiler that hangs would take its whole time limit.
    cut = [r.index for r, own in guilty if not (isinstance(own, CompileError) and own.code == _HUNG)]
    return Findings(rejected=rejected, faults=dict.fromkeys(cut, "wrong"))


def fall_back(stage: str, error: Exception, regions: Sequence[Region], faults: Faults) -> Findings:
    """All of them, for one reason; no part is tried."""
    reason = faults.contain(stage, error, [node for region in regions for node in region.nodes])
    return Findings(rejected=dict.fromkeys((region.index for region in regions), reason))


def _raised(probe: Callable[[Region], object], region: Region) -> Exception | None:
    try:
        probe(region)
    except Exception as error:
        return error
    return None
