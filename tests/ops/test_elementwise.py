"""Every element-wise op: suite cases, every version and every type that ONNX allows, special values, broadcasting."""

from __future__ import annotations

import functools
import itertools
import math

import cases
import numpy as np
import onnx.defs
import pytest
from onnx import helper

from smelt.ops import declarations

OPS = sorted({d.name for d in declarations() if d.kind == "elementwise" and not d.domain} | {"Identity", "EyeLike"})
TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
}  # fmt: skip


@pytest.mark.parametrize("case", cases.backend_cases(*OPS, opsets=range(7, 29)), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    if case.name.startswith("test_training_dropout"):
        pytest.skip("training mode draws random numbers: refused, see test_dropout_refuses_training")
    cases.run_case(case)


def sample(dtype: type, shape: tuple[int, ...] = (4, 9), seed: int = 0) -> np.ndarray:
    """Values with the edges of the type among them."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype is np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.floating):
        x = rng.standard_normal(count) * 3
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 88.5, -104.0]
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = rng.integers(0 if low == 0 else -20, 20, count)
        edges = [0, 1, 2, low, high, high - 1, low + 1]
    return place(x.astype(dtype), edges, rng).reshape(shape)


def place(x: np.ndarray, edges: list, rng: np.random.Generator) -> np.ndarray:
    for where, value in zip(rng.permutation(x.size), edges, strict=False):
        x[where] = value
    return x


UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
]
BINARY = [
    "Add",
    "And",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mul",
    "Or",
    "Sub",
    "Sum",
    "Xor",
]


def versions(op: str) -> list[int]:
    """The opsets at which the op changed, as seen by models of opsets 7 to 26."""
    known = sorted(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and not s.domain)
    return sorted({max(v, 7) for v in known if v <= 26 and not any(v < w <= 7 for w in known)})


def types(op: str, opset: int) -> list[type]:
    schema = onnx.defs.get_schema(op, opset, "")
    allowed = {
        t for c in schema.type_constraints if c.type_param_str == schema.inputs[0].type_str for t in c.allowed_type_strs
    }
    return [numpy_type for name, numpy_type in TYPES.items() if name in allowed or schema.inputs[0].type_str == name]


def combinations(ops: list[str]) -> list[tuple[str, int, type]]:
    return [(op, v, t) for op in ops for v in versions(op) for t in types(op, v)]


# Answers of one side that its own specification contradicts, or that it leaves open.
OPEN = {
    "Erf": lambda t: not np.issubdtype(t, np.floating),  # integers are refused
}
LOOSE = {"Mish": 1e-4, "Tan": 1e-4, "Erf": 1e-6, "Gelu": 1e-6}  # ONNX's own Erf is a float32 one


@pytest.mark.parametrize(("op", "opset", "dtype"), combinations(UNARY), ids=str)
def test_one_operand_for_each_version_and_type(op: str, opset: int, dtype: type) -> None:
    x = sample(dtype)
    if op == "Shrink" and dtype in (np.int64, np.uint64):
        x = np.clip(x, 0, 2**50)  # the reference computes in double
    if OPEN.get(op, lambda t: False)(dtype):
        assert "no kernel" in cases.refuses(op, [x], opset=opset)
        return
    cases.check_node(op, [x], opset=opset, against=("reference",), tolerance=LOOSE.get(op))
    if op == "Shrink" and dtype is not np.float32:
        return  # ORT computes all other types in float32
    finite = x if dtype is np.bool_ else x[np.isfinite(x)]
    cases.check_node(op, [finite], opset=opset, against=("ort",), tolerance=LOOSE.get(op))


@pytest.mark.parametrize(("op", "opset", "dtype"), combinations(BINARY), ids=str)
def test_two_operands_for_each_version_and_type(op: str, opset: int, dtype: type) -> None:
    a, b = sample(dtype, seed=1), sample(dtype, seed=2)
    against = ("reference", "ort")
    if op == "Div" and not np.issubdtype(dtype, np.floating):
        b[b == 0] = 3
        b[b == dtype(-1) if np.iinfo(dtype).min else b == 0] = 2
    cases.check_node(op, [a, b], opset=opset, against=against)


@pytest.mark.parametrize("op", ["Add", "Equal", "Max", "Sum", "Mul"])
@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 3)), ((4, 1, 3), (2, 1)), ((0, 3), (1, 3)), ((1,), ()), ((1, 1), (2,))],
)
def test_shapes_broadcast(op: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(3)
    cases.check_node(op, [rng.standard_normal(s).astype(np.float32) for s in shapes])


FOLDS = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add, "Mean": np.add}


@pytest.mark.parametrize("op", list(FOLDS))
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_any_number_of_operands(op: str, count: int) -> None:
    rng = np.random.default_rng(4)
    shapes = itertools.cycle([(2, 1, 3), (4, 1), (3,)])
    operands = [rng.standard_normal(next(shapes)).astype(np.float32) for _ in range(count)]
    total = functools.reduce(FOLDS[op], operands)
    cases.check_node(op, operands, expected=[total / np.float32(count) if op == "Mean" else total])


def test_integer_division_truncates_and_never_traps() -> None:
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    cases.check_node("Div", [a, b], expected=[np.array([3, -3, -3, 3, 0, -(2**31)], np.int32)], against=())


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16])
@pytest.mark.parametrize("fmod", [0, 1])
def test_integer_modulo(dtype: type, fmod: int) -> None:
    a, b = sample(dtype, seed=5), sample(dtype, seed=6)
    b[(b == 0) | (b == (dtype(-1) if np.iinfo(dtype).min else 0))] = 3
    against = ("reference",) if fmod else ("reference", "ort")  # ORT's fmod goes through double
    cases.check_node("Mod", [a, b], attrs={"fmod": fmod}, against=against)


def test_float_modulo_has_the_dividends_sign_by_fmod() -> None:
    a = np.array([5.5, -5.5, 5.5, -5.5, 0.0, np.inf, np.nan], np.float32)
    b = np.array([2.0, 2.0, -2.0, -2.0, 3.0, 2.0, 1.0], np.float32)
    cases.check_node("Mod", [a, b], attrs={"fmod": 1})
    cases.check_node("Mod", [a, b], expected=[np.mod(a, b)])


POWER_TYPES = [np.float32, np.float64, np.int32, np.int64]


@pytest.mark.parametrize("base", POWER_TYPES)
@pytest.mark.parametrize("exponent", POWER_TYPES)
@pytest.mark.parametrize("opset", [12, 13, 15])
def test_power_of_mixed_types(base: type, exponent: type, opset: int) -> None:
    x = np.arange(1, 10).astype(base)
    y = np.array([0, 1, 2, 3, 4, 5, 6, 7, 2]).astype(exponent)
    cases.check_node("Pow", [x, y], opset=opset)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5, 1.7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_by_a_constant_keeps_special_values(exponent: float, dtype: type) -> None:
    x = sample(dtype)
    expected = np.array([c_power(float(v), float(dtype(exponent))) for v in x.reshape(-1)], dtype).reshape(x.shape)
    got = cases.check_node("Pow", [x, np.array(exponent, dtype)], constants=[1], expected=[expected])
    assert np.array_equal(np.signbit(got[0]) & (got[0] == 0), np.signbit(expected) & (expected == 0))


def c_power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except ValueError:
        return (math.copysign(math.inf, x) if y == -1 else math.inf) if x == 0 else math.nan


def test_power_of_integers_is_exact() -> None:
    x = np.arange(-9, 10, dtype=np.int64)
    y = np.full_like(x, 15)
    cases.check_node("Pow", [x, y], expected=[np.power(x, 15)])
    cases.check_node("Pow", [x, np.array(3, np.int64)], constants=[1], expected=[x**3])


@pytest.mark.parametrize("dtype", list(TYPES.values()))
def test_where_selects(dtype: type) -> None:
    condition = sample(np.bool_, (4, 1))
    cases.check_node("Where", [condition, sample(dtype, (4, 9), 1), sample(dtype, (9,), 2)])


def test_operands_of_different_types_are_refused() -> None:
    assert "differ in type" in cases.refuses("Add", [np.ones(3, np.float32), np.ones(3, np.float64)])


# Clip


@pytest.mark.parametrize("attrs", [{}, {"min": -1.0}, {"max": 1.5}, {"min": -1.0, "max": 1.5}])
def test_clip_by_attributes(attrs: dict[str, float]) -> None:
    x = sample(np.float32)
    x = x[~np.isnan(x)]
    cases.check_node("Clip", [x], opset=10, attrs=attrs, against=("ort",))


@pytest.mark.parametrize("opset", [11, 12, 13])
@pytest.mark.parametrize("bounds", [(-1, 2), (None, 2), (-1, None), (None, None), (3, 1)])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_clip_by_inputs(opset: int, bounds: tuple[int | None, int | None], constants: tuple[int, ...]) -> None:
    x = sample(np.float32)
    x = x[~np.isnan(x)]
    inputs = [x, *(None if b is None else np.array(b, np.float32) for b in bounds)]
    cases.check_node("Clip", inputs, opset=opset, constants=constants, against=("reference",))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float64])
def test_clip_of_other_types(dtype: type) -> None:
    cases.check_node("Clip", [sample(dtype), dtype(2).reshape(()), dtype(7).reshape(())])


def test_clip_keeps_nan() -> None:
    x = np.array([np.nan, 5.0], np.float32)
    bounds = [np.array(0, np.float32), np.array(1, np.float32)]
    cases.check_node("Clip", [x, *bounds], expected=[np.array([np.nan, 1.0], np.float32)])


# Dropout, EyeLike


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
def test_dropout_is_the_identity_in_inference(opset: int) -> None:
    x = sample(np.float32)
    cases.check_node("Dropout", [x], opset=opset, expected=[x])


def test_dropout_mask_is_refused_where_it_has_no_lowering() -> None:
    assert "mask" in cases.refuses("Dropout", [np.ones(3, np.float32)], opset=10, outputs=2)


@pytest.mark.parametrize("opset", [12, 13, 22])
def test_dropout_mask_is_true(opset: int) -> None:
    x = sample(np.float32)
    cases.check_node("Dropout", [x], opset=opset, outputs=2, expected=[x, np.ones(x.shape, bool)])


def test_dropout_refuses_training() -> None:
    x = np.ones(3, np.float32)
    ratio = np.array(0.5, np.float32)
    assert "training" in cases.refuses("Dropout", [x, ratio, np.array(True)], constants=[1, 2])
    assert "training" in cases.refuses("Dropout", [x, ratio, np.array(False)], constants=[1])
    cases.check_node("Dropout", [x, ratio, np.array(False)], constants=[1, 2], expected=[x])


@pytest.mark.parametrize("k", [-2, 0, 1, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
def test_eye_like(k: int, dtype: type) -> None:
    attrs = {"k": k, "dtype": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
    cases.check_node("EyeLike", [np.zeros((3, 4), np.int32)], attrs=attrs, expected=[np.eye(3, 4, k, dtype)])
    cases.check_node("EyeLike", [np.zeros((3, 4), np.int64)], attrs={"k": k})
