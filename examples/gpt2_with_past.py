"""GPT-2 that writes: a prompt, then token after token, keys and values handed on. Needs torch and transformers.

One artifact does both: a prompt has an empty past, and a token has all that came before it.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
from _side_by_side import relative_error

import smelt
from smelt.base import Config
from smelt.bench import zoo

Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def write(run: Run, names: list[str], past: list[np.ndarray], prompt: np.ndarray, count: int) -> list[np.ndarray]:
    """Logits of each step; the most likely token is the next one."""
    steps, tokens = [], prompt
    for _ in range(count):
        mask = np.ones((1, past[0].shape[2] + tokens.shape[1]), np.int64)
        logits, *past = run(dict(zip(names, [tokens, mask, *past], strict=True)))
        steps.append(logits[:, -1])
        tokens = logits[:, -1:].argmax(axis=-1)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=["full", "small", "tiny"], default="tiny")
    parser.add_argument("--tokens", type=int, default=24)
    given = parser.parse_args()
    path = zoo.export("gpt2-decode", Config.from_env(), given.scale)
    start = zoo.feeds("gpt2-decode", 1, 0, given.scale, new=9)
    names, past = list(start), [array for key, array in start.items() if key.startswith("past")]
    stock = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with smelt.compile(path) as fast:
        print(fast.coverage)
        results = {}
        for label, run in (("stock", lambda feeds: stock.run(None, feeds)), ("smelt", fast.run)):
            write(run, names, past, start["input_ids"], 2)  # the first runs allocate
            started = time.perf_counter()
            results[label] = write(run, names, past, start["input_ids"], given.tokens)
            rate = given.tokens / (time.perf_counter() - started)
            print(f"{label}: {rate:8.0f} tokens/s, tokens {[int(step.argmax()) for step in results[label]][:8]} ...")
    error = max(relative_error(ours, theirs) for ours, theirs in zip(results["smelt"], results["stock"], strict=True))
    print(f"largest difference of any step's logits: {error:.1e}")
    assert error < 1e-4


if __name__ == "__main__":
    main()
