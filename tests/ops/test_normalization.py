"""Normalizations: the ONNX suite, every output and version, agreement with ORT, what is refused."""

import cases
import numpy as np
import pytest

RNG = np.random.default_rng(0)
FAMILY = [
    "LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization", "BatchNormalization",
    "LpNormalization", "MeanVarianceNormalization", "LRN",
]  # fmt: skip


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("case", cases.backend_cases(*FAMILY), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    if "training_mode" in case.name:
        with pytest.raises(cases.Unsupported, match="training"):
            cases.run_case(case)
    else:
        cases.run_case(case)


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layer_norm_gives_mean_and_inverse_deviation(axis: int, dtype: str) -> None:
    x = normal(2, 3, 4, dtype=dtype)
    scale, bias = normal(*x.shape[axis:], dtype=dtype), normal(*x.shape[axis:], dtype=dtype)
    attrs = {"axis": axis, "epsilon": 1e-3}
    made = cases.check_node("LayerNormalization", [x, scale, bias], outputs=3, attrs=attrs, against=("ort",))
    assert [m.dtype.name for m in made] == [dtype, "float32", "float32"]
    cases.check_node("LayerNormalization", [x, scale], attrs=attrs, against=("ort", "reference"))


def test_layer_norm_with_double_statistics() -> None:
    x, scale = normal(3, 8) + 1000, normal(8)
    made = cases.check_node("LayerNormalization", [x, scale], outputs=3, attrs={"stash_type": 11}, against=())
    wide = x.astype(np.float64)
    np.testing.assert_allclose(made[1], wide.mean(-1, keepdims=True), rtol=1e-14)
    assert made[1].dtype == np.float64 and made[0].dtype == np.float32


def test_layer_norm_of_an_offset_keeps_its_digits() -> None:
    x = (normal(4, 256) * 1e-1 + 1e3).astype(np.float32)
    wide = x.astype(np.float64)
    deviation = wide - wide.mean(-1, keepdims=True)
    expected = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-5)
    made = cases.check_node("LayerNormalization", [x, np.ones(256, np.float32)], against=())
    np.testing.assert_allclose(made[0], expected, atol=2e-3)


@pytest.mark.filterwarnings("ignore:overflow")
def test_layer_norm_of_values_without_a_square_gives_the_bias_as_stock_does() -> None:
    x, bias = normal(3, 16) * np.float32(1e25), normal(16)
    made = cases.check_node("LayerNormalization", [x, normal(16), bias], against=("ort!",))
    np.testing.assert_array_equal(made[0], np.broadcast_to(bias, made[0].shape))


def test_a_scale_that_broadcasts() -> None:
    cases.check_node("LayerNormalization", [normal(2, 3, 4), normal(1, 4), normal(4)], attrs={"axis": 1},
                     against=("reference",))  # fmt: skip


def test_a_scale_of_a_wrong_size_is_refused() -> None:
    assert "broadcast" in cases.refuses("LayerNormalization", [normal(2, 4), normal(3)])
    assert "broadcast" in cases.refuses("LayerNormalization", [normal(4), normal(2, 4)])


def test_a_scale_of_a_wrong_free_size_is_a_failed_requirement() -> None:
    model = cases.node_model("LayerNormalization", [normal(2, 4), normal(3)], free=True)
    with pytest.raises(AssertionError, match="requirement fails: a parameter must broadcast"):
        cases.evaluate(model, [normal(2, 4), normal(3)])


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rms_norm(axis: int, dtype: str) -> None:
    x = normal(2, 3, 4, dtype=dtype)
    scale = normal(*x.shape[axis:], dtype=dtype)
    cases.check_node("RMSNormalization", [x, scale], opset=23, attrs={"axis": axis})


@pytest.mark.parametrize("opset", [7, 21])
def test_simplified_layer_norm_of_the_main_domain(opset: int) -> None:
    x, scale = normal(2, 3, 4), normal(4)
    made = cases.check_node("SimplifiedLayerNormalization", [x, scale], opset=opset, outputs=2, against=("ort",))
    inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made[0], x * inverse * scale, rtol=1e-5)
    np.testing.assert_allclose(made[1], inverse, rtol=1e-5)


