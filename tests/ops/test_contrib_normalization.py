"""Normalizations of ONNX Runtime's own domain, against ONNX Runtime and against their numpy references."""

from typing import Any

import cases
import numpy as np
import onnx_ir as ir
import pytest

from smelt.ops.reference import evaluate

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(op: str, inputs: list[np.ndarray | None], outputs: int, **attrs: Any) -> None:
    """Lowering against ORT, and the reference in float64 against the lowering."""
    made = cases.check_node(op, inputs, outputs=outputs, domain="com.microsoft", attrs=attrs, against=("ort",))
    model = cases.node_model(op, inputs, outputs=outputs, domain="com.microsoft", attrs=attrs)
    assert cases.by_ort(model, [a for a in inputs if a is not None]) is not None
    node = ir.serde.deserialize_model(model).graph.node(0)
    for got, want in zip(made, evaluate(node, inputs, 1), strict=True):
        assert want.dtype == (np.float64 if got.dtype.kind == "f" else got.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("present", [(True, True), (True, False), (False, False)])
def test_skip_layer_norm(skip: tuple[int, ...], present: tuple[bool, bool]) -> None:
    shift, bias = (normal(8) if p else None for p in present)
    check("SkipLayerNormalization", [normal(2, 3, 8), normal(*skip), normal(8), shift, bias], 4, epsilon=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_skip_rms_norm(bias: bool) -> None:
    inputs = [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8) if bias else None]
    check("SkipSimplifiedLayerNormalization", inputs, 4, epsilon=1e-5)


def test_the_default_epsilon_of_residual_norms_is_tiny() -> None:
    x = normal(1, 2, 8) * np.float32(1e-5)
    check("SkipLayerNormalization", [x, x, normal(8)], 1)


def embedding(segments: bool, mask: bool, positions: bool) -> list[np.ndarray | None]:
    ids = np.array([[1, 2, 3], [0, 4, 1]], np.int32)
    return [
        ids, (ids % 2).astype(np.int32) if segments else None, normal(5, 8), normal(6, 8),
        normal(2, 8) if segments else None, normal(8), normal(8),
        np.array([[1, 1, 0], [2, 0, 1]], np.int32) if mask else None,
        np.array([[5, 3, 4]], np.int32) if positions else None,
    ]  # fmt: skip


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("positions", [True, False])
def test_embed_layer_norm(segments: bool, mask: bool, positions: bool) -> None:
    check("EmbedLayerNormalization", embedding(segments, mask, positions), 3, mask_index_type=1)


def test_a_sequence_longer_than_the_position_table_is_refused() -> None:
    inputs = embedding(True, True, False)
    inputs[3] = normal(2, 8)
    assert "position table" in cases.refuses("EmbedLayerNormalization", inputs, domain="com.microsoft")
