"""Weights behind DequantizeLinear become MatMulNBits with the same numbers, and only where that is so."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from smelt.ops.block_quantized import node_reference
from smelt.passes import run_passes

K, N = 96, 20
TYPES = {
    "i4": (TensorProto.INT4, -8, 8),
    "u4": (TensorProto.UINT4, 0, 16),
    "i8": (TensorProto.INT8, -128, 128),
    "u8": (TensorProto.UINT8, 0, 256),
}


def model_of(kind: str, block: int, *, transposed: bool, zeros: bool, gemm: bool = False, quantized: bool = False):
    """MatMul, perhaps behind a Transpose, or Gemm; without a block size scales are those of columns."""
    rng = np.random.default_rng(7)
    dtype, low, high = TYPES[kind]
    shape = (N, K) if transposed else (K, N)
    scales_shape = ((N, K // block) if transposed else (K // block, N)) if block else (N,)
    inits = [tensor("w", dtype, rng.integers(low, high, shape))]
    inits.append(numpy_helper.from_array(rng.uniform(0.01, 0.02, scales_shape).astype(np.float32), "s"))
    inits += [tensor("z", dtype, rng.integers(low, high, scales_shape))] if zeros else []
    axis = int(transposed) if block else 1 - int(transposed)
    attributes = {"axis": axis, "block_size": block} if block else {"axis": axis}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", *(["z"] if zeros else [])], ["d"], **attributes)]
    left = "x"
    if quantized:
        inits += [numpy_helper.from_array(np.float32(0.1), "xs"), numpy_helper.from_array(np.uint8(128), "xz")]
        nodes.append(helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]))
        nodes.append(helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["left"]))
        left = "left"
    if gemm:
        nodes.append(helper.make_node("Gemm", [left, "d", "c"], ["y"], transB=int(transposed)))
        inits.append(numpy_helper.from_array(rng.standard_normal(N).astype(np.float32), "c"))
    else:
        nodes += [helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])] if transposed else []
        nodes.append(helper.make_node("MatMul", [left, "t" if transposed else "d"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])
    graph = helper.make_graph(nodes, "g", [x], [y], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def tensor(name: str, dtype: int, values: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, dtype, values.shape, values.flatten().tolist())


def passed(model: onnx.ModelProto) -> ir.Model:
    made = ir.serde.deserialize_model(model)
    run_passes(made)
    return made


def evaluated(model: ir.Model, x: np.ndarray) -> np.ndarray:
    (node,) = model.graph
    assert node.op_type == "MatMulNBits"
    arrays = [x] + [None if v is None else v.const_value.numpy() for v in node.inputs[1:]]
    return node_reference(*arrays, **{name: a.value for name, a in node.attributes.items()})


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("block", "transposed", "gemm"), [(32, False, False), (16, True, False), (48, True, True), (0, False, True)]
)
def test_the_product_is_that_of_the_dequantized_weights(
    kind: str, zeros: bool, block: int, transposed: bool, gemm: bool
) -> None:
    given = model_of(kind, block, transposed=transposed, zeros=zeros, gemm=gemm)
    x = np.random.default_rng(0).standard_normal((3, K)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(given).run(None, {"x": x})
    np.testing.assert_allclose(evaluated(passed(given), x), wanted, rtol=1e-4, atol=1e-5)


def test_outputs_keep_their_names() -> None:
    made = passed(model_of("i4", 32, transposed=False, zeros=False))
    assert [v.name for v in made.graph.outputs] == ["y"]
    assert made.opset_imports["com.microsoft"] == 1


def test_integer_products_stay_what_they_are() -> None:
    made = passed(model_of("i8", 0, transposed=False, zeros=False, quantized=True))
    assert "MatMulNBits" not in [node.op_type for node in made.graph]


@pytest.mark.parametrize("block", [8, 24])
def test_blocks_that_no_kernel_takes_stay(block: int) -> None:
    made = passed(model_of("i4", block, transposed=False, zeros=False))
    assert "DequantizeLinear" in [node.op_type for node in made.graph]


def test_blocks_across_columns_stay() -> None:
    given = model_of("i4", 32, transposed=False, zeros=False)
    given.graph.node[0].attribute[0].i = 1
    given.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones((K, 1), np.float32), "s"))
    made = passed(given)
    assert "DequantizeLinear" in [node.op_type for node in made.graph]
