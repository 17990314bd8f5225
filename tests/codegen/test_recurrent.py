"""Recurrent layers in kernels: every attribute against float64 numpy; ONNX Runtime's own error is the yardstick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from merged import feeds_of, merge, split
from recurrent_models import Layer, random_layer
from region_check import stock

import smelt
from smelt.base.target import find_target, runs_on_host
from smelt.ops import recurrent_reference

TOLERANCE = 2e-6
MOVES = 16


def compiled_outputs(layers: Sequence[Layer], threads: int = 1, levels: str = "v2") -> list[list[np.ndarray]]:
    made = [layer.model() for layer in layers]
    models = [m for m, _ in made]
    with smelt.compile(merge(models), force=True, levels=levels, verify=False, threads=threads) as compiled:
        left = [item.reason for item in compiled.result.plan.fallbacks]
        outputs = compiled.run(feeds_of(models, [arrays for _, arrays in made]))
    assert not left
    return list(split(models, outputs))


def reference(layer: Layer, given: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
    """In float64, of the layer's own operands or others."""
    operands = layer.arrays() if given is None else given
    arrays = [a if a is None or a.dtype == np.int32 else a.astype(np.float64) for a in operands]
    made = getattr(recurrent_reference, layer.op.lower())(*arrays, **layer.options)
    return [y for y, keep in zip(made, layer.outputs, strict=False) if keep]


def error(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest share of the tolerance that an element takes."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        if b.size:
            share = float(np.max(np.abs(a - b) / (TOLERANCE * (np.abs(b) + np.sqrt(np.mean(b * b)) + 1e-9))))
            worst = float("inf") if np.isnan(share) else max(worst, share)
    return worst


def movement(layer: Layer, wanted: Sequence[np.ndarray]) -> float:
    """How far the reference moves, as a share of the tolerance, when operands move by one step of float32: a layer
    whose gates have no bound multiplies its states at each step, and every rounding with them."""
    random, worst = np.random.default_rng(layer.seed), 0.0
    for _ in range(MOVES):
        moved = [a if a is None or a.dtype == np.int32 else _stepped(a, random) for a in layer.arrays()]
        worst = max(worst, error(reference(layer, moved), wanted))
    return worst


def _stepped(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.nextafter(array, random.choice(np.array([-np.inf, np.inf], array.dtype), array.shape))


def check(layers: Sequence[Layer], *, compare: bool = True, threads: int = 1, level: str = "v2") -> None:
    for layer, found in zip(layers, compiled_outputs(layers, threads, level), strict=True):
        wanted = reference(layer)
        mine = error(found, wanted)
        theirs = error(stock(*layer.model()), wanted) if compare else 0.0
        if compare and "activations" not in layer.options:
            assert theirs < 100, f"the reference differs from ONNX Runtime: {layer}"
        if mine > max(1.0, 1.5 * theirs):
            moves = movement(layer, wanted)
            assert mine <= moves, f"{mine} of the tolerance, ONNX Runtime {theirs}, moved inputs {moves}: {layer}"


def test_random_layers_are_as_right_as_those_of_onnx_runtime():
    check([random_layer(seed) for seed in range(36)])


def test_a_layer_that_multiplies_rounding_errors_is_held_to_the_movement_of_its_reference():
    """States of 6e9 after five steps. A layer with bounded gates does not move, so that no wrong state passes."""
    grows = random_layer(78)
    assert 1.0 < movement(grows, reference(grows)) < 10.0
    check([grows])
    bounded = [Layer(op, 5, 7, 17, 16) for op in ("LSTM", "GRU", "RNN")]
    assert max(movement(layer, reference(layer)) for layer in bounded) < 1.0


@pytest.mark.full
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize("first", range(36, 436, 50))
def test_many_random_layers_are_as_right_as_those_of_onnx_runtime(first: int, level: str):
    if not runs_on_host(find_target(level)):
        pytest.skip(f"this machine does not run {level}")
    check([random_layer(seed) for seed in range(first, first + 50)], threads=2, level=level)


def test_many_rows_and_saturated_gates():
    """Several chunks of rows and groups of blocks; sums far beyond where a sigmoid is 0 or 1."""
    check([
        Layer("LSTM", 3, 50, 4, 100, scale=0.3), Layer("GRU", 3, 17, 4, 100, scale=0.3),
        Layer("LSTM", 3, 2, 4, 40, scale=8.0), Layer("GRU", 3, 2, 4, 40, options={"linear_before_reset": 1}, scale=8.0),
        Layer("GRU", 3, 2, 4, 40, scale=8.0), Layer("RNN", 3, 2, 4, 40, scale=8.0),
    ])  # fmt: skip


def test_sums_of_thousands_give_finite_states():
    """Quotients of gates must not be infinite over infinite."""
    sizes = [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})]
    layers = [Layer(op, 4, rows, 5, 24, options=options, scale=20.0) for op, options in sizes for rows in (1, 5)]
    for layer, found in zip(layers, compiled_outputs(layers), strict=True):
        for ours, theirs in zip(found, stock(*layer.model()), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3, err_msg=str(layer))


