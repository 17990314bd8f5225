"""Attention of ONNX Runtime's own domain, against stock ONNX Runtime and against its numpy reference."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import onnx_ir as ir
import pytest

from smelt.ops.reference import evaluate

RNG = np.random.default_rng(5)
DOMAIN = "com.microsoft"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(
    op: str, operands: list[np.ndarray | None], attrs: dict[str, Any], outputs: int = 1, constants: Any = ()
) -> None:
    """The lowering gives what stock ONNX Runtime gives, and so does the reference."""
    how: dict[str, Any] = {"domain": DOMAIN, "attrs": attrs, "outputs": outputs, "opset": 17}
    how["out_types"] = [np.float32] * outputs
    made = cases.check_node(op, operands, against=("ort!",), free=(), **how)
    model = ir.serde.deserialize_model(cases.node_model(op, operands, **how))
    wanted = evaluate(model.graph[0], operands, 1)
    for a, b in zip(made, wanted, strict=False):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("causal", [0, 1])
def test_heads_side_by_side(causal: int) -> None:
    operands: list[np.ndarray | None] = [floats(2, 3, 12), floats(2, 5, 12), floats(2, 5, 18), floats(42)]
    check("MultiHeadAttention", operands, {"num_heads": 3})
    same = [floats(2, 4, 12) for _ in range(3)]
    check("MultiHeadAttention", [*same], {"num_heads": 3, "unidirectional": causal, "scale": 0.3})


def test_keys_that_are_split_already() -> None:
    check("MultiHeadAttention", [floats(2, 4, 24), floats(2, 3, 5, 8), floats(2, 3, 5, 8)], {"num_heads": 3})


def test_what_is_packed_is_refused() -> None:
    attrs = {"num_heads": 3}
    assert "packed" in cases.refuses(
        "MultiHeadAttention", [floats(2, 4, 3, 3, 8)], domain=DOMAIN, attrs=attrs, opset=17
    )


@pytest.mark.parametrize("mask", [np.array([2, 4]), np.eye(2, 5), RNG.random((2, 3, 5)) < 0.5])
def test_masks_of_keys(mask: np.ndarray) -> None:
    operands: list[np.ndarray | None] = [floats(2, 3, 12), floats(2, 5, 12), floats(2, 5, 12), None]
    check("MultiHeadAttention", [*operands, mask.astype(np.int32)], {"num_heads": 3})
    check("MultiHeadAttention", [*operands, mask.astype(np.int32), floats(1, 3, 3, 5)], {"num_heads": 3})


def test_the_past_comes_before_the_keys_of_the_call() -> None:
    operands = [*(floats(2, 3, 12) for _ in range(3)), None, None, None, floats(2, 3, 4, 4), floats(2, 3, 4, 4)]
    check("MultiHeadAttention", operands, {"num_heads": 3, "unidirectional": 1}, outputs=3)


@pytest.mark.parametrize("past", [False, True])
def test_projections_inside(past: bool) -> None:
    mask = np.array([[1, 1, 1, 0], [1, 0, 1, 1]], np.int32)
    operands = [
        floats(2, 4, 8),
        floats(8, 36),
        floats(36),
        None if past else mask,
        floats(2, 2, 3, 5, 4) if past else None,
    ]
    attrs = {"num_heads": 3, "unidirectional": 1}
    check("Attention", operands if past else operands[:4], attrs, outputs=2 if past else 1, constants=(1, 2))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([3]), np.array([[1, 0, 7], [2, 2, 4]])])
def test_rotary_embedding(interleaved: int, places: np.ndarray) -> None:
    attrs = {"interleaved": interleaved}
    check("RotaryEmbedding", [floats(2, 3, 16), places, floats(9, 4), floats(9, 4)], attrs)
    check("RotaryEmbedding", [floats(2, 2, 3, 8), places, floats(9, 4), floats(9, 4)], attrs)


def test_what_shares_a_cache_is_refused() -> None:
    operands = [*(floats(2, 3, 12) for _ in range(3)), *[None] * 5, np.array([1], np.int32)]
    assert "shared" in cases.refuses("MultiHeadAttention", operands, domain=DOMAIN, attrs={"num_heads": 3}, opset=17)
