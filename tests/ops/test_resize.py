"""Resize: the ONNX suite and ONNX Runtime, for every transformation, rounding and interpolation."""

import cases
import numpy as np
import pytest
import shapes

X = np.arange(2 * 3 * 5 * 6, dtype=np.float32).reshape(2, 3, 5, 6)
SIZES = [
    c for c in cases.backend_cases("Resize")
    if ("sizes" in c.name or "tf_crop" in c.name) and "antialias" not in c.name
]  # fmt: skip
MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


@pytest.mark.parametrize("case", SIZES, ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.5, 0.5), (1, 1, 1.7, 0.6), (1, 1, 4, 1)])
def test_constant_scales(mode: str, rounding: str, scales: tuple[float, ...]) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": rounding}
    inputs = [X, None, np.array(scales, np.float32)]
    model = cases.node_model("Resize", inputs, constants=[2], attrs=attrs, opset=18)
    want = cases.by_ort(model, [X])
    assert want is not None
    cases.compare(cases.evaluate(model, [X]), want)
    if scales in ((1, 1, 2, 3), (1, 1, 0.5, 0.5)):
        free = cases.node_model("Resize", inputs, constants=[2], attrs=attrs, opset=18, free=True)
        cases.compare(cases.evaluate(free, [X]), want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [(2, 3, 10, 12), (2, 3, 3, 7), (2, 3, 1, 1)])
def test_sizes_as_constants_and_at_run_time(mode: str, sizes: tuple[int, ...]) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": "floor"}
    inputs = [X, None, None, np.array(sizes, np.int64)]
    shapes.check_operands("Resize", inputs, [3], attrs=attrs, opset=18, against=("ort",))


def test_upsample_and_the_first_resize() -> None:
    scales = np.array([1, 1, 2, 3], np.float32)
    cases.check_node("Upsample", [X, scales], constants=[1], opset=9, attrs={"mode": "nearest"}, against=("ort",))
    cases.check_node("Resize", [X, scales], constants=[1], opset=10, attrs={"mode": "nearest"}, against=("ort",))


@pytest.mark.parametrize("scale", [2.0, 0.5])
def test_size_of_other_interpolations_stays_known(scale: float) -> None:
    scales = np.array([1, 1, scale, scale], np.float32)
    model = cases.node_model("Resize", [X, None, scales], constants=[2], attrs={"mode": "linear"}, opset=18, free=True)
    facts = shapes.compare_shapes(model, {"x0": X})
    assert "y0" in {v.name for v in facts.by_value}


@pytest.mark.parametrize(
    ("inputs", "attrs", "reason"),
    [
        ([X, None, np.ones(4, np.float32)], {"mode": "cubic", "antialias": 1}, "antialias"),
        ([X, None, np.ones(4, np.float32)], {"mode": "linear", "exclude_outside": 1}, "cubic interpolation only"),
        ([X.astype(np.uint8), None, np.ones(4, np.float32)], {"mode": "linear"}, "interpolation of u8"),
        ([X, None, np.zeros(4, np.float32)], {}, "positive"),
        ([X, None, np.ones(3, np.float32)], {}, "number of scales"),
        ([X, None, None, np.array([1, 2], np.int64)], {}, "fit the resized axes"),
        ([X, None, np.ones(4, np.float32)], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "has no kernel"),
    ],
)
def test_what_has_no_kernel_is_refused(inputs: list[np.ndarray], attrs: dict[str, str], reason: str) -> None:
    fixed = [i for i, a in enumerate(inputs) if i and a is not None]
    assert reason in cases.refuses("Resize", inputs, constants=fixed, attrs=attrs, opset=18)


@pytest.mark.parametrize("mode", [*MODES, "half_pixel_symmetric"])
@pytest.mark.parametrize(
    "how", [{"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}]
)
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.5, 0.5), (1, 1, 1.7, 0.6), (1, 1, 4, 1), (1, 1, 0.2, 1)])
def test_interpolation(mode: str, how: dict[str, object], scales: tuple[float, ...]) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 5, 6)).astype(np.float32)
    inputs = [x, None, np.array(scales, np.float32)]
    attrs = {**how, "coordinate_transformation_mode": mode}
    model = cases.node_model("Resize", inputs, constants=[2], attrs=attrs, opset=19)
    want = cases.by_ort(model, [x])
    assert want is not None
    cases.compare(cases.evaluate(model, [x]), want)


@pytest.mark.parametrize("how", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(2, 3, 10, 12), (2, 3, 3, 7), (2, 3, 1, 1)])
def test_interpolation_to_sizes_as_constants_and_at_run_time(how: str, sizes: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 5, 6)).astype(np.float32)
    inputs = [x, None, None, np.array(sizes, np.int64)]
    shapes.check_operands("Resize", inputs, [3], attrs={"mode": how}, opset=18, against=("ort",))


def test_an_axis_of_one_element_is_repeated() -> None:
    x = np.array([[[1.0], [5.0]]], np.float32)
    model = cases.node_model("Resize", [x, None, np.array([1, 1, 3], np.float32)], constants=[2],
                             attrs={"mode": "linear"}, opset=18, free=True)  # fmt: skip
    assert cases.evaluate(model, [x])[0].tolist() == [[[1, 1, 1], [5, 5, 5]]]


def test_infinity_stays_with_its_neighbours() -> None:
    """Weighted sums, not differences: between two infinities there is no NaN."""
    x = np.array([[[0.0, np.inf, np.inf, 0.0]]], np.float32)
    model = cases.node_model("Resize", [x, None, np.array([1, 1, 2], np.float32)], constants=[2],
                             attrs={"mode": "linear"}, opset=18)  # fmt: skip
    assert np.isposinf(cases.evaluate(model, [x])[0][0, 0, 2:6]).all()


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("how", ["nearest", "linear"])
@pytest.mark.parametrize("sizes", [(9, 9), (3, 12), (20, 4), (1, 30)])
def test_sizes_that_keep_the_aspect_ratio(policy: str, how: str, sizes: tuple[int, int]) -> None:
    inputs = [X, None, None, np.array(sizes, np.int64)]
    attrs = {"mode": how, "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    shapes.check_operands("Resize", inputs, [3], attrs=attrs, opset=18, against=("ort",))
