"""Every form of a product runs in kernels: vectors, batches, transpositions, scales, biases, constant or not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.runtime import SessionSettings, session_for


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def model(cases, constant):
    """One node per case; its second operand is a constant in half of the cases."""
    nodes, inputs, outputs, constants, feeds = [], [], [], [], {}
    for place, (op_type, domain, arrays, attributes) in enumerate(cases):
        names = [f"x{place}_{i}" for i in range(len(arrays))]
        for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
            if constant and i == 1:
                constants.append(numpy_helper.from_array(array, name))
            else:
                sizes = [f"d{place}_{i}_{a}" for a in range(array.ndim)]
                inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes))
                feeds[name] = array
        nodes.append(helper.make_node(op_type, names, [f"y{place}"], f"n{place}", domain=domain, **attributes))
        outputs.append(helper.make_tensor_value_info(f"y{place}", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


def gemm(trans_a, trans_b, bias, **more):
    a = floats(5, 33) if trans_a else floats(33, 5)
    b = floats(19, 5) if trans_b else floats(5, 19)
    return ("Gemm", "", [a, b, *([bias] if bias is not None else [])], {"transA": trans_a, "transB": trans_b, **more})


def fused(a, b, **attributes):
    return ("FusedMatMul", "com.microsoft", [a, b], attributes)


CASES = [
    gemm(0, 0, None), gemm(1, 0, floats(19)), gemm(0, 1, floats(33, 1)), gemm(1, 1, floats(1, 19), alpha=0.5, beta=2.0),
    gemm(0, 0, floats(33, 19), alpha=-1.5), gemm(0, 1, floats(1), beta=0.25),
    ("MatMul", "", [floats(7), floats(7, 20)], {}), ("MatMul", "", [floats(4, 7), floats(7)], {}),
    ("MatMul", "", [floats(7), floats(7)], {}), ("MatMul", "", [floats(3, 2, 7), floats(7)], {}),
    ("MatMul", "", [floats(3, 1, 6, 7), floats(2, 7, 9)], {}), ("MatMul", "", [floats(6, 7), floats(3, 7, 9)], {}),
    fused(floats(3, 6, 7), floats(3, 7, 9), alpha=0.3), fused(floats(3, 7, 6), floats(3, 7, 9), transA=1),
    fused(floats(6, 7), floats(9, 7), transB=1), fused(floats(2, 7, 6), floats(2, 9, 7), transA=1, transB=1, alpha=2.0),
    fused(floats(5, 3, 2, 7), floats(3, 2, 7, 4), transBatchA=1),
    fused(floats(3, 2, 5, 7), floats(7, 3, 2, 4), transBatchB=1),
]  # fmt: skip


@pytest.mark.parametrize("constant", [False, True], ids=["run-time operand", "constant operand"])
def test_all_forms_of_a_product_run_in_kernels(constant: bool):
    proto, feeds = model(CASES, constant)
    wanted = session_for(proto.SerializeToString(), settings=SessionSettings(threads=1)).run(None, feeds)
    with smelt.compile(proto, force=True, verify=False, levels="v3") as compiled:
        assert [f"{i.node.name}: {i.reason}" for i in compiled.result.plan.fallbacks] == []
        found = compiled.run(feeds)
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one.shape == other.shape, CASES[place]
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(CASES[place][0]))
