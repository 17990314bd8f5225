"""Rotary embeddings: cases of the ONNX suite, both layouts, parts of a head."""

from __future__ import annotations

import cases
import numpy as np
import pytest

RNG = np.random.default_rng(4)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("case", cases.backend_cases("RotaryEmbedding"), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
def test_rows_of_the_tables_are_picked_by_position(interleaved: int, part: int) -> None:
    half = (part or 8) // 2
    operands = [floats(2, 3, 5, 8), floats(9, half), floats(9, half), RNG.integers(0, 9, (2, 5))]
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": part}
    cases.check_node("RotaryEmbedding", operands, opset=23, attrs=attrs, free=())


def test_heads_side_by_side_need_their_number() -> None:
    operands = [floats(2, 3, 16), floats(2, 3, 4), floats(2, 3, 4)]
    cases.check_node("RotaryEmbedding", operands, opset=23, attrs={"num_heads": 2}, free=())
    assert "number of heads" in cases.refuses("RotaryEmbedding", operands, opset=23)
