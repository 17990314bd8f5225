"""Weights that a file computes from others: standardized, normalized, merged."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from pass_models import FLOAT, Spec, build, kinds, op, optimized

IMAGE: list[Spec] = [("x", FLOAT, ["n", 64, 6, 5])]
OUT: list[Spec] = [("y", FLOAT, ["n", 128, 4, 3])]


def _values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _standardized(outputs: str) -> list[object]:
    """As torch.onnx writes a batch normalization of weights by their own statistics."""
    return [
        op("ReduceMean", "w3 axes", "mean", keepdims=0),
        op("ReduceMean", "w3 axes", "kept", keepdims=1),
        op("Sub", "w3 kept", "apart"),
        op("Mul", "apart apart", "square"),
        op("ReduceMean", "square axes", "var", keepdims=0),
        op("BatchNormalization", "w3 gain zero mean var", outputs, training_mode=1, epsilon=1e-5),
        op("Reshape", "flat shape", "w4"),
        op("Conv", "x w4", "y"),
    ]


CONSTANTS = {"w3": _values(1, 128, 576), "gain": _values(128, seed=1) / 200,
             "zero": _values(128, seed=2) / 200,
             "shape": np.array([128, 64, 3, 3]), "axes": np.array([0, 2])}  # fmt: skip


def _size(model: ir.Model) -> int:
    held = [value.const_value for value in model.graph.initializers.values()]
    return sum(tensor.size for tensor in held if tensor is not None)


def test_standardized_weights_are_constants() -> None:
    """73,728 of them: more than other constants may grow to, but the originals go away."""
    proto = build(_standardized("flat rm rv"), IMAGE, OUT, CONSTANTS)
    model = optimized(proto, {"x": _values(2, 64, 6, 5)})
    assert kinds(model) == ["Conv"] and _size(model) < CONSTANTS["w3"].size + 1000


def test_statistics_that_are_read_stay() -> None:
    outputs: list[Spec] = [*OUT, ("rm", FLOAT, [128])]
    model = optimized(build(_standardized("flat rm rv"), IMAGE, outputs, CONSTANTS), {"x": _values(2, 64, 6, 5)})
    assert "BatchNormalization" in kinds(model)


@pytest.mark.parametrize("read_elsewhere", [False, True])
def test_a_large_weight_is_computed_where_the_original_goes_away(read_elsewhere: bool) -> None:
    nodes = [op("Mul", "a half", "b"), op("Add", "b c", "w"), op("MatMul", "x w", "m")]
    nodes += [op("MatMul", "m a", "y")] if read_elsewhere else [op("Relu", "m", "y")]
    weights = {"a": _values(300, 300) / 300, "half": np.float32([0.5]), "c": _values(300, 300, seed=1) / 300}
    ends: list[Spec] = [("x", FLOAT, ["n", 300])], [("y", FLOAT, ["n", 300])]
    model = optimized(build(nodes, *ends, weights), {"x": _values(4, 300) / 30}, only=["fold-constants"])
    assert ("Mul" in kinds(model)) is read_elsewhere
    assert _size(model) < (200_000 if read_elsewhere else 100_000)
