"""How long a compilation takes, cold and from the cache, and where the time goes.

Input: a model of the zoo. Output: `CompileTime`. Invariant: each compilation is a fresh process with a cache folder of
its own (empty for the cold one, the same again for the cached one), so imports are part of what is timed.
"""

from __future__ import annotations

import json
import resource
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

_WIDTH_OF_A_FILE: Final = 160
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
found = result.library is not None and result.library.cached
print(json.dumps(found))
print(json.dumps({"import": imported - started, **stages, "(other)": compiled - imported - sum(stages.values())}))
"""


@dataclass(frozen=True)
class Compilation:
    """Seconds on the wall of a whole process, of CPU by it and its compilers, and on the wall by stage.

    `found` says that the library was in the cache.
    """

    wall_s: float
    cpu_s: float
    found: bool
    stages: Mapping[str, float]


@dataclass(frozen=True)
class CompileTime:
    """Two compilations of one model."""

    model: str
    cold: Compilation
    cached: Compilation


def measure_compile(name: str, config: Config, scale: zoo.Scale = "full") -> CompileTime:
    return measure_file(name, zoo.export(name, config, scale))


def measure_file(name: str, model: Path) -> CompileTime:
    with tempfile.TemporaryDirectory(prefix="smelt-compile-") as folder:
        cold = _compile(model, Path(folder), "cold")
        return CompileTime(name, cold, _compile(model, Path(folder), "cached"))


def _compile(model: Path, folder: Path, label: str) -> Compilation:
    command = [sys.executable, "-P", "-c", _PROGRAM, str(model), str(folder / label)]
    environment = child_environment({"SMELT_CACHE_DIR": str(folder / "cache"), **import_path()})
    started, used = time.perf_counter(), _cpu_of_children()
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall_s, cpu_s = time.perf_counter() - started, _cpu_of_children() - used
    found, stages = (json.loads(line) for line in finished.stdout.splitlines()[-2:])
    spent = {stage: float(seconds) for stage, seconds in cast("dict[str, Any]", stages).items()}
    return Compilation(wall_s, cpu_s, bool(found), spent)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_compile_times(times: Sequence[CompileTime]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title="compile time, s", title_justify="left")
    stages = list(dict.fromkeys(stage for time in times for stage in time.cold.stages))
    for column in ("model", "", "wall", "CPU", *stages):
        table.add_column(column, justify="left" if column in {"model", ""} else "right")
    for found in times:
        for label, one in (("cold", found.cold), ("cached" if found.cached.found else "again", found.cached)):
            times_s = (one.wall_s, one.cpu_s, *(one.stages.get(stage, 0.0) for stage in stages))
            table.add_row(found.model, label, *(f"{seconds:.2f}" for seconds in times_s))
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    console.print(table)
