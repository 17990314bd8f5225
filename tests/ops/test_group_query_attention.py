"""Grouped queries with a cache, against stock ONNX Runtime and against the numpy reference."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import onnx_ir as ir
import pytest

from smelt.ops.reference import evaluate

RNG = np.random.default_rng(7)
HEADS, KV_HEADS, DEPTH = 4, 2, 16
OP: dict[str, Any] = {"domain": "com.microsoft", "opset": 17}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def operands(
    batch: int, rows: int, past: int | None, keys: list[int], *, packed: bool = False, rotary: bool = False
) -> list[np.ndarray | None]:
    """`keys` of each batch index; the cache is a buffer when it has room for all of them."""
    old = [floats(batch, KV_HEADS, past, DEPTH) for _ in range(2)] if past is not None else [None, None]
    if packed:
        new = [floats(batch, rows, (HEADS + 2 * KV_HEADS) * DEPTH), None, None]
    else:
        new = [floats(batch, rows, n * DEPTH) for n in (HEADS, KV_HEADS, KV_HEADS)]
    tables = [floats(24, DEPTH // 2), floats(24, DEPTH // 2)] if rotary else [None, None]
    return [*new, *old, np.array(keys, np.int32) - 1, np.array([max(keys)], np.int32), *tables]


def check(given: list[np.ndarray | None], attrs: dict[str, Any], outputs: int = 3) -> None:
    while given[-1] is None:
        given = given[:-1]
    how = {**OP, "attrs": {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attrs}, "outputs": outputs}
    how["out_types"] = [np.float32] * outputs
    made = cases.check_node("GroupQueryAttention", given, against=("ort!",), free=(), **how)
    model = ir.serde.deserialize_model(cases.node_model("GroupQueryAttention", given, **how))
    for a, b in zip(made, evaluate(model.graph[0], given, 1), strict=False):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


CALLS: dict[str, tuple[int, int, int | None, list[int]]] = {
    "prompt": (2, 5, None, [5, 5]),
    "next tokens": (2, 1, 6, [7, 5]),
    "next tokens into a buffer": (2, 1, 10, [7, 5]),
    "next tokens into a mostly empty buffer": (2, 1, 70, [21, 5]),
    "some next tokens into a mostly empty buffer": (1, 3, 70, [23]),
    "a longer prompt": (1, 3, 6, [9]),
    "a longer prompt into a buffer": (1, 3, 12, [9]),
    "prompt into a buffer": (2, 5, 9, [5, 5]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("packed", [False, True])
def test_caches_by_batch_index(call: tuple[int, int, int | None, list[int]], packed: bool) -> None:
    check(operands(*call, packed=packed), {})
    check(operands(*call, packed=packed, rotary=True), {"do_rotary": 1})


@pytest.mark.parametrize(
    "attrs", [{"scale": 0.3}, {"softcap": 2.0}, {"local_window_size": 3}, {"smooth_softmax": 1},
              {"local_window_size": 2, "softcap": 1.5, "do_rotary": 1, "rotary_interleaved": 1}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("call", [CALLS["prompt"], CALLS["next tokens"], CALLS["a longer prompt"]], ids=str)
def test_ways_to_score(call: tuple[int, int, int | None, list[int]], attrs: dict[str, Any]) -> None:
    check(operands(*call, rotary="do_rotary" in attrs), attrs)


def test_positions_biases_and_sinks() -> None:
    given = operands(1, 3, 6, [9], rotary=True)
    places = np.array([[2, 9, 4]])
    check([*given, places], {"do_rotary": 1})
    check([*given, places, floats(1, HEADS, 3, 9)], {"do_rotary": 1})
    check([*given, None, floats(1, 1, 3, 9), floats(HEADS)], {"do_rotary": 1})


def test_the_caches_need_not_be_asked_for() -> None:
    check(operands(2, 4, None, [4, 4]), {}, outputs=1)


def test_a_quantized_cache_is_refused() -> None:
    given = [*operands(1, 1, 6, [7]), None, None, None, floats(1), floats(1)]
    attrs = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    assert "quantized" in cases.refuses("GroupQueryAttention", given, **OP, outputs=3, attrs=attrs)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_what_is_not_finite_reaches_the_rows_that_see_it(place: int, value: float) -> None:
    given = operands(2, 1, 70, [21, 1])
    given[place] = np.abs(given[place])
    if place < 3:
        given[place][1, 0, 3] = value
    else:
        given[place][0, 1, 7, 3] = value
        given[place][0, 1, 40, 3] = np.nan  # beyond the keys: nobody may see it
    attrs = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    how: dict[str, Any] = {**OP, "attrs": attrs, "outputs": 3, "out_types": [np.float32] * 3}
    made = cases.check_node("GroupQueryAttention", given, against=(), free=(), **how)
    model = ir.serde.deserialize_model(cases.node_model("GroupQueryAttention", given, **how))
    expected = evaluate(model.graph[0], given, 1)
    np.testing.assert_allclose(made[0], expected[0], rtol=2e-5, atol=2e-5)
