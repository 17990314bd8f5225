"""Where a model's time goes, by kind of kernel, and how far each kind is from the machine's limit.

    python bench/where.py mobilebert [--threads 1,2] [--length 128] [--batch 1] [--shapes]

The kernels' own clocks (`smelt explain --profile` shows them by name) are summed by what a launch computes: products,
two layers in one task, attention, windows by their form, loops; with `--shapes` a line for each size. Flops are those
of products and of the functions around them, and their share is of the multiply-adds that the machine was measured to
do in the same run. GB/s is what a launch must read and write at least, in or out of cache; `lost` is the time above the
peak. With two numbers of threads the last column is what the second one did not save: barriers, uneven tasks, and what
one core fetches from the other's cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import smelt
from smelt.base import Config
from smelt.bench import zoo
from smelt.bench.roofline import Limits, measure_limits
from smelt.cli.kernel_times import launch_times
from smelt.cli.profiling import named_sizes
from smelt.ir.kernel.index import evaluate
from smelt.runtime import SessionSettings, session_for

FORMS = {"pointwise": "1x1 convolution", "depthwise": "filter per channel", "nchw": "first convolution"}
Value = Callable[[Any], int]


@dataclass
class Kind:
    """Launches of one kind in a run: how many, their work, and microseconds by number of threads."""

    launches: int = 0
    flops: float = 0.0
    moved: float = 0.0
    spent: dict[int, float] = field(default_factory=dict[int, float])


@dataclass
class Profile:
    kinds: dict[str, Kind]
    limits: dict[int, Limits]
    walls: dict[int, float]


def label(kernel: Any, value: Value, shapes: bool) -> str:
    made = kernel.product or kernel.window
    if made is None:
        return "loops"
    sizes = f" {value(made.rows)}x{value(made.depth)}x{value(made.columns)}" if shapes else ""
    if kernel.window is not None:
        return FORMS.get(made.form, f"{made.form} convolution") + sizes
    if made.b2b is not None:
        return ("two layers" if made.by_rows else "attention") + sizes
    return f"product{sizes}"


def joined(labels: list[str], shapes: bool) -> str:
    """Kernels that run together."""
    distinct = sorted(set(labels), key=labels.index)
    counts = {one: f"{labels.count(one)} " if shapes and labels.count(one) > 1 else "" for one in distinct}
    return " + ".join(counts[one] + one for one in distinct)


def add_launches(
    kinds: dict[str, Kind], code: Any, copies: int, spent: Mapping[int, tuple[float, ...]], value: Value, shapes: bool
) -> None:
    """Those of one code, which `copies` regions share."""
    together: dict[int, list[Any]] = {}
    for info, kernel in zip(code.info, code.kernels, strict=True):
        together.setdefault(info.launch, []).append(kernel)
    for launch, kernels in together.items():
        kind = kinds.setdefault(joined([label(k, value, shapes) for k in kernels], shapes), Kind())
        kind.launches += copies
        kind.flops += copies * sum(value(k.flops) for k in kernels)
        kind.moved += copies * sum(value(k.moved_bytes) for k in kernels)
        for threads, times in spent.items():
            kind.spent[threads] = kind.spent.get(threads, 0.0) + times[launch]


def wall_us(session: Any, feeds: Mapping[str, Any], runs: int = 21) -> float:
    times: list[float] = []
    for _ in range(runs):
        before = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - before) * 1e6)
    return statistics.median(times[3:])


def named_feeds(path: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    names = [i.name for i in session_for(path, None, SessionSettings(threads=1)).get_inputs()]
    return dict(zip(names, zoo.feeds(chosen.model, chosen.batch, chosen.length).values(), strict=True))


def measure(chosen: argparse.Namespace) -> Profile:
    config = Config.from_env()
    path = zoo.export(chosen.model, config)
    feeds = named_feeds(path, chosen)
    spent: dict[int, dict[str, tuple[float, ...]]] = {}
    found = Profile({}, {}, {})
    with smelt.compile(path, threads=1) as compiled:
        made = compiled.result
        model, generated, library = made.artifact.model_path, made.generated, made.library
        assert generated is not None and library is not None
        for threads in chosen.threads:
            settings = SessionSettings(threads=threads)
            spent[threads] = launch_times(model, generated, library, feeds, settings, config)
            found.walls[threads] = wall_us(session_for(model, library.path, settings), feeds)
            found.limits[threads] = measure_limits(threads, config)
    sizes, entries = named_sizes(path, feeds), list(generated.entry_of)
    for entry, code in dict(zip(entries, generated.codes, strict=True)).items():
        times = {threads: launches[entry] for threads, launches in spent.items()}
        copies = entries.count(entry)
        add_launches(found.kinds, code, copies, times, lambda size: evaluate(size, sizes), chosen.shapes)
    return found


def row(name: str, kind: Kind, found: Profile) -> str:
    cells, counts = [name, str(kind.launches), f"{kind.flops / 1e9:.3f}"], sorted(found.limits)
    for threads in counts:
        us, least = kind.spent[threads], kind.flops / found.limits[threads].fma * 1e6
        cells += [f"{us / 1e3:.2f}", f"{us / found.walls[threads]:.0%}", f"{least / us:.0%}"]
        cells += [f"{kind.moved / us / 1e3:.0f}", f"{(us - least) / 1e3:.2f}"]
    if len(counts) == 2:
        one, more = counts
        cells.append(f"{(kind.spent[more] - kind.spent[one] * one / more) / 1e3:.2f}")
    return f"| {' | '.join(cells)} |"


def show(found: Profile) -> None:
    counts = sorted(found.limits)
    names = ["kind", "launches", "GFLOP"]
    names += [part for t in counts for part in (f"ms, {t} thr", "share", "of peak", "GB/s", "lost ms")]
    names += ["not saved ms"] if len(counts) == 2 else []
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name, kind in sorted(found.kinds.items(), key=lambda item: -item[1].spent[counts[-1]]):
        print(row(name, kind, found))
    flops = sum(kind.flops for kind in found.kinds.values())
    for threads in counts:
        wall, inside = found.walls[threads], sum(kind.spent[threads] for kind in found.kinds.values())
        share = flops / found.limits[threads].fma * 1e6 / wall
        print(f"- {found.limits[threads]}")
        print(f"  a run {wall / 1e3:.2f} ms, {share:.0%} of the peak; {inside / 1e3:.2f} ms in launches by the clocks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--shapes", action="store_true", help="a line for each size")
    show(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
