"""Activations with their attributes, and the shapes and values at which they differ."""

import cases
import numpy as np
import pytest

X = np.array([-np.inf, -20.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.3, 1.0, 2.5, 30.0, np.inf, np.nan], np.float32)
FINITE = X[np.isfinite(X)]

ATTRIBUTES = [
    ("LeakyRelu", {"alpha": 0.3}), ("LeakyRelu", {"alpha": -1.5}), ("Elu", {"alpha": 2.0}), ("Celu", {"alpha": 0.5}),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}), ("HardSigmoid", {"alpha": 0.4, "beta": 0.6}), ("Swish", {"alpha": 1.702}),
    ("ThresholdedRelu", {"alpha": 0.25}), ("Shrink", {"lambd": 0.75, "bias": 0.2}), ("Gelu", {"approximate": "tanh"}),
    ("Gelu", {"approximate": "none"}), ("IsInf", {"detect_negative": 0}), ("IsInf", {"detect_positive": 0}),
    ("IsInf", {"detect_negative": 0, "detect_positive": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs"), ATTRIBUTES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attributes(op: str, attrs: dict, dtype: type) -> None:
    cases.check_node(op, [X.astype(dtype)], attrs=attrs, against=("reference",), tolerance=1e-6)
    cases.check_node(op, [FINITE.astype(dtype)], attrs=attrs, against=("ort",), tolerance=1e-6)


def test_gelu_refuses_other_approximations() -> None:
    assert "approximate" in cases.refuses("Gelu", [X], attrs={"approximate": "fast"})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (3, 1), (1,), ()])
def test_prelu_slope_broadcasts_to_its_input(dtype: type, shape: tuple[int, ...]) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    if np.dtype(dtype).kind != "u":
        x = x - dtype(12)
    slope = (np.arange(int(np.prod(shape))).reshape(shape) + 2).astype(dtype)
    cases.check_node("PRelu", [x, slope])


def test_prelu_refuses_a_slope_larger_than_its_input() -> None:
    x = np.ones((1, 3), np.float32)
    assert "broadcast" in cases.refuses("PRelu", [x, np.ones((2, 3), np.float32)])
    assert "axes" in cases.refuses("PRelu", [x, np.ones((1, 1, 3), np.float32)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize(("lambd", "bias"), [(1.5, 0.0), (0.0, 1.0), (-2.5, 1.0), (300.0, 0.0)])
def test_shrink_of_integers_is_exact(dtype: type, lambd: float, bias: float) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([low, low + 1, 0, 1, 2, 3, high - 1, high], dtype)
    wide = [int(v) for v in x]
    exact = [v + int(bias) if v < -lambd else v - int(bias) if v > lambd else 0 for v in wide]
    bits = 8 * x.dtype.itemsize
    wrapped = np.array([v % 2**bits for v in exact], np.uint64).astype(dtype)
    cases.check_node("Shrink", [x], attrs={"lambd": lambd, "bias": bias}, expected=[wrapped], against=())


def test_shrink_of_integers_refuses_a_fractional_bias() -> None:
    assert "whole bias" in cases.refuses("Shrink", [np.ones(3, np.int32)], attrs={"bias": 0.5})


CONTRIB = "com.microsoft"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "FastGelu+bias", "QuickGelu", "QuickGelu+alpha"])
def test_contrib_activations(op: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    name, _, extra = op.partition("+")
    x = (rng.standard_normal((2, 3, 8)) * 3).astype(dtype)
    inputs = [x] + ([rng.standard_normal(8).astype(dtype)] if name == "BiasGelu" or extra == "bias" else [])
    attrs = {"alpha": 1.5} if extra == "alpha" else {}
    expected = reference(name)(*inputs, **attrs)
    assert expected.dtype == dtype
    # ORT has these for float32 only
    against = ("ort!",) if dtype is np.float32 else ()
    how = {"domain": CONTRIB, "attrs": attrs, "expected": [expected], "tolerance": 1e-6, "against": against}
    cases.check_node(name, inputs, **how)


def reference(name: str):
    from smelt.ops import lookup

    found = lookup(CONTRIB, name, 1)
    assert found is not None and found.reference is not None
    return found.reference


def test_contrib_bias_add() -> None:
    x, bias, skip = np.ones((1, 2, 4), np.float32), np.arange(4, dtype=np.float32), np.full((1, 2, 4), 3.0, np.float32)
    cases.check_node("BiasAdd", [x, bias, skip], domain=CONTRIB, expected=[x + bias + skip], against=())
