"""Ops whose result sizes depend on data: by numpy, in generated code, and with what follows in the same region."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from cases import check_node, compare, node_model, refuses
from kernels import Batch
from onnx import TensorProto, helper

import smelt

RNG = np.random.default_rng(12)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def some(*shape: int) -> np.ndarray:
    return RNG.random(shape) < 0.4


def suppressed(batches: int, classes: int, count: int, *limits: float, **attributes):
    corners = RNG.random((batches, count, 4)).astype(np.float32)
    scores = RNG.integers(0, 30, (batches, classes, count)).astype(np.float32) / 30
    numbers = [np.array([value], np.float32 if place else np.int64) for place, value in enumerate(limits)]
    return ("NonMaxSuppression", [corners, scores, *numbers], {"attrs": attributes, "free": (0, 1)})


CASES = [
    ("NonZero", [some(4, 5, 6)], {}), ("NonZero", [RNG.integers(0, 3, 40)], {}),
    ("NonZero", [np.zeros((3, 4), np.float32)], {}),
    ("NonZero", [np.zeros((0, 4), np.float32)], {}), ("NonZero", [np.array([[np.nan, -0.0, 1e-42]], np.float32)], {}),
    ("Compress", [floats(5, 6, 3), some(6)], {"attrs": {"axis": 1}}), ("Compress", [floats(5, 6), some(30)], {}),
    ("Compress", [floats(5, 6), some(3)], {"attrs": {"axis": -2}}), ("Compress", [some(7), np.zeros(7, bool)], {}),
    *(("Unique", [RNG.integers(0, 9, shape)], {"outputs": 4, "attrs": {"sorted": order}, "free": True})
      for shape in ((30,), (4, 5), (1,)) for order in (0, 1)),
    ("Unique", [RNG.integers(0, 2, (6, 2)).astype(np.float32)], {"outputs": 4, "attrs": {"axis": 0}}),
    ("Unique", [RNG.integers(0, 2, (3, 9)).astype(np.float32)], {"outputs": 4, "attrs": {"axis": 1, "sorted": 0}}),
    suppressed(2, 3, 50, 5, 0.3, 0.4), suppressed(1, 1, 40, 100, 0.5), suppressed(1, 2, 30, 4),
    suppressed(2, 2, 30, 7, 0.2, 0.1, center_point_box=1), suppressed(1, 1, 9, 0, 0.5),
    suppressed(1, 90, 60, 8, 0.4, 0.5), suppressed(1, 2, 0, 3, 0.5, 0.5),
]  # fmt: skip
NAMES = [f"{place}-{case[0]}" for place, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_reference_agrees_with_onnx_runtime(case):
    op, arrays, how = case
    check_node(op, arrays, against=("ort!",), opset=20, **how)


def test_generated_code_agrees_with_the_reference():
    batch, wanted = Batch(opset=20), []
    for op, arrays, how in CASES:
        wanted.append(check_node(op, arrays, against=(), opset=20, **how))
        sized = {name: value for name, value in how.items() if name != "free"}
        batch.add(node_model(op, arrays, opset=20, **sized), arrays)
    for case, made, right in zip(CASES, batch.run("v3"), wanted, strict=True):
        compare(made, right, 0, case[0])


def chain() -> onnx.ModelProto:
    """Boxes, those with a high score, their sizes relative to the largest; and how many there are."""
    nodes = [
        helper.make_node("Greater", ["scores", "limit"], ["high"]),
        helper.make_node("NonZero", ["high"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("GatherND", ["boxes", "rows"], ["chosen"]),
        helper.make_node("Exp", ["chosen"], ["powers"]),
        helper.make_node("MatMul", ["powers", "mix"], ["mixed"]),
        helper.make_node("Softmax", ["mixed"], ["weights"]),
        helper.make_node("Shape", ["weights"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["weights", "zeros"], ["out"]),
        helper.make_node("Compress", ["out", "even"], ["kept"], axis=0),
        helper.make_node("ReduceSum", ["kept"], ["sum"], keepdims=0),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "chain",
        [info("scores", TensorProto.FLOAT, ["n"]), info("boxes", TensorProto.FLOAT, ["n", 4]),
         info("even", TensorProto.BOOL, ["m"])],
        [info("out", TensorProto.FLOAT, None), info("kept", TensorProto.FLOAT, None),
         info("sum", TensorProto.FLOAT, None), info("shape", TensorProto.INT64, None)],
        [onnx.numpy_helper.from_array(np.array(0.5, np.float32), "limit"),
         onnx.numpy_helper.from_array(floats(4, 20), "mix")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_later_steps_of_a_region_use_sizes_that_were_found():
    model = chain()
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, levels="v3", threads=1) as compiled:
        assert not compiled.result.plan.fallbacks and len(compiled.result.plan.regions) == 1
        for count in (40, 1, 0, 7):
            feeds = {"scores": RNG.random(count).astype(np.float32), "boxes": floats(count, 4), "even": some(count)}
            if count == 7:
                feeds["scores"][:] = 0  # nothing is found
            wanted = stock.run(None, feeds)
            compare(compiled.run(feeds), wanted, 1e-5, "chain")


def test_what_is_left_to_onnx_runtime_says_why():
    assert "scalar" in refuses("NonZero", [np.float32(1)])
    assert "truth" in refuses("Compress", [floats(3), floats(3)])