def test_products_of_inputs_at_the_borders_of_their_spans():
    """A few rows have those of several steps at a time (5 of the first layer, 3 of the second), many each step's own,
    which rows of lengths of their own gather; a wide input is gathered in pieces, or not at all."""
    backwards, both = {"direction": "reverse"}, {"direction": "bidirectional"}
    long, lengths = [40, 3, 0, 17, 18], [7, 0, 1, 6, 5, 2, 7] * 5
    check([
        Layer("LSTM", 40, 5, 3, 350, options=dict(backwards), lengths=long, scale=0.05),
        Layer("GRU", 40, 10, 3, 350, options={"linear_before_reset": 1}, scale=0.05),
        Layer("GRU", 7, 35, 300, 40, 2, dict(both), lengths=list(lengths), scale=0.1),
        Layer("RNN", 7, 35, 5000, 17, 1, dict(backwards), lengths=list(lengths), scale=0.02),
        Layer("LSTM", 7, 35, 20, 50, 1, dict(backwards), scale=0.1, constant=False),
    ])  # fmt: skip


def test_steps_after_the_longest_row_give_zeros():
    both = {"direction": "bidirectional"}
    check([
        Layer("LSTM", 9, 3, 4, 19, 2, dict(both), lengths=[2, 0, 4], state=True),
        Layer("GRU", 9, 2, 4, 19, 1, {"direction": "reverse"}, lengths=[1, 3], state=True),
        Layer("LSTM", 9, 2, 4, 19, 2, dict(both), lengths=[0, 0], state=True),
    ])  # fmt: skip
    check([Layer("LSTM", 9, 3, 4, 19, 2, {**both, "layout": 1}, lengths=[2, 0, 4], state=True)], compare=False)


def test_rows_before_steps_are_the_same_layer():
    """ONNX Runtime refuses this layout."""
    options = {"direction": "bidirectional", "layout": 1}
    layers = [Layer(op, 5, 3, 4, 19, 2, dict(options), lengths=[2, 0, 5], state=True) for op in ("LSTM", "GRU", "RNN")]
    check(layers, compare=False)


def test_all_threads_give_the_same_bits():
    """Directions, blocks of rows, units of a step and products of inputs that workers share."""
    layers = [
        Layer("LSTM", 9, 1, 8, 200, 1, scale=0.1), Layer("GRU", 9, 1, 8, 200, 1, {"linear_before_reset": 0}, scale=0.1),
        Layer("LSTM", 4, 40, 8, 64, 1, scale=0.1), Layer("LSTM", 40, 1, 80, 64, 1, scale=0.1),
        Layer("GRU", 30, 12, 40, 128, 1, {"linear_before_reset": 0}, scale=0.05),
        Layer("GRU", 9, 3, 8, 96, 2, {"direction": "bidirectional"}, scale=0.1),
    ]  # fmt: skip
    one, two = (compiled_outputs(layers, threads) for threads in (1, 2))
    assert all(np.array_equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True))


def test_empty_sequences_give_zeros():
    layers = [Layer(op, 0, 2, 3, 5, state=True) for op in ("LSTM", "GRU", "RNN")] + [Layer("LSTM", 3, 0, 3, 5)]
    for found in compiled_outputs(layers):
        assert all(not y.any() for y in found)
    assert compiled_outputs(layers[-1:])[0][0].shape == (3, 1, 0, 5)


def test_a_length_beyond_the_sequence_is_an_error():
    model, (x, _) = Layer("LSTM", 3, 2, 3, 5, lengths=[1, 2]).model()
    with smelt.compile(model, force=True, levels="v2", verify=False, threads=1) as compiled:
        for wrong in (4, -1):
            with pytest.raises(Exception, match=f"{wrong}"):
                compiled.run({"x": x, "l": np.array([1, wrong], np.int32)})


def test_infinite_and_nan_inputs_stay_in_their_rows():
    layer = Layer("LSTM", 3, 3, 3, 20)
    model, (x,) = layer.model()
    x[1, 1, 0], x[1, 2, 0] = np.nan, np.inf
    with smelt.compile(model, force=True, levels="v2", verify=False, threads=1) as compiled:
        every = compiled.run({"x": x})[0]
    assert np.isfinite(every[:, :, 0]).all() and np.isfinite(every[0]).all()
    assert np.isnan(every[1:, :, 1]).all() and np.isfinite(every[1:, :, 2]).all()


def test_a_layer_is_one_function():
    model, _ = Layer("LSTM", 3, 2, 3, 20).model()
    with smelt.compile(model, force=True, levels="v2", verify=False, threads=1) as compiled:
        kinds = [k.kind for entry in compiled.result.generated.source.entries for k in entry.kernels]
    assert kinds == ["function"]
