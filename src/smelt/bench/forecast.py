"""How long a run will take.

Input: cases that are still to be timed, and how long the ones before them took. Output: seconds. Invariant: a guess
from sizes of files and feeds, corrected by what was seen since; nothing is loaded or run for it.
"""

from __future__ import annotations

from typing import Final

from smelt.bench.case_bench import Plan
from smelt.bench.cases import Case
from smelt.bench.peers import PEERS

_FLOPS: Final = 1e11  # of one thread in a second, all told
_IMAGE_FLOPS: Final = 1e10
_OPEN_S: Final = 2.5
_OPEN_TORCH_S: Final = 10.0
_PREPARE_S: Final = 20.0
_NEAR: Final = 3  # peers that are timed to the end


class Forecast:
    """Learns how far off its guesses are."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._guessed = self._taken = 0.0

    def seconds(self, case: Case, threads: int, *, first: bool) -> float:
        """Of one case; `first` of its model, which is compiled then."""
        factor = self._taken / self._guessed if self._guessed else 1.0
        return factor * self._guess(case, threads, first=first)

    def learn(self, case: Case, threads: int, seconds: float, *, first: bool) -> None:
        self._guessed += self._guess(case, threads, first=first)
        self._taken += seconds

    def _guess(self, case: Case, threads: int, *, first: bool) -> float:
        peers = [PEERS[name] for name in self._plan.peers]
        pace = self._plan.pace
        opening = sum(_OPEN_TORCH_S if peer.needs_module else _OPEN_S for peer in peers)
        slice_s = max(pace.slice_s + pace.warm_s, _flops(case) / (_FLOPS * threads))
        trial = min(pace.trial, pace.rounds)
        slices = (trial + 1) * len(peers) + (pace.rounds - trial) * min(_NEAR, len(peers))
        return opening + slice_s * slices + (_PREPARE_S if first else 0.0)


def _flops(case: Case) -> float:
    """Two for each weight and token; images all alike."""
    tokens = case.feeds.get("input_ids")
    if tokens is None:
        return _IMAGE_FLOPS * max((len(array) for array in case.feeds.values() if array.ndim == 4), default=0)
    weights = sum(path.stat().st_size for path in case.model.parent.glob("model.onnx*")) / 4
    return 2.0 * weights * tokens.size


def spell(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
