"""Residuals: a convolution writes its result over what it adds, where nobody reads that any more."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import floats

import smelt
from smelt.codegen.c.region import CRegionCode
from smelt.runtime import SessionSettings, session_for

CHANNELS = 24


def residual_blocks(taps: int, depthwise: bool, read_again: bool) -> onnx.ModelProto:
    """Three blocks x + conv(relu(conv(x))); with `read_again`, what the second adds is needed at the end too."""
    nodes, weights, value = [], [], "x"
    shape = (CHANNELS, 1 if depthwise else CHANNELS, taps, taps)
    attributes = {"pads": [taps // 2] * 4, "group": CHANNELS if depthwise else 1}
    for place in range(3):
        for part in "ab":
            name = f"w{place}{part}"
            scale = np.float32(1 / np.sqrt(shape[1] * taps * taps))
            weights.append(numpy_helper.from_array(floats(*shape, seed=len(weights)) * scale, name))
        nodes += [
            helper.make_node("Conv", [value, f"w{place}a"], [f"a{place}"], **attributes),
            helper.make_node("Relu", [f"a{place}"], [f"r{place}"]),
            helper.make_node("Conv", [f"r{place}", f"w{place}b"], [f"b{place}"], **attributes),
            helper.make_node("Add", [f"b{place}", value], [f"s{place}"]),
            helper.make_node("Relu", [f"s{place}"], [f"y{place}"]),
        ]
        value = f"y{place}"
    nodes += [helper.make_node("Mul", [value, "y0" if read_again else value], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", CHANNELS, "H", "W"]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def shared(code: CRegionCode) -> list[tuple[int, int]]:
    """Pairs of temporaries of one kernel that lie in the same place."""
    places = {uid: place for place, held in enumerate(code.slots) for uid in held}
    pairs = list[tuple[int, int]]()
    for kernel in code.kernels:
        uids = [buffer.uid for buffer in kernel.buffers if buffer.uid in places]
        pairs += [(a, b) for i, a in enumerate(uids) for b in uids[i + 1 :] if places[a] == places[b]]
    return pairs


@pytest.mark.parametrize("read_again", [False, True])
@pytest.mark.parametrize(("taps", "depthwise"), [(1, False), (3, False), (3, True)])
def test_results_over_residuals_are_right(taps: int, depthwise: bool, read_again: bool) -> None:
    model = residual_blocks(taps, depthwise, read_again)
    stock = session_for(model.SerializeToString(), settings=SessionSettings(threads=1, log_severity=4))
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=2) as compiled:
        for size in [(1, 7, 9), (3, 12, 14), (2, 33, 31), (0, 5, 5)]:
            x = floats(size[0], CHANNELS, *size[1:])
            np.testing.assert_allclose(compiled.run({"x": x})[0], stock.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
        generated = compiled.result.generated
        assert generated is not None
        pairs = [pair for code in generated.codes for pair in shared(code)]
    # The first of three residuals is the model's own input, which is not ours to write to.
    assert len(pairs) == (1 if read_again else 2)


def gated(read_again: bool) -> onnx.ModelProto:
    """silu(x G) * (x U) by products that no element-wise op joins; with `read_again`, x U is needed again."""
    weights, sizes = [], {"K": 32, "N": 48, "bits": 4, "block_size": 32}
    nodes = [helper.make_node("Neg", ["x"], ["z"])]
    for place, name in enumerate("gu"):
        codes = np.random.default_rng(place).integers(0, 256, (48, 1, 16), np.uint8)
        weights += [
            numpy_helper.from_array(codes, f"w{name}"),
            numpy_helper.from_array(floats(48, seed=place), f"s{name}"),
        ]
        given = ["z", f"w{name}", f"s{name}"]
        nodes.append(helper.make_node("MatMulNBits", given, [name], domain="com.microsoft", **sizes))
    nodes += [
        helper.make_node("Sigmoid", ["g"], ["h"]),
        helper.make_node("Mul", ["g", "h"], ["a"]),
        helper.make_node("Mul", ["a", "u"], ["m"]),
        helper.make_node("TopK", ["m", "k"], ["t", "i"]),
        helper.make_node("TopK", ["u" if read_again else "m", "one"], ["v", "j"]),
        helper.make_node("Add", ["t", "v"], ["y"]),
    ]
    weights += [numpy_helper.from_array(np.array([n]), name) for name, n in (("k", 5), ("one", 1))]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["m", s]) for n, s in (("x", 32), ("y", 5)))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("read_again", [False, True])
def test_element_wise_results_lie_over_an_operand_that_ends(read_again: bool) -> None:
    model = gated(read_again)
    stock = session_for(model.SerializeToString(), settings=SessionSettings(threads=1, log_severity=4))
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=2) as compiled:
        for rows in (1, 7, 300, 0):
            x = floats(rows, 32)
            np.testing.assert_allclose(compiled.run({"x": x})[0], stock.run(None, {"x": x})[0], rtol=2e-5, atol=2e-5)
        generated = compiled.result.generated
        assert generated is not None
        pairs = [pair for code in generated.codes for pair in shared(code)]
    assert len(pairs) == 1  # the other operand may still be needed: the result lies over one of them
