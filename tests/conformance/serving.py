"""The worker's side of a pool: a JSON request per line in, a JSON answer per line out.

Input: a function that loads what is needed and returns what answers a request. Output: answers, on the stream that
stdout was. Invariant: what libraries print is never taken for an answer; memory is limited where a limit is given, so
that a case that runs away ends as an error and not with the machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from smelt.toolchain import sanitizer_is_loaded

Request = dict[str, Any]
Answer = dict[str, Any]


def serve(prepare: Callable[[], Callable[[Request], Answer]], memory_bytes: int | None = None) -> None:
    """Answer requests until stdin ends; `prepare` runs once, before the pool is told that this worker is ready."""
    if memory_bytes is not None and not sanitizer_is_loaded():  # whose shadow memory takes terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = prepare()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
