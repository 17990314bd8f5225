"""Long runs whose results are on disk while they go on.

Input: requests for the workers of a pool. Output: each answer handed to the caller, and the results in a JSON file.
Invariant: the file is whole at any moment, and what was found is in it also when the run is stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pool import run_all

from smelt.base.config import Config
from smelt.base.progress import open_progress

SAVE_EVERY_S = 10.0


def read(path: Path, *, fresh: bool = False) -> dict[str, Any]:
    """What an earlier run left, or nothing."""
    return json.loads(path.read_text()) if path.exists() and not fresh else {}


def write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=1, sort_keys=True))
    partial.replace(path)


def run_kept(
    title: str,
    requests: Sequence[dict[str, Any]],
    command: Sequence[str],
    arguments: Any,
    put: Callable[[dict[str, Any], dict[str, Any]], str],
    save: Callable[[], None],
) -> None:
    """Ask for everything, `arguments.workers` at a time; `put` takes an answer and says what the progress bar shows."""
    with open_progress(Config.from_env()) as progress:
        step = progress.task(title, len(requests))
        answers = run_all(requests, arguments.workers, arguments.timeout, command)
        saved = time.monotonic()
        try:
            for request, answer in answers:
                step(put(request, answer))
                if time.monotonic() - saved > SAVE_EVERY_S:
                    save()
                    saved = time.monotonic()
        finally:
            save()
