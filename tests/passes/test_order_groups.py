"""MatMulNBits with g_idx against stock: put in order where groups are whole blocks, else left alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.ir.kernel.bit_fields import pack_bits
from smelt.ops.block_quantized import node_reference


def model_of(index: np.ndarray, bits: int, block: int, zeros: str, columns: int = 24) -> onnx.ModelProto:
    depth, rng = len(index), np.random.default_rng([bits, block])
    blocks = -(-depth // block)
    held = {
        "b": pack_bits(rng.integers(0, 1 << bits, (columns, blocks, block)).astype(np.uint8), bits),
        "s": rng.uniform(0.1, 1, (columns, blocks)).astype(np.float32) / (1 << bits),
        "g": index.astype(np.int32),
    }
    if zeros:
        held["z"] = pack_bits(rng.integers(0, 1 << bits, (columns, blocks)).astype(np.uint8), bits)
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    names = ["x", "b", "s", "z" if zeros else "", "g"]
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", columns])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in held.items()])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_definition(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    attrs = {attribute.name: attribute.i for attribute in model.graph.node[0].attribute}
    return node_reference(x, held["b"], held["s"], held.get("z"), held["g"], **attrs)


def check(model: onnx.ModelProto, depth: int, in_kernels: bool, stock: bool = True) -> None:
    with smelt.compile(model, threads=1, force=True, timing=False) as compiled:
        assert bool(compiled.result.plan.fallbacks) != in_kernels
        for rows in (1, 20):
            x = np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)
            (made,) = compiled.run({"x": x})
            np.testing.assert_allclose(made, by_definition(model, x), rtol=2e-5, atol=2e-5)
            if stock:
                (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
                np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("depth", [128, 100])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["", "packed"])
def test_groups_in_any_order_run_in_kernels(depth: int, bits: int, zeros: str) -> None:
    """Stock has no 8 bits with g_idx, and takes 8 for every packed zero point then (onnxruntime 1.31)."""
    order = np.random.default_rng(depth).permutation(depth)
    check(
        model_of((np.arange(depth) // 32)[order], bits, 32, zeros),
        depth,
        in_kernels=True,
        stock=bits == 4 and not zeros,
    )


def test_an_index_that_is_in_order_costs_nothing() -> None:
    model = model_of(np.arange(128) // 32, 4, 32, "")
    with smelt.compile(model, threads=1, force=True, timing=False) as compiled:
        assert [node.op_type for node in compiled.result.plan.regions[0].nodes] == ["MatMulNBits"]
    check(model, 128, in_kernels=True)


def test_groups_of_another_size_stay_with_stock() -> None:
    index = np.arange(128) // 32
    index[0] = 3
    check(model_of(index, 4, 32, ""), 128, in_kernels=False)


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 6), st.sampled_from([16, 32, 64]), st.randoms(use_true_random=False))
def test_any_permutation_is_what_stock_computes(blocks: int, block: int, random) -> None:
    index = list(np.arange(blocks * block) // block)
    random.shuffle(index)
    check(model_of(np.array(index), 4, block, ""), blocks * block, in_kernels=True)
