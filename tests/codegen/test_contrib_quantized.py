"""Generated C of operators on bytes, against stock over all pairs of bytes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import smelt

MICROSOFT = "com.microsoft"
OPERATORS = (
    ("QLinearAdd", 2, {}), ("QLinearMul", 2, {}), ("QLinearSigmoid", 1, {}), ("QLinearLeakyRelu", 1, {"alpha": 0.2}),
    ("QLinearSoftmax", 1, {"opset": 13}), ("QLinearAveragePool", 1, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("QLinearGlobalAveragePool", 1, {"channels_last": 0}), ("QLinearConcat", 0, {"axis": 1}),
)  # fmt: skip


def _model(dtype: type, shape: list[object], zero: int) -> bytes:
    """Every operator on inputs a and b; scales with exact quotients."""
    kind, info = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), np.iinfo(dtype)
    constants = [
        numpy_helper.from_array(value, name)
        for name, value in (
            ("s", np.float32(0.5)), ("t", np.float32(0.25)), ("u", np.float32(1 / 64)), ("z", dtype(info.min + zero)),
            ("least", dtype(info.min)),
        )
    ]  # fmt: skip
    inputs = {1: ["a", "t", "z"], 2: ["a", "s", "z", "b", "t", "z"]}
    nodes = [
        helper.make_node(op, [*inputs[count], "s", "z"], [op], domain=MICROSOFT, **attributes)
        for op, count, attributes in OPERATORS
        if count and op not in ("QLinearSigmoid", "QLinearSoftmax")
    ]
    nodes += [
        helper.make_node(op, [*inputs[1], "u", "least"], [op], domain=MICROSOFT, **attributes)
        for op, _, attributes in OPERATORS
        if op in ("QLinearSigmoid", "QLinearSoftmax")
    ]
    three = ["s", "z", "a", "t", "z", "b", "s", "z"]
    nodes.append(helper.make_node("QLinearConcat", three, ["QLinearConcat"], domain=MICROSOFT, axis=1))
    graph = helper.make_graph(
        nodes, "bytes", [helper.make_tensor_value_info(name, kind, shape) for name in "ab"],
        [helper.make_tensor_value_info(op, kind, None) for op, _, _ in OPERATORS], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_generated_code_gives_stocks_bytes(dtype: type) -> None:
    info = np.iinfo(dtype)
    q = np.arange(info.min, info.max + 1).astype(dtype)
    feeds = {"a": np.repeat(q, 256).reshape(4, 16, 32, 32), "b": np.tile(q, 256).reshape(4, 16, 32, 32)}
    data = _model(dtype, ["n", 16, 32, 32], 101)
    stock = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    with smelt.compile(data, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for (op, _, _), got, wanted in zip(OPERATORS, compiled.run(feeds), stock, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=op)
