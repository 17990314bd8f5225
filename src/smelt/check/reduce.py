"""A model that fails -> a few nodes that fail alike.

Input: a model's parts by `Cutter`, and a probe that says how a part fails. Output: the smallest part found. Invariant:
what is returned was seen to fail in the same way as the whole; the search ends after a given number of probes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smelt.check.cut import Cut, Cutter

Probe = Callable[[Cut], str]  # how it fails, in words that are the same for the same failure; nothing when it does not
Told = Callable[[int, int], None]  # nodes left, probes made
MAX_PROBES = 300


@dataclass(frozen=True)
class Reduced:
    """The places of the nodes that are left, the part itself, how it fails, and how many probes that took."""

    places: tuple[int, ...]
    cut: Cut
    failure: str
    probes: int
    complete: bool


def reduce_model(cutter: Cutter, probe: Probe, told: Told, max_probes: int = MAX_PROBES) -> Reduced | None:
    """None when the whole model does not fail."""
    search = _Search(cutter, probe, told, max_probes)
    return search.run()


class _Search:
    def __init__(self, cutter: Cutter, probe: Probe, told: Told, max_probes: int) -> None:
        self.cutter = cutter
        self.probe = probe
        self.told = told
        self.left = max_probes
        self.max_probes = max_probes
        self.failure = ""
        self.known: dict[tuple[tuple[int, ...], tuple[str, ...]], bool] = {}
        self.best: Cut | None = None

    def run(self) -> Reduced | None:
        places = tuple(range(len(self.cutter.nodes)))
        whole = self.cutter.cut(places)
        if whole is None:
            return None
        self.failure = self._probe(whole)
        if not self.failure:
            return None
        self.best = whole
        places = self._without_start(self._without_end(places))
        places = self._minimal(places)
        self._fewer_outputs(places)
        return Reduced(places, self.best, self.failure, self.max_probes - self.left, self.left > 0)

    # the search; each step returns places that were seen to fail

    def _without_end(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """The shortest beginning that fails, by halving."""
        good, bad = 0, len(places)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if self._fails(places[:middle]) else (middle, bad)
        return places[:bad]

    def _without_start(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """The shortest end that fails, by halving."""
        bad, good = 0, len(places)
        while good - bad > 1:
            middle = (good + bad) // 2
            bad, good = (middle, good) if self._fails(places[middle:]) else (bad, middle)
        return places[bad:]

    def _minimal(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """Leave runs of nodes out, long ones first, until no single node can be missed."""
        size = max(1, len(places) // 2)
        while self.left:
            start, shorter = 0, False
            while start < len(places) and len(places) > 1:
                rest = places[:start] + places[start + size :]
                if rest and self._fails(rest):
                    places, shorter = rest, True
                else:
                    start += size
            if size == 1 and not shorter:
                break
            size = max(1, size // 2)
        return places

    def _fewer_outputs(self, places: tuple[int, ...]) -> None:
        names = self.cutter.outputs(places)
        for name in names if len(names) > 1 else ():
            if self._fails(places, (name,)):
                return

    # one question

    def _fails(self, places: tuple[int, ...], outputs: Sequence[str] = ()) -> bool:
        key = places, tuple(outputs)
        if key not in self.known:
            cut = self.cutter.cut(places, outputs) if self.left else None
            self.known[key] = cut is not None and self._probe(cut) == self.failure
            if self.known[key]:
                self.best = cut
                self.told(len(places), self.max_probes - self.left)
        return self.known[key]

    def _probe(self, cut: Cut) -> str:
        self.left -= 1
        return self.probe(cut)
