"""A folder of onnxruntime-genai, run in a process of its own.

Input: a folder and a number of threads as arguments; on each line of standard input a prompt's and an answer's length.
Output: a line of JSON for each: seconds to the first token, seconds of each further one, the most memory so far.
Invariant: greedy, of random tokens that the seed decides; nothing of smelt is imported.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np


def _opened(folder: str, threads: int) -> Any:
    genai: Any = import_module("onnxruntime_genai")

    config = genai.Config(folder)
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    return genai.Model(config)


def _timed(model: Any, prompt: int, answer: int, tokens: int) -> dict[str, Any]:
    genai: Any = import_module("onnxruntime_genai")

    given = np.random.default_rng(prompt).integers(min(300, tokens // 2), tokens, (1, prompt)).astype(np.int32)
    params = genai.GeneratorParams(model)
    whole = prompt + answer + 1
    params.set_search_options(max_length=whole, min_length=whole, do_sample=False)
    generator = genai.Generator(model, params)
    started = time.perf_counter()
    generator.append_tokens(given)
    generator.generate_next_token()
    first, steps = time.perf_counter() - started, list[float]()
    for _ in range(answer):
        started = time.perf_counter()
        generator.generate_next_token()
        steps.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    made = [int(token) for token in generator.get_sequence(0)][prompt:]
    return {"first_s": first, "steps_s": steps, "peak_bytes": peak, "tokens": made}


def main(folder: str, threads: str, tokens: str) -> None:
    model = _opened(folder, int(threads))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        prompt, answer = json.loads(line)
        print(json.dumps(_timed(model, prompt, answer, int(tokens))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
