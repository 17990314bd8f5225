"""The process that runs an untrusted model and untested kernels.

Input: the path of a job file (JSON). Output: events, one JSON object per line, in events.jsonl beside it; a step is
announced before it begins, so that a crash can be told apart by what was under way. Invariant: limits are set before
anything of the model is read; the process does not outlive the one that started it.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from smelt.base.collector import rare_collections
from smelt.base.parent import end_with_parent

_POLL_S: Final = 0.005
KERNELS_FILE: Final = "kernels.pickle"
_LIKELY: Final = "smelt.check.verify"  # takes longest to import


class Reporter:
    """Appends events; each is on disk before the next step begins."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def __call__(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()


def _limit(memory_bytes: int) -> None:
    if memory_bytes > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # When memory runs out on the whole machine, this process is the one to go.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def begin(job_file: Path) -> tuple[dict[str, Any], Reporter]:
    """The job, with its limits set, and where to tell about it."""
    if len(sys.argv) > 2:
        end_with_parent(int(sys.argv[2]))
    if not job_file.exists():
        importlib.import_module(_LIKELY)
    while not job_file.exists():
        time.sleep(_POLL_S)
    job: dict[str, Any] = json.loads(job_file.read_bytes())
    end_with_parent(int(job["parent"]))
    _limit(int(job["memory_bytes"]))
    kernels = job_file.parent / KERNELS_FILE
    if kernels.exists() and kernels.stat().st_size:
        from smelt.ops.user import unpickle_kernels

        unpickle_kernels(kernels.read_bytes())
    return job, Reporter(job_file.parent / "events.jsonl")


@rare_collections()
def main(job_file: Path) -> None:
    job, report = begin(job_file)
    if job["mode"] == "verify":
        from smelt.check.verify import verify

        verify(job, job_file.parent, report)
    elif job["mode"] == "race":
        from smelt.check.race import race

        race(job, job_file.parent, report)
    else:
        from smelt.check.timing import time_variants

        time_variants(job, job_file.parent, report)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
