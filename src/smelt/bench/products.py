"""Matrix products alone, for their share of the machine's limits.

Input: sizes. Output: micro models. Invariant: every weight is different, so that none is read from a cache that
another one filled; values keep their size from product to product, so that no denormals or infinities are timed.

Products of one shape that is large enough are one node. Small ones alternate in a chain, so that a run is longer than
the call. The single row passes through more weights than any cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx

from smelt.bench.micro import Graph, MicroModel

Array = np.ndarray[Any, Any]
Shape = tuple[int, int]


def _chain(rows: int, shapes: Sequence[Shape]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    graph, x = Graph(), "x"
    for depth, columns in shapes:
        x = graph("MatMul", x, graph.normal(depth, columns, scale=1 / math.sqrt(depth)))
    depth = shapes[0][0]
    feeds = {"x": np.random.default_rng(0).standard_normal((rows, depth), np.float32)}
    return graph.model({"x": ("rows", depth)}, x, 2), feeds


def _model(name: str, rows: int, shapes: Sequence[Shape], about: str) -> MicroModel:
    return MicroModel(name, about, lambda: _chain(rows, shapes))


def _single(rows: int, depth: int, columns: int) -> MicroModel:
    name = f"{rows}x{depth}x{columns}"
    return _model(name, rows, [(depth, columns)], f"({rows},{depth}) by ({depth},{columns})")


_MODELS: Final = (
    _single(128, 768, 768),
    _single(128, 768, 3072),
    _single(128, 3072, 768),
    _single(128, 1024, 2816),
    _model(
        "128x128x512", 128, [(128, 512), (512, 128)] * 12, "(128,512) and (512,128) in turn, 24 products of 128 rows"
    ),
    _model("1-row", 1, [(1024, 2816), (2816, 1024)] * 12, "one row through 277 MB of weights"),
    _model("8-rows", 8, [(1024, 2816), (2816, 1024)] * 2, "8 rows through (1024,2816) and back, twice"),
    _single(37, 768, 770),
    _single(10000, 256, 256),
)
PRODUCTS: Final[dict[str, MicroModel]] = {model.name: model for model in _MODELS}