@pytest.mark.parametrize(("opset", "parameters"), [(18, 2), (21, 6)])
@pytest.mark.parametrize("spatial", [(), (5,), (3, 4)])
def test_group_norm_scales_groups_before_21_and_channels_after(
    opset: int, parameters: int, spatial: tuple[int, ...]
) -> None:
    inputs = [normal(2, 6, *spatial), normal(parameters), normal(parameters)]
    cases.check_node("GroupNormalization", inputs, opset=opset, attrs={"num_groups": 2}, against=("ort", "reference"))


def test_group_norm_of_channels_that_do_not_divide_is_refused() -> None:
    inputs = [normal(2, 5, 3), normal(5), normal(5)]
    assert "divide" in cases.refuses("GroupNormalization", inputs, attrs={"num_groups": 2})


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 2, 2)])
def test_instance_norm(shape: tuple[int, ...]) -> None:
    cases.check_node("InstanceNormalization", [normal(*shape), normal(shape[1]), normal(shape[1])])


@pytest.mark.parametrize("opset", [7, 8, 9, 13, 14, 15])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (2, 4, 3, 2)])
def test_batch_norm_by_stored_statistics(opset: int, shape: tuple[int, ...]) -> None:
    inputs = [normal(*shape), normal(4), normal(4), normal(4), np.abs(normal(4))]
    cases.check_node("BatchNormalization", inputs, opset=opset, attrs={"epsilon": 1e-3}, against=("ort",))
    if opset >= 14:
        cases.check_node("BatchNormalization", inputs, opset=opset)


def test_batch_norm_with_other_kinds_of_statistics_is_refused() -> None:
    inputs = [normal(2, 4, 3), normal(4), normal(4), normal(4), np.abs(normal(4))]
    assert "training" in cases.refuses("BatchNormalization", inputs, attrs={"training_mode": 1}, outputs=3)
    assert "training" in cases.refuses("BatchNormalization", inputs, opset=9, outputs=5)
    assert "spatial" in cases.refuses("BatchNormalization", inputs, opset=7, attrs={"spatial": 0})


@pytest.mark.parametrize("axes", [[0, 2, 3], [1], [-1, 0]])
def test_mean_variance_norm(axes: list[int]) -> None:
    cases.check_node("MeanVarianceNormalization", [normal(2, 3, 4, 5)], attrs={"axes": axes}, tolerance=1e-4)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("opset", [7, 22])
def test_a_row_of_norm_zero_stays_zero(p: int, opset: int) -> None:
    x = np.array([[1, -3, 2], [0, 0, 0]], np.float32)
    norms = {1: 6.0, 2: np.sqrt(14.0)}
    expected = np.array([[1, -3, 2], [0, 0, 0]], np.float32) / np.float32(norms[p])
    cases.check_node("LpNormalization", [x], opset=opset, attrs={"p": p, "axis": 1}, expected=[expected])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_norm_at_the_borders(size: int) -> None:
    x = normal(2, 5, 3, 4)
    cases.check_node("LRN", [x], attrs={"size": size, "alpha": 0.3, "bias": 2.0}, against=("ort",))


def test_local_response_norm_with_a_huge_window_is_refused() -> None:
    assert "window" in cases.refuses("LRN", [normal(1, 2, 2, 2)], attrs={"size": 1001})


EQUAL = (0.1, 1000.3, -77777.7, 1e5 + 0.1, 3.3e10)
BY_MOMENTS = (
    ("LayerNormalization", {"axis": 1}, 2),
    ("InstanceNormalization", {}, 2),
    ("GroupNormalization", {"num_groups": 2}, 2),
    ("MeanVarianceNormalization", {"axes": [1, 2]}, 0),
)


@pytest.mark.parametrize(("op", "attrs", "parameters"), BY_MOMENTS, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("width", [7, 48, 100, 769])
def test_rows_of_equal_values_are_zero(op: str, attrs: dict, parameters: int, width: int) -> None:
    x = np.repeat(np.array(EQUAL, np.float32), 6 * width).reshape(len(EQUAL), 6, width)
    sizes = (6, width) if op == "LayerNormalization" else (6,)
    given = [x, *(np.full(sizes, value, np.float32) for value in (1, 0)[:parameters])]
    (y,) = cases.evaluate(cases.node_model(op, given, attrs=attrs, opset=21), given)
    np.testing.assert_array_equal(y, 0)
