"""MatMulNBits: bits, blocks, zero points and bias against stock ONNX Runtime; what is refused, and why."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.ir.kernel.bit_fields import pack_bits
from smelt.ops.block_quantized import codebook_reference, node_reference

OP: dict[str, Any] = {"domain": "com.microsoft", "opset": 21, "constants": (1, 2, 3, 5), "out_types": [np.float32]}
K, N = 100, 24


def operands(
    bits: int, block: int, zeros: str = "", *, bias: bool = False, rows: tuple[int, ...] = (2, 3)
) -> list[Any]:
    rng = np.random.default_rng([bits, block])
    blocks = -(-K // block)
    q = rng.integers(0, 1 << bits, (N, blocks, block)).astype(np.uint8)
    scales = (rng.uniform(0.1, 1, (N, blocks)) / (1 << bits)).astype(np.float32)
    given = {
        "": None,
        "packed": pack_bits(rng.integers(0, 1 << bits, (N, blocks)).astype(np.uint8), bits),
        "float": rng.uniform(0, 1 << bits, (N, blocks)).astype(np.float32),
    }[zeros]
    a = rng.standard_normal((*rows, K)).astype(np.float32)
    return [a, pack_bits(q, bits), scales, given, None, rng.standard_normal(N).astype(np.float32) if bias else None]


def attributes(bits: int, block: int, **more: int) -> dict[str, int]:
    return {"K": K, "N": N, "bits": bits, "block_size": block, **more}


def trimmed(given: list[Any]) -> list[Any]:
    while given[-1] is None:
        given = given[:-1]
    return given


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "float"])
def test_products_are_those_of_the_dequantized_weights(bits: int, zeros: str) -> None:
    for block in (16, 32, 256):
        given = trimmed(operands(bits, block, zeros, bias=block == 32))
        attrs = attributes(bits, block)
        wanted = node_reference(*given, **attrs).astype(np.float32)
        against = ("ort",) if block == 32 else ()
        cases.check_node("MatMulNBits", given, expected=[wanted], against=against, attrs=attrs, free=(0,), **OP)


def test_eight_bit_activations_are_quantized_in_blocks() -> None:
    given = trimmed(operands(4, 32))
    attrs = attributes(4, 32, accuracy_level=4)
    made = cases.check_node("MatMulNBits", given, against=("ort!",), attrs=attrs, free=(0,), tolerance=1e-4, **OP)
    exact = node_reference(*given, **attributes(4, 32))
    error = np.abs(made[0] - exact).max() / np.sqrt(np.mean(np.square(exact)))
    assert 1e-4 < error < 2e-2


def test_groups_of_an_index_have_their_own_scales() -> None:
    """The reference alone: these groups are not whole blocks, and stay with stock ONNX Runtime."""
    given = operands(4, 32, "float")
    order = np.random.default_rng(0).permutation(K)
    given[4] = (np.arange(K) // 32)[order].astype(np.int32)
    model = cases.node_model("MatMulNBits", given[:5], attrs=attributes(4, 32), **OP)
    (stock,) = cases.by_ort(model, [given[0], given[4]]) or [None]
    np.testing.assert_allclose(node_reference(*given[:5], **attributes(4, 32)), stock, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bits": 3}, "weights of 3 bits"),
        ({"block_size": 24}, "blocks of 24"),
        ({"block_size": 8}, "blocks of 8"),
        ({"block_size": 512}, "blocks of 512"),
        ({"N": N + 1}, "input 1 has"),
        ({"K": K + 64}, "the inner sizes"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(change: dict[str, int], reason: str) -> None:
    given, attrs = trimmed(operands(4, 32)), {**attributes(4, 32), **change}
    assert reason in cases.refuses("MatMulNBits", given, attrs=attrs, **OP)


def test_weights_that_come_at_run_time_are_refused() -> None:
    given = trimmed(operands(4, 32))
    assert "no constant" in cases.refuses("MatMulNBits", given, attrs=attributes(4, 32), **{**OP, "constants": (2,)})


def test_zero_points_of_another_length_or_type_are_refused() -> None:
    given = operands(4, 32, "packed")[:4]
    short = [*given[:3], given[3].reshape(-1)[:-1]]
    assert "input 3 has" in cases.refuses("MatMulNBits", short, attrs=attributes(4, 32), **OP)
    signed = [*given[:3], given[3].astype(np.int8)]
    assert "input 3 of type i8" in cases.refuses("MatMulNBits", signed, attrs=attributes(4, 32), **OP)


def model_of(given: list[Any], attrs: dict[str, int]) -> onnx.ModelProto:
    names = ["x", "b", "s", "z", "g", "c"]
    inits = [numpy_helper.from_array(a, n) for a, n in zip(given[1:], names[1:], strict=False) if a is not None]
    used = [n if a is not None else "" for a, n in zip(given, names, strict=False)]
    nodes = [helper.make_node("MatMulNBits", used, ["h"], domain="com.microsoft", **attrs)]
    nodes.append(helper.make_node("Sigmoid", ["h"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])
    graph = helper.make_graph(nodes, "g", [x], [y], inits)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_a_model_runs_in_kernels_on_every_level(level: str) -> None:
    model = model_of(trimmed(operands(4, 32, "packed", rows=(3,))), attributes(4, 32))
    with smelt.compile(model, levels=level, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for rows in (1, 3, 20):
            x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
            (y,) = compiled.run({"x": x})
            (stock,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
            np.testing.assert_allclose(y, stock, rtol=1e-5, atol=1e-5)


def test_a_scale_that_is_no_number_gives_none_in_its_column() -> None:
    given = trimmed(operands(4, 32, rows=(3,)))
    given[2][5, 1] = np.nan
    model = model_of(given, attributes(4, 32))
    with smelt.compile(model, levels="v3", threads=1) as compiled:
        (y,) = compiled.run({"x": given[0]})
    assert np.isnan(y[:, 5]).all() and np.isfinite(np.delete(y, 5, 1)).all()


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_scales_that_float16_holds_take_half_the_bytes_and_nothing_else(level: str) -> None:
    """Two products of one form, of which the second has other scales: each keeps its own numbers."""
    first, second = trimmed(operands(4, 32, rows=(3,))), trimmed(operands(4, 32, rows=(3,)))
    first[2] = first[2].astype(np.float16).astype(np.float32)
    assert (second[2] != second[2].astype(np.float16)).any()
    for given in (first, second):
        model = model_of(given, attributes(4, 32))
        with smelt.compile(model, levels=level, threads=1) as compiled:
            assert not compiled.result.plan.fallbacks
            kinds = {
                one.data_type for one in onnx.load(compiled.result.artifact.directory / "model.onnx").graph.initializer
            }
            assert (TensorProto.FLOAT16 in kinds) == (given is first)
            for rows in (1, 20):
                x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
                (y,) = compiled.run({"x": x})
                wanted = node_reference(x, *given[1:], **attributes(4, 32))
                np.testing.assert_allclose(y, 1 / (1 + np.exp(-wanted)), rtol=1e-5, atol=1e-6)


def test_products_of_one_form_with_other_scales_are_no_twins() -> None:
    """In one model: the code of the first is not taken for the second, whose scales float16 does not hold."""
    first, second = trimmed(operands(4, 32, rows=(3,))), trimmed(operands(4, 32, rows=(3,)))
    first[2] = first[2].astype(np.float16).astype(np.float32)
    held, nodes = [], []
    for place, given in enumerate((first, second)):
        held += [numpy_helper.from_array(given[1], f"b{place}"), numpy_helper.from_array(given[2], f"s{place}")]
        names = ["x", f"b{place}", f"s{place}"]
        nodes.append(helper.make_node("MatMulNBits", names, [f"y{place}"], domain="com.microsoft", **attributes(4, 32)))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])
    ys = [helper.make_tensor_value_info(f"y{place}", TensorProto.FLOAT, ["rows", N]) for place in range(2)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", [x], ys, held)
    with smelt.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10), timing=False, force=True) as made:
        assert not made.result.plan.fallbacks
        rows = first[0]
        for y, given in zip(made.run({"x": rows}), (first, second), strict=True):
            wanted = node_reference(rows, *given[1:], **attributes(4, 32))
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_products_of_codebooks_are_those_of_stock(level: str, quant_type: int, block: int) -> None:
    """MatMulBnb4: FP4 and NF4, high bits first."""
    depth, columns, rng = 128, 24, np.random.default_rng([quant_type, block])
    b = rng.integers(0, 256, (columns * depth // 2, 1)).astype(np.uint8)
    absmax = rng.uniform(0.1, 1, columns * depth // block).astype(np.float32)
    attrs = {"K": depth, "N": columns, "block_size": block, "quant_type": quant_type}
    node = helper.make_node("MatMulBnb4", ["x", "b", "s"], ["y"], domain="com.microsoft", **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", columns])
    held = [numpy_helper.from_array(b, "b"), numpy_helper.from_array(absmax, "s")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], held), opset_imports=opsets, ir_version=10)
    with smelt.compile(model, levels=level, threads=1, force=True, timing=False) as compiled:
        assert not compiled.result.plan.fallbacks
        for rows in (0, 1, 5, 20):
            a = rng.standard_normal((rows, depth)).astype(np.float32)
            (made,) = compiled.run({"x": a})
            (stock,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": a})
            np.testing.assert_allclose(made, stock, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(codebook_reference(a, b, absmax, **attrs), stock, rtol=1e-5, atol=1e-5)


def test_codebooks_whose_blocks_cross_columns_are_refused() -> None:
    given = [np.ones((2, 24), np.float32), np.zeros(24 * 4, np.uint8), np.ones(12, np.float32)]
    attrs = {"K": 24, "N": 8, "block_size": 16, "quant_type": 1}
    assert "not those of columns" in cases.refuses("MatMulBnb4", given, attrs=attrs, **OP)
