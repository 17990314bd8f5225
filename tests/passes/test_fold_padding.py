"""A Pad becomes padding of the convolution or pool behind it, with the results of stock."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

from smelt.passes import run_passes
from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT = 1
NOTHING = {"Conv": 0.0, "MaxPool": -np.inf}


def model(
    around: list[int], *, user: str = "Conv", value: float | None = None, opset: int = 17, mode: str = "constant",
    axes: list[int] | None = None, kernel: int = 3, also: str = "", weight: float = 1.0, **attributes: Any,
) -> ModelProto:  # fmt: skip
    """Pad, the window that reads it, and perhaps another reader of the padded image."""
    filler = NOTHING.get(user, 0.0) if value is None else value
    weights = np.random.default_rng(0).standard_normal((4, 3, kernel, kernel)).astype(np.float32)
    weights[0, 0, 0, 0] *= weight
    constants = {"w": weights, "pads": np.array(around, np.int64), "filler": np.float32(filler)}
    names = ["x", "pads", "filler"]
    if axes is not None:
        constants["axes"], names = np.array(axes, np.int64), [*names, "axes"]
    pad = helper.make_node("Pad", names, ["p"], mode=mode)
    if opset < 11:
        pad = helper.make_node("Pad", ["x"], ["p"], mode=mode, pads=around, value=filler)
        constants = {"w": weights}
    inputs = ["p", "w"] if user == "Conv" else ["p"]
    nodes = [pad, helper.make_node(user, inputs, ["y"], kernel_shape=[kernel, kernel], **attributes)]
    results = [helper.make_tensor_value_info("y", FLOAT, None)]
    if also:
        nodes.append(helper.make_node(also, ["p"], ["z"]))
        results.append(helper.make_tensor_value_info("z", FLOAT, None))
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    image = [helper.make_tensor_value_info("x", FLOAT, ["n", 3, "h", "w_"])]
    graph = helper.make_graph(nodes, "g", image, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def folded(made: ModelProto) -> ModelProto:
    found = ir.from_proto(made)
    run_passes(found, only=["fold-padding"])
    return ir.to_proto(found)


def run(made: ModelProto, x: Array) -> list[Array]:
    session = session_for(made.SerializeToString(), None, SessionSettings(threads=1, optimization="disable"))
    return [np.asarray(one) for one in session.run(None, {"x": x})]


def ops(made: ModelProto) -> list[str]:
    return [node.op_type for node in made.graph.node]


def agree(made: ModelProto, changed: ModelProto, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for mine, stock in zip(run(changed, x), run(made, x), strict=True):
        assert mine.shape == stock.shape
        np.testing.assert_allclose(mine, stock, rtol=1e-5, atol=1e-5)


@settings(deadline=None)
@given(data=st.data())
def test_any_padding_of_images(data: st.DataObject) -> None:
    user, kernel = data.draw(st.sampled_from(["Conv", "MaxPool"])), data.draw(st.integers(1, 5))
    most = kernel - 1 if user == "MaxPool" else 4
    outer, own = ([data.draw(st.integers(0, most)) for _ in range(4)] for _ in range(2))
    total = [a + b for a, b in zip(outer, own, strict=True)]
    assume(user == "Conv" or max(total) < kernel)
    opset = data.draw(st.sampled_from([9, 11, 13, 18]))
    strides, pads = [data.draw(st.integers(1, 3)) for _ in range(2)], [0, 0, *outer[:2], 0, 0, *outer[2:]]
    axes = [-2, -1] if opset >= 18 and data.draw(st.booleans()) else None
    made = model(pads if axes is None else outer, user=user, opset=opset, axes=axes, kernel=kernel, strides=strides,
                 **({"pads": own} if any(own) or data.draw(st.booleans()) else {"auto_pad": "VALID"}))  # fmt: skip
    sizes = [data.draw(st.integers(1, 9)) for _ in range(2)]
    assume(all(size + total[a] + total[2 + a] >= kernel for a, size in enumerate(sizes)))
    changed = folded(made)
    assert ops(changed) == [user]
    agree(made, changed, (data.draw(st.integers(1, 2)), 3, *sizes))


def test_who_else_reads_the_padded_image_still_does() -> None:
    made = model([0, 0, 1, 0, 0, 0, 1, 2], also="Neg")
    changed = folded(made)
    assert ops(changed) == ["Pad", "Conv", "Neg"]
    assert changed.graph.node[1].input[0] == "x"
    agree(made, changed, (1, 3, 4, 5))


SIDES = [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "made",
    [
        model(SIDES, value=1.0),
        model(SIDES, mode="edge"),
        model([0, 0, -1, 1, 0, 0, 1, 1]),
        model([1, *SIDES[1:]]),
        model(SIDES, auto_pad="SAME_UPPER"),
        model(SIDES, weight=np.inf),
        model(SIDES, user="MaxPool", value=0.0),
        model(SIDES, user="MaxPool", kernel=1),
        model(SIDES, user="MaxPool", kernel=2, pads=[1, 1, 1, 1]),
        model(SIDES, user="MaxPool", kernel=2, strides=[2, 2], ceil_mode=1),
        model(SIDES, user="AveragePool", kernel=2),
    ],
    ids=["value", "mode", "negative", "batch", "auto_pad", "inf", "max_of_0", "alone", "too_much", "ceil", "mean"],
)
def test_what_would_change_is_kept(made: ModelProto) -> None:
    assert ops(folded(made))[0] == "Pad"
