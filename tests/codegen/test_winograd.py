"""Winograd's form of 3 x 3 convolutions: accuracy, borders, epilogues, values that are not finite."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import floats, stock

import smelt
from smelt.ir.backend import Packed

LAYERS = [
    ((2, 32, 14, 13), 48, [1, 1, 1, 1]),
    ((3, 40, 12, 12), 70, [1, 1, 1, 1]),
    ((1, 64, 30, 17), 33, [0, 2, 2, 0]),
    ((1, 160, 16, 14), 160, [1, 1, 1, 1]),
    ((2, 200, 12, 15), 170, [1, 1, 1, 1]),
    ((1, 520, 16, 14), 72, [0, 2, 2, 0]),
    ((1, 40, 72, 2), 40, [1, 1, 1, 1]),
    ((2, 32, 2, 75), 36, [1, 1, 1, 1]),
    ((3, 33, 15, 15), 47, [1, 1, 1, 1]),
    ((2, 64, 31, 9), 40, [2, 0, 0, 1]),
    ((3, 200, 13, 13), 170, [1, 1, 1, 1]),
    ((1, 96, 13, 21), 24, [1, 1, 1, 1]),
    ((2, 18, 15, 11), 18, [1, 1, 1, 1]),
    ((1, 16, 12, 12), 16, [0, 2, 2, 0]),
]


def layer(
    shape: tuple[int, ...], columns: int, pads: list[int], *, norm: bool = False, free: bool = False
) -> onnx.ModelProto:
    """A convolution of a free batch, and an activation or a normalization over channels behind it."""
    weights = floats(columns, shape[1], 3, 3, seed=1) / np.float32(np.sqrt(9 * shape[1]))
    inits = [("w", weights), ("b", floats(columns, seed=2)), ("g", floats(columns, seed=3))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads)]
    if norm:
        nodes += [
            helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
            helper.make_node("LayerNormalization", ["t", "g", "b"], ["y"], axis=-1),
        ]
    else:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    sizes = ["H", "W"] if free else shape[2:]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", shape[1], *sizes])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in inits])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def compiled(model: onnx.ModelProto, levels: str = "v3", threads: int = 1):
    made = smelt.compile(model, force=True, levels=levels, verify=False, threads=threads)
    assert any(unit.name == "winograd" for unit in made.result.generated.source.units)
    return made


@pytest.mark.parametrize("levels", ["v2", "v3"])
@pytest.mark.parametrize(("shape", "columns", "pads"), LAYERS)
def test_is_as_accurate_as_the_contract_asks(shape, columns, pads, levels) -> None:
    model, x = layer(shape, columns, pads), floats(*shape)
    want = stock(model, [x])[0]
    with compiled(model, levels) as made:
        found = made.run({"x": x})[0]
    assert np.abs(found - want).max() <= 1e-5 * np.sqrt(np.mean(np.square(want.astype(np.float64)))) + 1e-6


def test_an_epilogue_may_need_whole_rows() -> None:
    model, x = layer((2, 128, 16, 14), 144, [1, 1, 1, 1], norm=True), floats(2, 128, 16, 14)
    with compiled(model) as made:
        np.testing.assert_allclose(made.run({"x": x})[0], stock(model, [x])[0], rtol=2e-5, atol=2e-5)


def test_what_is_not_finite_reaches_only_windows_that_see_it() -> None:
    model, x = layer((1, 32, 14, 14), 48, [1, 1, 1, 1]), floats(1, 32, 14, 14)
    x[0, 3, 4, 5], x[0, 7, 9, 9] = np.inf, np.nan
    want = stock(model, [x])[0]
    with compiled(model) as made:
        found = made.run({"x": x})[0]
    assert np.array_equal(np.isfinite(found), np.isfinite(want))
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_results_depend_neither_on_threads_nor_on_the_rest_of_the_batch() -> None:
    model, x = layer((3, 160, 16, 14), 160, [1, 1, 1, 1]), floats(3, 160, 16, 14)
    with compiled(model) as one, compiled(model, threads=3) as three:
        whole = one.run({"x": x})[0]
        assert np.array_equal(whole, three.run({"x": x})[0])
        assert np.array_equal(whole[1:2], one.run({"x": np.ascontiguousarray(x[1:2])})[0])


@pytest.mark.parametrize("levels", ["v2", "v3"])
def test_free_sizes_choose_when_they_come(levels) -> None:
    model = layer((1, 40, 0, 0), 36, [1, 1, 1, 1], free=True)
    with compiled(model, levels) as made:
        for size in [(1, 40, 14, 13), (2, 40, 20, 16), (2, 40, 15, 20), (1, 40, 3, 4), (1, 40, 1, 1)]:
            x = floats(*size)
            np.testing.assert_allclose(made.run({"x": x})[0], stock(model, [x])[0], rtol=2e-5, atol=2e-5)


def test_large_weights_are_kept_as_they_are() -> None:
    model = layer((1, 512, 14, 12), 256, [1, 1, 1, 1])
    with compiled(model) as made:
        layouts = [i.layout for code in made.result.generated.codes for i in code.inputs if isinstance(i, Packed)]
        x = floats(1, 512, 14, 12)
        np.testing.assert_allclose(made.run({"x": x})[0], stock(model, [x])[0], rtol=2e-5, atol=2e-5)
    assert layouts == ["window:1"]


def test_the_report_counts_the_terms_that_the_model_states() -> None:
    with compiled(layer((1, 32, 14, 14), 48, [1, 1, 1, 1])) as made:
        entries = made.result.generated.source.entries
        stated = [kernel.flops for entry in entries for kernel in entry.kernels if kernel.kind == "window"]
    (factor,) = [int(number) for text in stated for number in text.split("*") if number.isdigit()]
    assert factor >= 2 * 14 * 14 * 48 * 32 * 9
