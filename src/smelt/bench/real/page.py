"""Results of real models -> the page docs/real_models.md, and a short list of what is wrong or slow.

Input: what is known of each model. Output: Markdown. Invariant: every model of the results is in the table, good or
bad; means are over what was timed, and say how many that is; text outside of the markers is not touched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from smelt.bench.real.results import NOT_SLOWER, Facts, Known

PAGE: Final = Path("docs/real_models.md")
_MARKED: Final = re.compile(r"<!-- real -->\n(.*?)<!-- /real -->", re.DOTALL)


def write_page(known: Sequence[Known], machine: str, page: Path = PAGE) -> None:
    text = page.read_text(encoding="utf-8")
    place = _MARKED.search(text)
    if place is None:
        raise ValueError(f"{page} has no place for the table")
    made = "\n".join(["", *summary(known, machine), "", *table(known), ""])
    page.write_text(f"{text[: place.start(1)]}{made}{text[place.end(1) :]}", encoding="utf-8")


def summary(known: Sequence[Known], machine: str) -> list[str]:
    """What it comes to, kind by kind."""
    lines: list[str] = []
    for title, models in (("pretrained", [k for k in known if not _timm(k)]), ("timm", [k for k in known if _timm(k)])):
        if models:
            lines += [f"- {title}: {_counts(models)}", *(f"- {title}, {line}" for line in _means(models))]
    return [*lines, f"- {machine}"]


def _timm(known: Known) -> bool:
    return known.name.startswith("timm/")


def _counts(models: Sequence[Known]) -> str:
    right = sum(is_right(k) for k in models)
    judged = sum(bool(k.step("right")) for k in models)
    agreed = sum(bool(k.step("verify").get("right")) for k in models)
    verified = sum(bool(k.step("verify")) for k in models)
    return f"{right} of {judged} right, `smelt verify` agrees on {agreed} of {verified}"


def is_right(known: Known) -> bool:
    sizes = known.step("right").get("sizes", [])
    return bool(sizes) and not any(size.get("problem") for size in sizes)


def _means(models: Sequence[Known]) -> list[str]:
    rows = [row for k in models for row in timed(k)]
    lines: list[str] = []
    for threads in sorted({int(row["threads"]) for row in rows}):
        of_these = [row for row in rows if row["threads"] == threads]
        stock, best = ([row[key] for row in of_these if row.get(key)] for key in ("ratio", "vs_best"))
        slower = sum(ratio[2] < 1 for ratio in stock)
        unsure = sum(ratio[1] < NOT_SLOWER for ratio in stock)
        lines.append(
            f"{_threads(threads)}: {_mean(stock):.2f}x stock, {_mean(best):.2f}x the best of ONNX Runtime and OpenVINO "
            f"(geometric means of {len(stock)} measurements, every size one), slower than stock on {slower}, lower end "
            f"of the interval below {NOT_SLOWER} on {unsure}"
        )
    return lines


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def timed(known: Known) -> list[Facts]:
    return [row for row in known.step("time").get("rows", []) if row.get("ratio")]


def _mean(ratios: Sequence[Sequence[float]]) -> float:
    return math.exp(sum(math.log(ratio[0]) for ratio in ratios) / len(ratios)) if ratios else math.nan


def table(known: Sequence[Known]) -> list[str]:
    threads = sorted({int(row["threads"]) for k in known for row in timed(k)})
    heads = ["model", "size", "right", "nodes in kernels", "compile, s (CPU)"]
    heads += [f"{_threads(n)}{of}" for of in (", to stock", ", to the best") for n in threads]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for one in known:
        sizes: list[Facts] = one.step("right").get("sizes") or [{}]
        for place, size in enumerate(sizes):
            lines.append(f"| {' | '.join(_cells(one, place, size, threads))} |")
    return lines


def _cells(known: Known, place: int, size: Facts, threads: Sequence[int]) -> list[str]:
    compiled = known.step("compile")
    first = place == 0
    rows = {row["threads"]: row for row in timed(known) if row["shapes"] == size.get("shapes")}
    right = "" if not size else "yes" if not size.get("problem") else "**no**"
    if first and known.step("verify") and not known.step("verify").get("right"):
        right += ", `verify` disagrees"
    nodes = f"{compiled.get('in_kernels')} of {compiled.get('nodes')}" if compiled.get("nodes") else "-"
    wall = compiled.get("wall_s")
    cells = [known.name if first else "", _plain(size.get("shapes", "")), right, nodes if first else ""]
    cells.append(f"{wall:.1f} ({compiled['cpu_s']:.1f})" if first and wall else "")
    for key in ("ratio", "vs_best"):
        cells += [_ratio(rows.get(count), key) for count in threads]
    return cells


def _plain(text: str) -> str:
    return text.replace("|", "/")


def _ratio(row: Facts | None, key: str) -> str:
    if row is None or not row.get(key):
        return "-"
    value, low, high = row[key]
    shown = f"**{value:.2f}**" if low > 1 else f"{value:.2f}"
    return f"{shown} [{low:.2f}, {high:.2f}]" + (f" {row['best']}" if key == "vs_best" else "")


def findings(known: Sequence[Known]) -> list[str]:
    """What a developer should look at first: errors, then what is slow, the worst first."""
    lines = ["## Not right, refused, or contradicted"]
    for one in known:
        lines += [f"- {one.name}: {text}" for text in _problems(one)]
    lines += ["", "## Slowest against stock (stock time / ours [95%]; the first is the worst)"]
    rows: list[tuple[Known, Facts]] = [(one, row) for one in known for row in timed(one)]
    for one, row in sorted(rows, key=lambda pair: pair[1]["ratio"][0]):
        lines.append(f"- {_spelled(row)} {one.name} ({row['shapes']}), {row['threads']} threads, {_times(row)}")
    lines += ["", "## Compile seconds, wall / CPU (the longest first)"]
    compiled = [one for one in known if one.step("compile")]
    for one in sorted(compiled, key=lambda k: -float(k.step("compile")["cpu_s"]))[:25]:
        found = one.step("compile")
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["stages"].items() if seconds > 0.5)
        lines.append(f"- {found['wall_s']:.0f} / {found['cpu_s']:.0f} {one.name}: {stages}")
    lines += ["", "## Least coverage (nodes in kernels)"]
    covered = [(one, one.step("compile")) for one in compiled if one.step("compile").get("nodes")]
    for one, found in sorted(covered, key=lambda pair: pair[1]["in_kernels"] / pair[1]["nodes"])[:30]:
        why = "; ".join(found["reasons"][:3])
        lines.append(f"- {found['in_kernels']} of {found['nodes']} {one.name}: {why}")
    return lines


def _problems(known: Known) -> list[str]:
    found = [known.about.get("problem", ""), known.step("compile").get("problem", "")]
    found += [
        f"{size['shapes']}: {size['problem']}" for size in known.step("right").get("sizes", []) if size["problem"]
    ]
    verify: dict[str, Any] = known.step("verify")
    found += [f"smelt verify: {verify['problem']}"] if verify.get("problem") else []
    found += [f"fault: {fault}" for fault in known.step("compile").get("faults", [])]
    found += [f"note: {note[:300]}" for note in known.step("compile").get("notes", [])]
    return [text for text in found if text]


def _spelled(row: Facts) -> str:
    value, low, high = row["ratio"]
    best = row.get("vs_best") or [math.nan]
    return f"{value:.2f} [{low:.2f}, {high:.2f}], {best[0]:.2f} of {row['best']}:"


def _times(row: Facts) -> str:
    return ", ".join(f"{peer} {ms:.3g} ms" for peer, ms in row["ms"].items())
