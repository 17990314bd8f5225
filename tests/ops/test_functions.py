"""Ops that are functions in C: TopK, Scatter*, GridSample, Det, windows; by numpy and in generated code."""

from __future__ import annotations

import numpy as np
import pytest
from cases import check_node, compare, node_model, refuses
from kernels import Batch

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def topk(x: np.ndarray, k: int, **attributes):
    return ("TopK", [x, np.array([k])], {"constants": (1,), "outputs": 2, "attrs": attributes})


def scattered(op: str, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, **attributes):
    return (op, [x, indices, updates], {"attrs": attributes, "free": (0, 2) if op == "ScatterND" else True})


def elements(*arrays: np.ndarray, **attributes):
    return scattered("ScatterElements", *arrays, **attributes)


def tuples(*sizes: int, count: tuple[int, ...]) -> np.ndarray:
    return np.stack([RNG.integers(-size, size, count) for size in sizes], -1)


def sampled(x: np.ndarray, places: tuple[int, ...], **attributes):
    grid = (RNG.random((len(x), *places, x.ndim - 2)) * 3 - 1.5).astype(np.float32)
    return ("GridSample", [x, grid], {"attrs": attributes})


def aligned(count: int, **attributes):
    corners = RNG.random((count, 2, 2)).astype(np.float32) * 12 - 2
    regions = np.concatenate([corners.min(1), corners.max(1)], 1)
    attributes = {"output_height": 3, "output_width": 2, **attributes}
    return ("RoiAlign", [floats(2, 3, 7, 9), regions, RNG.integers(0, 2, count)], {"attrs": attributes})


def columns(shape: tuple[int, ...], image: tuple[int, ...], block: tuple[int, ...], **attributes):
    how = {"constants": (1, 2), "attrs": attributes}
    return ("Col2Im", [floats(*shape), np.array(image), np.array(block)], how)


CASES = [
    *(aligned(5, mode=mode, sampling_ratio=ratio, coordinate_transformation_mode=kind)
      for mode in ("avg", "max") for ratio in (0, 2) for kind in ("half_pixel", "output_half_pixel")),
    aligned(4, spatial_scale=0.5, sampling_ratio=9), aligned(0),
    columns((2, 12, 12), (4, 5), (2, 2)), columns((1, 9, 12), (6, 7), (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]),
    columns((1, 6, 7), (9,), (3,)), columns((1, 8, 15), (5, 7), (2, 2), dilations=[2, 2]),
    columns((2, 8, 8), (3, 3, 3), (2, 2, 2)),
    topk(floats(5, 70), 7), topk(floats(5, 70), 70, largest=0), topk(floats(3, 9, 4), 2, axis=1), topk(floats(6), 0),
    topk(RNG.integers(0, 4, (4, 50)), 9), topk(RNG.integers(0, 200, (4, 50)).astype(np.int32), 9, largest=0),
    topk(RNG.integers(0, 9, (3, 1000)).astype(np.float64), 12, axis=-1), topk(floats(0, 5), 2),
    *(elements(floats(5, 6, 3), RNG.integers(-6, 6, (4, 3, 2)), floats(4, 3, 2), axis=1, reduction=r)
      for r in ("none", "add", "mul", "min", "max")),
    elements(floats(5, 6), RNG.integers(-5, 5, (3, 6)).astype(np.int32), floats(3, 6)),
    elements(floats(5, 6), np.zeros((0, 6), np.int64), floats(0, 6)),
    elements(RNG.integers(0, 9, 7), RNG.integers(-7, 7, 20), RNG.integers(0, 9, 20), reduction="add"),
    elements(RNG.random(7) < 0.5, RNG.permutation(7)[:4], RNG.random(4) < 0.5),
    *(scattered("ScatterND", floats(5, 6, 3), tuples(5, 6, count=(4,)), floats(4, 3), reduction=r)
      for r in ("none", "add", "mul", "min", "max")),
    scattered("ScatterND", floats(5, 3000), tuples(5, count=(2, 3)), floats(2, 3, 3000), reduction="add"),
    scattered("ScatterND", floats(4, 4), tuples(4, 4, count=(0,)), floats(0)),
    *(sampled(floats(2, 3, 5, 7), (4, 33), mode=mode, padding_mode=padding, align_corners=align)
      for mode in ("linear", "nearest") for padding in ("zeros", "border", "reflection") for align in (0, 1)),
    sampled(floats(1, 2, 1, 1), (3, 2), padding_mode="reflection"), sampled(floats(2, 3, 4, 5, 6), (2, 3, 7)),
    ("Det", [floats(4, 4)], {}), ("Det", [floats(3, 2, 5, 5)], {}), ("Det", [np.zeros((2, 3, 3), np.float32)], {}),
    *((op, [np.array(size)], {"constants": (0,), "attrs": {"periodic": periodic}})
      for op in ("HannWindow", "HammingWindow", "BlackmanWindow") for periodic in (0, 1) for size in (2, 16, 17)),
]  # fmt: skip
NAMES = [f"{place}-{case[0]}" for place, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_reference_agrees_with_onnx_runtime(case):
    op, arrays, how = case
    check_node(op, arrays, against=("ort!",), opset=20, tolerance=1e-5, **how)


def test_generated_code_agrees_with_the_reference():
    batch, wanted = Batch(opset=20), []
    for op, arrays, how in CASES:
        wanted.append(check_node(op, arrays, against=(), opset=20, **how))
        fixed = how.get("constants", ())
        sized = {name: value for name, value in how.items() if name != "free"}
        batch.add(node_model(op, arrays, opset=20, **sized), [a for i, a in enumerate(arrays) if i not in fixed])
    for case, made, right in zip(CASES, batch.run("v3"), wanted, strict=True):
        compare(made, right, 2e-5, case[0])


def test_an_index_out_of_range_fails_the_call():
    for op, indices in (("ScatterElements", np.array([[0, 9]])), ("ScatterND", np.array([[0, 9]]))):
        batch = Batch(opset=18)
        arrays = [floats(5, 6), indices, floats(1, 2) if op == "ScatterElements" else floats(1)]
        batch.add(node_model(op, arrays, opset=18), arrays)
        with pytest.raises(Exception, match="9"):
            batch.run("v3")


def test_what_is_left_to_onnx_runtime_says_why():
    assert "cubic" in refuses("GridSample", [floats(1, 1, 3, 3), floats(1, 2, 2, 2)], attrs={"mode": "cubic"})
    assert "no integers" in refuses("ScatterND", [floats(3), floats(1, 1), floats(1)])
    assert "scalar" in refuses("TopK", [np.float32(1), np.array([1])], constants=(1,))
