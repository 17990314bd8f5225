"""Einsum with constant weights, DFT and STFT become packed products, with the answers of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.passes import run_passes
from smelt.runtime import session_for

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng([3, *shape]).standard_normal(shape).astype(np.float32)


def one_node(op: str, inputs: list, shape: list, opset: int = 20, **attributes):
    """A model of one node whose first input is fed, the others constants or absent."""
    names = ["x", *("" if value is None else f"c{i}" for i, value in enumerate(inputs))]
    constants = [numpy_helper.from_array(np.asarray(v), f"c{i}") for i, v in enumerate(inputs) if v is not None]
    x, y = helper.make_tensor_value_info("x", FLOAT, shape), helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def rewritten(proto):
    model = ir.from_proto(proto)
    run_passes(model)
    return ir.to_proto(model), [node.op_type for node in model.graph]


def agree(proto, x: np.ndarray, *, absent: str) -> list[str]:
    changed, ops = rewritten(proto)
    assert absent not in ops, ops
    wanted = session_for(proto.SerializeToString()).run(None, {"x": x})[0]
    found = session_for(changed.SerializeToString()).run(None, {"x": x})[0]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(wanted).max(initial=0))))
    return ops


@pytest.mark.parametrize(
    ("equation", "x", "w"),
    [
        ("bsh,hnd->bsnd", (2, 3, 8), (8, 4, 5)),
        ("bsnd,ndh->bsh", (2, 3, 4, 5), (4, 5, 8)),
        ("bsh,nhd->bsnd", (2, 3, 8), (4, 8, 5)),
        ("bsh,kh->bsk", (2, 3, 8), (7, 8)),
        ("...h,hk->...k", (2, 3, 8), (8, 7)),
        ("bnd,nd->b", (3, 4, 5), (4, 5)),
        ("bdn,nd->b", (3, 5, 4), (4, 5)),
        ("bsh,hnd->bsnd", (0, 3, 8), (8, 4, 5)),
    ],
)
def test_einsum_with_a_constant_weight_is_a_product(equation: str, x: tuple, w: tuple):
    proto = one_node("Einsum", [floats(*w)], [f"d{i}" if i < 2 else s for i, s in enumerate(x)], equation=equation)
    assert "MatMul" in agree(proto, floats(*x), absent="Einsum")


@pytest.mark.parametrize("equation", ["bnd,nd->bn", "bnd,nd->nb", "nd,nd->", "bnd,nn->bd"])
def test_other_einsums_stay(equation: str):
    proto = one_node("Einsum", [floats(4, 4)], [3, 4, 4] if equation.startswith("b") else [4, 4], equation=equation)
    assert "Einsum" in rewritten(proto)[1]


@pytest.mark.parametrize(
    ("parts", "how"), [(1, {}), (2, {}), (1, {"onesided": 1}), (1, {"inverse": 1}), (2, {"inverse": 1})]
)
@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("axis", [1, 2])
def test_dft_is_a_product(parts: int, length: int | None, how: dict, axis: int):
    shape = ["n", 7, 9, parts]
    given = None if length is None else np.int64(length)
    for opset in (17, 20):
        extra = [given] if opset == 17 else [given, np.int64(axis)]
        attributes = {**how, "axis": axis} if opset == 17 else how
        inputs = extra if any(v is not None for v in extra) else []
        agree(one_node("DFT", inputs, shape, opset, **attributes), floats(3, 7, 9, parts), absent="DFT")


def test_dft_of_a_long_or_unknown_axis_stays():
    assert "DFT" in rewritten(one_node("DFT", [], ["n", "m", 1]))[1]
    assert "DFT" in rewritten(one_node("DFT", [], ["n", 1 << 14, 1]))[1]


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("length", [1, 8, 15])
def test_stft_is_a_strided_convolution(onesided: int, windowed: bool, length: int):
    window = np.hanning(length + 2)[1:-1].astype(np.float32) if windowed else None
    inputs = [np.int64(3), window, np.int64(length)]
    proto = one_node("STFT", inputs, ["n", "m", 1], 17, onesided=onesided)
    for size in (length, length + 1, 64):
        assert "Conv" in agree(proto, floats(2, size, 1), absent="STFT")
