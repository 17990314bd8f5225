"""Transposed convolutions become a convolution for each phase of their stride, with the results of stock."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

from smelt.passes import run_passes
from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT = 1


def model(kernel: list[int], stride: int, *, opset: int = 17, channels: int = 8, bias: bool = True, relu: bool = False,
          **attributes: Any) -> ModelProto:  # fmt: skip
    rng, axes = np.random.default_rng(0), len(kernel)
    constants = {"w": rng.standard_normal((channels, 9, *kernel)), "b": rng.standard_normal(9)}
    stored = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in constants.items() if n == "w" or bias]
    names = ["x", "w", "b"] if bias else ["x", "w"]
    nodes = [helper.make_node("ConvTranspose", names, ["c"], strides=[stride] * axes, **attributes),
             helper.make_node("Relu" if relu else "Neg", ["c"], ["y"])]  # fmt: skip
    sizes = [helper.make_tensor_value_info("x", FLOAT, ["n", channels, *"hw"[:axes]])]
    results = [helper.make_tensor_value_info("y", FLOAT, ["n", 9, *"pq"[:axes]])]
    graph = helper.make_graph(nodes, "g", sizes, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def split(made: ModelProto) -> ModelProto:
    found = ir.from_proto(made)
    run_passes(found, only=["split-transposed-convolutions"])
    return ir.to_proto(found)


def run(made: ModelProto, x: Array) -> Array:
    session = session_for(made.SerializeToString(), None, SessionSettings(threads=1, optimization="disable"))
    return np.asarray(session.run(None, {"x": x})[0])


def ops(made: ModelProto) -> set[str]:
    return {node.op_type for node in made.graph.node}


def agree(made: ModelProto, shape: tuple[int, ...]) -> None:
    changed = split(made)
    assert "ConvTranspose" not in ops(changed)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    mine, stock = run(changed, x), run(made, x)
    assert mine.shape == stock.shape
    np.testing.assert_allclose(mine, stock, rtol=1e-5, atol=2e-5)


@given(data=st.data())
def test_any_overlapping_windows(data: st.DataObject) -> None:
    axes, stride = data.draw(st.sampled_from([1, 2])), data.draw(st.integers(2, 4))
    kernel = [data.draw(st.integers(stride + 1, 3 * stride)) for _ in range(axes)]
    pads = [data.draw(st.integers(0, k // 2)) for k in kernel * 2]
    more = [data.draw(st.integers(0, stride - 1)) for _ in range(axes)]
    made = model(kernel, stride, opset=data.draw(st.sampled_from([9, 11, 13, 17])), bias=data.draw(st.booleans()),
                 relu=data.draw(st.booleans()), pads=pads, output_padding=more)  # fmt: skip
    sizes = [data.draw(st.integers(1, 6)) for _ in range(axes)]
    least = [(n - 1) * stride + k + m - pads[a] - pads[axes + a]
             for a, (n, k, m) in enumerate(zip(sizes, kernel, more, strict=True))]  # fmt: skip
    assume(min(least) > 0)
    agree(made, (data.draw(st.integers(1, 3)), 8, *sizes))


@pytest.mark.parametrize("kernel", [[4], [4, 4]])
def test_an_empty_batch_is_one_as_in_stock(kernel: list[int]) -> None:
    agree(model(kernel, 2, pads=[1] * (2 * len(kernel))), (0, 8, *[3] * len(kernel)))


def test_a_wrong_declared_shape_is_no_reason_to_keep_it() -> None:
    made = model([4, 4], 2, pads=[1, 1, 1, 1])
    made.graph.value_info.append(helper.make_tensor_value_info("c", FLOAT, [1, 9, 5, 5]))
    agree(made, (1, 8, 3, 4))


KEPT = {
    "groups": model([4, 4], 2, group=2),
    "dilated": model([4, 4], 2, dilations=[2, 2]),
    "by padding": model([4, 4], 2, auto_pad="SAME_UPPER"),
    "by size": model([4, 4], 2, output_shape=[9, 9]),
    "apart": model([2, 2], 2),
    "few channels": model([4, 4], 2, channels=3),
    "many phases": model([6, 6], 5),
}


@pytest.mark.parametrize("made", KEPT.values(), ids=KEPT)
def test_what_gains_nothing_is_kept(made: ModelProto) -> None:
    assert split(made) == ir.to_proto(ir.from_proto(made))
