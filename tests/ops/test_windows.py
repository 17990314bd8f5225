"""Convolutions and pools by their declared lowerings: the ONNX suite, and float64, where plain loops take over."""

import cases
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from smelt.ops import reference_rules

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
        ("ConvTranspose", (4, 3, 3, 3), {"strides": [3, 3], "output_padding": [2, 1]}),
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


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint8])
def test_a_maximum_of_padding_alone_is_the_least_number(dtype: type, order: int) -> None:
    """As in stock; a window that sees an infinity keeps it."""
    attrs = {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}
    for shape in ((2, 3, 1, 4), (1, 2, 4, 1), (2, 1, 2, 2)):
        x = RNG.integers(1, 9, shape).astype(dtype)
        places = dtype in (np.float32, np.float64)
        given = {**attrs, "storage_order": order} if places else attrs
        for free in (False, True):
            model = cases.node_model("MaxPool", [x], attrs=given, opset=12, outputs=1 + places, free=free)
            want = cases.by_ort(model, [x])
            assert want is not None and (min(shape[2:]) > 1 or (want[0] == least(dtype)).any())
            cases.compare(cases.evaluate(model, [x]), want)
            cases.compare(cases.evaluate(cases.node_model("MaxPool", [x], attrs=attrs, opset=12), [x]), want[:1])


def least(dtype: type) -> float:
    return float(np.finfo(dtype).min if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min)


def test_the_reference_has_the_least_number_and_its_place_too() -> None:
    x = RNG.standard_normal((2, 3, 1, 4)).astype(np.float32)
    attrs = {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}
    want = cases.by_ort(cases.node_model("MaxPool", [x], attrs=attrs, opset=12, outputs=2), [x])
    assert want is not None
    values = reference_rules.max_pool([x.astype(np.float64)], attrs)
    assert values is not None
    np.testing.assert_array_equal(values, want[0].astype(np.float64))
    np.testing.assert_array_equal(reference_rules.max_pool_places([x], attrs), want[1])


PADDING = ("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
WINDOWS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["MaxPool", "MaxPool", "AveragePool", "LpPool", "Conv", "ConvTranspose"]),
        "size": st.integers(1, 6),
        "kernel": st.integers(1, 5),
        "stride": st.integers(1, 4),
        "dilation": st.integers(1, 2),
        "pads": st.tuples(st.integers(0, 3), st.integers(0, 3)),
        "mode": st.sampled_from(PADDING),
        "ceil": st.booleans(),
        "count": st.booleans(),
    }
)


def window_attributes(case: dict) -> dict[str, object]:
    """Pads of a pool stay below its kernel, as ONNX Runtime asks."""
    pool, size = case["op"].endswith("Pool"), case["kernel"]
    attrs: dict[str, object] = {"kernel_shape": [size], "strides": [case["stride"]], "dilations": [case["dilation"]]}
    if case["mode"] == "NOTSET":
        attrs["pads"] = [min(p, size - 1) if pool else p for p in case["pads"]]
    else:
        attrs["auto_pad"] = case["mode"]
    if pool and case["ceil"]:
        attrs["ceil_mode"] = 1
    if case["op"] == "AveragePool":
        attrs["count_include_pad"] = int(case["count"])
    return attrs


def left_to_stock(case: dict) -> bool:
    """Automatic padding that ONNX Runtime does not compute as the specification says."""
    if case["op"] == "AveragePool" and case["dilation"] > 1 and not case["count"]:
        return case["mode"] != "VALID" and (case["mode"] != "NOTSET" or any(case["pads"]))
    if not case["mode"].startswith("SAME"):
        return False
    if case["op"] == "ConvTranspose":
        return (case["kernel"] - 1) * case["dilation"] + 1 < case["stride"]
    return case["op"].endswith("Pool") and (case["dilation"] > 1 or case["kernel"] < case["stride"])


def window_count_is_stocks(case: dict) -> None:
    """What ONNX Runtime accepts has its sizes and contents, whether the image's size is known or free."""
    attrs = window_attributes(case)
    inputs = [np.arange(1, 2 * case["size"] + 1, dtype=np.float32).reshape(1, 2, case["size"])]
    if not case["op"].endswith("Pool"):
        inputs.append(np.arange(1, 4 * case["kernel"] + 1, dtype=np.float32).reshape(2, 2, case["kernel"]))
    want = cases.by_ort(cases.node_model(case["op"], inputs, attrs=attrs, opset=22), inputs)
    if want is None or left_to_stock(case):
        return
    for free in (False, [0]):
        model = cases.node_model(case["op"], inputs, attrs=attrs, opset=22, free=free)
        cases.compare(cases.evaluate(model, inputs), want, name=f"stock {case} free={free}")


ONE_LINE = {"op": "MaxPool", "size": 1, "kernel": 2, "stride": 2, "dilation": 1, "pads": (0, 0), "mode": "NOTSET",
            "ceil": False, "count": False}  # fmt: skip


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@example(case=ONE_LINE)
@example(case={**ONE_LINE, "kernel": 5, "size": 3, "stride": 3})
@example(case={**ONE_LINE, "kernel": 5, "size": 2, "stride": 2})
@given(case=WINDOWS)
def test_windows_are_counted_as_stock_counts_them(case: dict) -> None:
    window_count_is_stocks(case)


@pytest.mark.full
@settings(max_examples=6000, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=WINDOWS)
def test_all_windows_are_counted_as_stock_counts_them(case: dict) -> None:
    window_count_is_stocks(case)


def test_a_mean_that_may_see_nothing_but_padding_is_left_to_stock() -> None:
    attrs = {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]}
    assert "nothing but padding" in cases.refuses(
        "AveragePool", [np.ones((1, 2, 1), np.float32)], attrs=attrs, opset=22
    )


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("MaxPool", {"kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"}),
        ("AveragePool", {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", {"kernel_shape": [1], "strides": [2], "auto_pad": "SAME_UPPER"}),
    ],
)
def test_automatic_padding_that_stock_counts_in_its_own_way_is_left_to_it(op: str, attrs: dict[str, object]) -> None:
    inputs = [np.ones((1, 2, 6), np.float32)]
    inputs += [np.ones((2, 2, 1), np.float32)] if op == "ConvTranspose" else []
    assert "in its own way" in cases.refuses(op, inputs, attrs=attrs, opset=22)
