"""Logits of a folder of onnxruntime-genai, in a process of its own.

Input: a folder as argument; on each line of standard input a list of tokens. Output: for each line a line of JSON with
the shape, then the logits after each token as float32. Invariant: tokens are given one by one, since a folder may
compute logits of the last position only; nothing of smelt is imported.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np


def main(folder: str) -> None:
    genai: Any = import_module("onnxruntime_genai")
    model = genai.Model(genai.Config(folder))
    for line in sys.stdin:
        tokens = json.loads(line)
        params = genai.GeneratorParams(model)
        params.set_search_options(max_length=len(tokens) + 1, do_sample=False)
        generator = genai.Generator(model, params)
        rows: list[Any] = []
        for token in tokens:
            generator.append_tokens(np.array([[token]], np.int32))
            rows.append(np.array(generator.get_logits(), np.float32).ravel())
        found = np.stack(rows)
        sys.stdout.buffer.write(json.dumps(found.shape).encode() + b"\n" + found.tobytes())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
