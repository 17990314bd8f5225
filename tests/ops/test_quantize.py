"""Quantization: granularities, saturation, rounding, every version."""

import cases
import numpy as np
import pytest
from onnx import helper

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.standard_normal(20) * 40, [0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, 12345, -7]]).astype(
    np.float32
)
X = X.reshape(2, 3, 5)


def against(opset: int) -> tuple[str, ...]:
    """ONNX's reference has no DequantizeLinear before 19."""
    return ("reference", "ort") if opset >= 19 else ("ort!",)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_per_tensor(opset: int, dtype: type) -> None:
    scale, zero = np.array(0.5, np.float32), np.array(3, dtype)
    cases.check_node("QuantizeLinear", [X, scale, zero], opset=opset)
    q = np.arange(30).reshape(2, 3, 5).astype(dtype)
    cases.check_node("DequantizeLinear", [q, scale, zero], opset=opset, against=against(opset))


@pytest.mark.parametrize("opset", [13, 19, 21, 25])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_per_axis(opset: int, axis: int, constants: tuple[int, ...]) -> None:
    n = X.shape[axis]
    scale, zero = (np.arange(n) + 1).astype(np.float32), np.arange(n).astype(np.int8)
    cases.check_node("QuantizeLinear", [X, scale, zero], opset=opset, attrs={"axis": axis}, constants=constants)
    q = (np.arange(30) * 7).reshape(2, 3, 5).astype(np.int8)
    how = {"opset": opset, "attrs": {"axis": axis}, "constants": constants, "against": against(opset)}
    cases.check_node("DequantizeLinear", [q, scale, zero], **how)


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_16_bits(dtype: type) -> None:
    scale, zero = np.array(0.01, np.float32), np.array(300, dtype)
    cases.check_node("QuantizeLinear", [np.clip(X, -1e6, 1e6), scale, zero])
    cases.check_node("DequantizeLinear", [np.arange(9).astype(dtype), scale, zero])


@pytest.mark.parametrize("block", [2, 3, 5])
def test_blocks_along_an_axis(block: int) -> None:
    shape = (2, 3, -(-5 // block))
    scale = RNG.uniform(0.5, 2, shape).astype(np.float32)
    zero = RNG.integers(-5, 5, shape).astype(np.int8)
    attrs = {"axis": 2, "block_size": block}
    expanded = [np.repeat(p, block, 2)[:, :, :5] for p in (scale, zero)]
    q = np.clip(np.rint(X / expanded[0]) + expanded[1], -128, 127).astype(np.int8)
    cases.check_node("QuantizeLinear", [X, scale, zero], opset=21, attrs=attrs, expected=[q])
    restored = (q.astype(np.float32) - expanded[1]) * expanded[0]
    cases.check_node("DequantizeLinear", [q, scale, zero], opset=21, attrs=attrs, expected=[restored])


def test_the_zero_point_is_optional() -> None:
    scale = np.array(0.5, np.float32)
    cases.check_node("QuantizeLinear", [X, scale])
    cases.check_node(
        "QuantizeLinear", [X, scale], attrs={"output_dtype": helper.np_dtype_to_tensor_dtype(np.dtype(np.int8))}
    )
    cases.check_node("DequantizeLinear", [np.arange(9, dtype=np.int32), scale])
    cases.check_node("QuantizeLinear", [np.arange(-9, 9, dtype=np.int32), scale, np.array(1, np.int8)])


def test_a_vector_of_one_scale_is_per_tensor() -> None:
    scale, zero = np.array([0.5], np.float32), np.array([3], np.uint8)
    cases.check_node("QuantizeLinear", [X.reshape(-1), scale, zero])
    cases.check_node("DequantizeLinear", [np.array(9, np.uint8), scale, zero], against=("ort!",))


def test_results_saturate_and_round_half_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
    expected = np.array([0, 2, 2, 0, 127, -128, 127, -128], np.int8)
    inputs = [x, np.array(1, np.float32), np.array(0, np.int8)]
    cases.check_node("QuantizeLinear", inputs, expected=[expected], against=())


def test_a_scale_that_misses_its_axis_is_refused() -> None:
    assert cases.refuses("QuantizeLinear", [X, np.ones(4, np.float32), np.zeros(4, np.int8)], attrs={"axis": 1})


@pytest.mark.parametrize("shape", [(7,), (3, 4), ()])
def test_dynamic_quantization(shape: tuple[int, ...]) -> None:
    x = (np.random.default_rng(1).standard_normal(shape) * 5).astype(np.float32)
    cases.check_node("DynamicQuantizeLinear", [np.asarray(x, np.float32)], outputs=3)


def test_dynamic_quantization_of_zeros_has_scale_one() -> None:
    cases.check_node("DynamicQuantizeLinear", [np.zeros(4, np.float32)], outputs=3, against=("ort!",))


@pytest.mark.parametrize("sign", [1, -1])
def test_dynamic_quantization_of_one_sign_holds_zero(sign: int) -> None:
    cases.check_node("DynamicQuantizeLinear", [sign * np.array([1, 2, 7.5], np.float32)], outputs=3)
