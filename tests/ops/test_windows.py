"""Convolutions and pools by their declared meanings: the ONNX suite, and float64, where plain loops take over."""

import cases
import numpy as np
import pytest

SUITE = [
    c
    for op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")
    for c in cases.backend_cases(op)
    if "Conv3d" not in c.name and "float16" not in c.name
]
RNG = np.random.default_rng(7)


@pytest.mark.parametrize("case", SUITE, ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("op", "weights", "attrs"),
    [
        ("Conv", (6, 4, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ("Conv", (6, 2, 3, 3), {"group": 2, "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
        ("Conv", (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_LOWER"}),
        ("ConvTranspose", (4, 3, 3, 3), {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}),
        ("ConvTranspose", (4, 3, 2, 2), {"group": 2, "strides": [2, 2], "dilations": [2, 1]}),
        ("ConvTranspose", (4, 3, 2, 2), {"strides": [2, 2]}),
    ],
)
def test_convolution(op: str, weights: tuple[int, ...], attrs: dict[str, object], dtype: type) -> None:
    x, w = RNG.standard_normal((2, 4, 7, 6)).astype(dtype), RNG.standard_normal(weights).astype(dtype)
    columns = weights[0] if op == "Conv" else weights[1] * int(attrs.get("group", 1))  # type: ignore[call-overload]
    b = RNG.standard_normal(columns).astype(dtype)
    known = cases.node_model(op, [x, w, b], attrs=attrs, opset=11)
    want = cases.by_ort(known if dtype is np.float32 else _narrow(op, x, w, b, attrs), _as_float32(x, w, b))
    assert want is not None
    for model in (known, cases.node_model(op, [x, w, b], attrs=attrs, opset=11, free=[0])):
        (found,) = cases.evaluate(model, [x, w, b])
        assert found.dtype == dtype
        np.testing.assert_allclose(found, want[0], rtol=1e-4, atol=1e-4)


def _narrow(op, x, w, b, attrs):
    return cases.node_model(op, _as_float32(x, w, b), attrs=attrs, opset=11)


def _as_float32(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float32) for a in arrays]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]},
        {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    ],
)
def test_pool(op: str, dtype: type, attrs: dict[str, object]) -> None:
    x = RNG.standard_normal((2, 3, 8, 7)).astype(dtype)
    want = cases.by_ort(cases.node_model(op, _as_float32(x), attrs=attrs, opset=19), _as_float32(x))
    assert want is not None
    for free in (False, True):
        (found,) = cases.evaluate(cases.node_model(op, [x], attrs=attrs, opset=19, free=free), [x])
        np.testing.assert_allclose(found, want[0], rtol=1e-5, atol=1e-5)


def test_a_nan_in_a_window_makes_its_maximum_nan() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 1, 1] = np.nan
    model = cases.node_model("MaxPool", [x], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, opset=12)
    (found,) = cases.evaluate(model, [x])
    assert np.isnan(found[0, 0, 0, 0]) and not np.isnan(found[0, 0]).all()


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 3, 8, 7), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}),
        ((2, 3, 9), {"kernel_shape": [3], "dilations": [2]}),
        ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1], "ceil_mode": 1}),
    ],
)
def test_places_of_maxima(shape: tuple[int, ...], attrs: dict[str, object], order: int) -> None:
    """Few different values: of equals, the first one counts."""
    x = RNG.integers(-2, 3, shape).astype(np.float32)
    known, free = (
        cases.node_model("MaxPool", [x], attrs={**attrs, "storage_order": order}, opset=12, outputs=2, free=free)
        for free in (False, True)
    )
    want = cases.by_ort(known, [x])
    assert want is not None
    for model in (known, free):
        cases.compare(cases.evaluate(model, [x]), want)


def test_places_of_maxima_are_never_in_the_padding() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    x[0, 0, 1, 1] = np.nan
    attrs = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}
    values, places = cases.evaluate(cases.node_model("MaxPool", [x], attrs=attrs, opset=12, outputs=2), [x])
    assert places.tolist() == [[[[0, 0], [0, 3]]]] and np.isnan(values[0, 0, 1, 1]) and np.isneginf(values[0, 0, 0, 0])
