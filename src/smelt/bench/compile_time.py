"""How long a compilation takes, cold and from the cache, and where the time goes.

Input: a model of the zoo. Output: `CompileTime`. Invariant: each compilation is a fresh process with a cache folder of
its own (empty for the cold one, the same again for the cached one), so imports are part of what is timed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from smelt.base import Config
from smelt.base.config import child_environment
from smelt.bench import zoo
from smelt.bench.contestant import import_path

_PROGRAM: Final = """
import json, sys, time
started = time.perf_counter()
from pathlib import Path
from smelt.pipeline import Options, compile_to
imported = time.perf_counter()
result = compile_to(Path(sys.argv[1]), Path(sys.argv[2]), Options())
compiled = time.perf_counter()
stages = {}
for stage in result.stages:
    stages[stage.name] = stages.get(stage.name, 0.0) + stage.seconds
print(json.dumps({"import": imported - started, **stages, "(other)": compiled - imported - sum(stages.values())}))
"""


@dataclass(frozen=True)
class CompileTime:
    """Seconds of whole processes, and the stages inside."""

    model: str
    cold_s: float
    cached_s: float
    cold: Mapping[str, float]
    cached: Mapping[str, float]


def measure_compile(name: str, config: Config, scale: zoo.Scale = "full") -> CompileTime:
    return measure_file(name, zoo.export(name, config, scale))


def measure_file(name: str, model: Path) -> CompileTime:
    with tempfile.TemporaryDirectory(prefix="smelt-compile-") as folder:
        cold_s, cold = _compile(model, Path(folder), "cold")
        cached_s, cached = _compile(model, Path(folder), "cached")
    return CompileTime(name, cold_s, cached_s, cold, cached)


def _compile(model: Path, folder: Path, label: str) -> tuple[float, dict[str, float]]:
    command = [sys.executable, "-P", "-c", _PROGRAM, str(model), str(folder / label)]
    environment = child_environment({"SMELT_CACHE_DIR": str(folder / "cache"), **import_path()})
    started = time.perf_counter()
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    stages = cast("dict[str, Any]", json.loads(finished.stdout.splitlines()[-1]))
    return seconds, {stage: float(spent) for stage, spent in stages.items()}


def print_compile_times(times: Sequence[CompileTime]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title="compile time, s", title_justify="left")
    stages = list(dict.fromkeys(stage for time in times for stage in time.cold))
    for column in ("model", "", "all", *stages):
        table.add_column(column, justify="left" if column in {"model", ""} else "right")
    for found in times:
        for label, total, spent in (("cold", found.cold_s, found.cold), ("cached", found.cached_s, found.cached)):
            table.add_row(found.model, label, f"{total:.2f}", *(f"{spent.get(stage, 0.0):.2f}" for stage in stages))
    Console().print(table)
