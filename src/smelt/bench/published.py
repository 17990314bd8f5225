"""Results of the runs -> the tables of README.md and docs/benchmarks.md.

Input: outcomes by run, and pages with markers (`<!-- bench:models -->` ... `<!-- /bench:models -->`). Output: the pages
with what lies between the markers written anew. Invariant: a table has every model of its run that was measured, good
or bad, and below it the machine and the peers it comes from; text outside of markers is not touched, and a table whose
run has no results stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from smelt.bench.micro import MICRO
from smelt.bench.outcome import Outcome, Row
from smelt.bench.paired import Ratio
from smelt.bench.summary import summarize

PAGES: Final = (Path("README.md"), Path("docs/benchmarks.md"))
_TITLES: Final = {
    "gpt2": "gpt2, prefill", "llama": "llama, 8 x 1024, prefill", "vit": "ViT-base", "resnet-50": "ResNet-50",
    "mobilenet-v2": "MobileNet-v2", "convnext-tiny": "ConvNeXt-tiny", "unet-block": "UNet block",
}  # fmt: skip
_ABSENT: Final = "-"


def publish(outcomes: Mapping[str, Outcome], pages: Sequence[Path] = PAGES) -> list[str]:
    """Rewrite the marked parts of the pages; what was written, as `page: name`."""
    written: list[str] = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for name, (run, draw) in _TABLES.items():
            outcome = outcomes.get(run)
            place = _marked(name).search(text)
            if outcome is None or not place:
                continue
            text = f"{text[: place.start(1)]}\n{draw(outcome)}\n{text[place.end(1) :]}"
            written.append(f"{page}: {name}")
        page.write_text(text, encoding="utf-8")
    return written


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"<!-- bench:{name} -->\n(.*?)<!-- /bench:{name} -->", re.DOTALL)


class _Found:
    """Rows by case, number of threads and peer."""

    def __init__(self, outcome: Outcome) -> None:
        self._rows = {(row.case, row.threads, row.peer): row for row in outcome.rows if not row.problem}
        self.cases = list(dict.fromkeys(row.case for row in outcome.rows))
        self.threads = sorted({row.threads for row in outcome.rows})
        self.peers = list(dict.fromkeys(row.peer for row in outcome.rows if row.peer))

    def row(self, case: str, threads: int, peer: str = "smelt") -> Row | None:
        return self._rows.get((case, threads, peer))

    def each(self, case: str, cell: Callable[[Row], str], peer: str = "smelt") -> list[str]:
        rows = [self.row(case, threads, peer) for threads in self.threads]
        return [cell(row) if row else _ABSENT for row in rows]

    def headings(self, text: str = "") -> list[str]:
        return [f"{'1 thread' if count == 1 else f'{count} threads'}{text}" for count in self.threads]


def _ratios(outcome: Outcome) -> str:
    """For readers in a hurry: against stock, against the best, memory."""
    found = _Found(outcome)
    head = ["model", *found.headings(), *found.headings(", against the best peer"), "peak MB, smelt / stock"]
    rows: list[list[str]] = []
    for case in found.cases:
        to_stock = found.each(case, lambda row: _ratio(row.ratio))
        to_best = found.each(case, lambda row: f"{_ratio(row.vs_best)} {row.best}".strip())
        rows.append([_title(case), *to_stock, *to_best, _memory(found, case)])
    return _page(head, rows, outcome, found)


def _times(outcome: Outcome) -> str:
    """Every peer's milliseconds, and the share of the limit."""
    found = _Found(outcome)
    head = ["model", "threads", *found.peers, "of the limit"]
    rows: list[list[str]] = []
    for case in found.cases:
        for threads in found.threads:
            times = [_milliseconds(found.row(case, threads, peer)) for peer in found.peers]
            ours = found.row(case, threads)
            rows.append([_title(case), str(threads), *times, _share(ours)])
    return _page(head, rows, outcome, found)


def _decoding(outcome: Outcome) -> str:
    """Every peer's tokens per second, and smelt against the best of them."""
    found = _Found(outcome)
    head = ["model", "threads", *(f"{peer}, tokens/s" for peer in found.peers), "smelt against the best"]
    rows: list[list[str]] = []
    for case in found.cases:
        for threads in found.threads:
            rates = [_rate(found.row(case, threads, peer)) for peer in found.peers]
            ours = found.row(case, threads)
            against = f"{_ratio(ours.vs_best or ours.ratio)} {ours.best}".strip() if ours else _ABSENT
            rows.append([_title(case), str(threads), *rates, against])
    return _page(head, rows, outcome, found)


_TABLES: Final[dict[str, tuple[str, Callable[[Outcome], str]]]] = {
    "models": ("models", _ratios),
    "micro": ("micro", _ratios),
    "sizes": ("sizes", _ratios),
    "decode": ("decode", _decoding),
    "igniter": ("igniter", _ratios),
    "models-times": ("models", _times),
    "sizes-times": ("sizes", _times),
    "igniter-times": ("igniter", _times),
}


def _page(head: Sequence[str], rows: Sequence[Sequence[str]], outcome: Outcome, found: _Found) -> str:
    """The table and, below it, what it comes to and where it was measured."""
    table = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    table.insert(1, f"|{'---|' * len(head)}")
    limits = [str(one) for one in outcome.limits if one.fma]
    notes = [*map(str, summarize(outcome)), f"Peers: {', '.join(found.peers)}. {outcome.machine}", *limits]
    return "\n".join([*table, "", *(f"- {note}" for note in notes), ""])


def _title(case: str) -> str:
    """As readers know it: `vit b8` is `ViT-base b8`; a small graph is what it consists of."""
    name, space, size = case.partition(" ")
    if name in MICRO and not space:
        return f"{name}: {MICRO[name].about}"
    return f"{_TITLES.get(name, name)}{space}{size}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    value = f"**{ratio.value:.2f}**" if ratio.low > 1 else f"{ratio.value:.2f}"
    return f"{value} [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.low else value


def _milliseconds(row: Row | None) -> str:
    return _ABSENT if row is None or row.median_ms is None else f"{row.median_ms:.3g}"


def _rate(row: Row | None) -> str:
    return _ABSENT if row is None or row.tokens_per_s is None else f"{row.tokens_per_s:.3g}"


def _share(row: Row | None) -> str:
    return _ABSENT if row is None or row.share is None else f"{row.share:.0%} {row.bound}"


def _memory(found: _Found, case: str) -> str:
    """At the largest number of threads."""
    ours, stock = (found.row(case, found.threads[-1], peer) for peer in ("smelt", "ort"))
    if ours is None or stock is None or ours.peak_mb is None or stock.peak_mb is None:
        return _ABSENT
    return f"{ours.peak_mb:.0f} / {stock.peak_mb:.0f}"
