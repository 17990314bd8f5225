"""Values at the edge: divisors of 0, numbers beyond a type, zeros with a sign; docs/numerics.md has each answer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from merged import feeds_of, merge, split
from onnx.reference import ReferenceEvaluator
from region_check import Graph, check, stock

import smelt

WHOLE = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64}
UNSIGNED = {"uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64}
DIVISIONS = ("Div", "Mod", "Mod<fmod = 1>")
EDGES = [np.nan, np.inf, -np.inf, -0.0, 0.5, -1.5, 127.9, 128, 300, -129, 32768, 65536, -70000, 2147483520, 2147483648,
         -2147483648, 4294967040, 1e10, 9.2e18, 9.3e18, 1.8e19, 1e30, -1e30]  # fmt: skip


@pytest.fixture(autouse=True)
def quick_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMELT_CFLAGS", "-O0")


def divided(op: str, kind: str) -> str:
    return f"({kind}[n] a, {kind}[n] b) => ({kind}[n] y) {{ y = {op}(a, b) }}"


def outcome(text: str, inputs: list[np.ndarray]) -> str:
    model = Graph(text, inputs).model(21)
    with smelt.compile(model, force=True, levels="v2", verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        try:
            compiled.run(dict(zip([i.name for i in model.graph.input], inputs, strict=True)))
        except Exception as error:
            return str(error)
    return ""


def test_an_integer_divided_by_zero_is_an_error_as_in_stock() -> None:
    for op, kind, dtype in (("Div", "int64", np.int64), ("Mod", "int8", np.int8)):
        inputs = [np.array([7, 8, 9], dtype), np.array([2, 0, 2], dtype)]
        with pytest.raises(Exception, match="by zero"):
            stock(Graph(divided(op, kind), inputs).model(21), inputs)
        assert "integer division by zero" in outcome(divided(op, kind), inputs), (op, kind)


def test_integers_are_divided_at_the_ends_of_their_range() -> None:
    """The least one by -1 wraps; stock does so up to 16 bits, and ends the process with more."""
    graphs: list[Graph] = []
    for op in DIVISIONS:
        for kind, dtype in {**WHOLE, **UNSIGNED}.items():
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            a, b = np.array([least, least, most, most, 7, 0] * 4, dtype), np.array([1, most, 2, most, 3, 5] * 4, dtype)
            exact = [np.fmod(a, b)] if "fmod" in op else None  # stock divides as float64
            graphs.append(Graph(divided(op, kind), [a, b], expected=exact))
            if kind in WHOLE:
                wrapped = np.array([least, -7, 0] if op == "Div" else [0, 0, 0], dtype)
                ends = [np.array([least, 7, 0], dtype), np.array([-1, -1, -1], dtype)]
                graphs.append(Graph(divided(op, kind), ends, expected=[wrapped]))
    check(*graphs)


def test_empty_divisors_and_broadcast_ones_divide() -> None:
    text = "(int64[n, m] a, int64[m] b) => (int64[n, m] y) { y = Div(a, b) }"
    whole = np.arange(12).reshape(3, 4)
    check(
        Graph(text, [whole, np.array([1, 2, 3, -4])]),
        Graph(text, [whole[:0], np.array([1, 2, 3, -4])]),
        Graph(text, [whole[:, :0], np.zeros(0, np.int64)]),
    )


@pytest.mark.parametrize("levels", ["v2", "v3"])
def test_floats_beyond_an_integer_type_are_cast_as_stock_casts_them(levels: str) -> None:
    """To 32 bits without a sign, where stock's answer depends on the place in the tensor, as it casts one element."""
    graphs: list[Graph] = []
    for source, made in (("float", np.float32), ("double", np.float64)):
        values = np.array(EDGES, made)
        for kind, dtype in {**WHOLE, **UNSIGNED, "bool": np.bool_}.items():
            code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            text = f"({source}[n] x) => ({kind}[n] y) {{ y = Cast<to = {code}>(x) }}"
            model = Graph(text, []).model(21)
            wanted = np.concatenate([stock(model, [values[i : i + 1]])[0] for i in range(len(values))])
            graphs.append(Graph(text, [values], expected=[wanted]))
    check(*graphs, levels=levels)


ZEROS = np.array([-0.0, 0.0, -0.0, 0.0, -1, 1, -0.0, 0.0, np.nan, -0.0, -0.3, 0.3, -0.5, 0.5, -0.0], np.float32)
OTHERS = np.array([0.0, -0.0, -0.0, 0.0, -0.0, -0.0, -1, -1, -0.0, np.nan, 0.0, 0.0, 0.0, 0.0, 2], np.float32)
ONE = (
    "Relu", "Neg", "Abs", "Sqrt", "Floor", "Ceil", "Round", "Sign", "Sin", "Tanh", "Erf", "Softsign", "Elu", "Selu",
    "LeakyRelu", "Reciprocal", "Atan", "Asinh", "Tan", "Identity",
)  # fmt: skip
TWO = ("Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu", "Mod<fmod = 1>")


@pytest.mark.parametrize("levels", ["v2", "v3"])
def test_zeros_have_the_sign_that_stock_or_the_standards_evaluator_gives(levels: str) -> None:
    graphs = [Graph(f"(float[n] x) => (float[n] y) {{ y = {op}(x) }}", [ZEROS]) for op in ONE]
    graphs += [Graph(f"(float[n] x, float[n] w) => (float[n] y) {{ y = {op}(x, w) }}", [ZEROS, OTHERS]) for op in TWO]
    graphs += [
        Graph(f"(float[n] x) => (float[n] y) <float f = {{{value}}}> {{ y = {op}(x, f) }}", [ZEROS])
        for op in ("Add", "Sub", "Mul", "Div")
        for value in (2.0, -1.0, 3.0)
    ]
    graphs.append(Graph("(float[n] x) => (float[n] y) <int64 a = {0}> { y = CumSum(x, a) }", [ZEROS[:4]]))
    models = [g.model(21) for g in graphs]
    with smelt.compile(merge(models), force=True, levels=levels, verify=False, threads=1) as compiled:
        found = split(models, compiled.run(feeds_of(models, [g.inputs for g in graphs])))
    for graph, model, (ours,) in zip(graphs, models, found, strict=True):
        with np.errstate(all="ignore"):
            feeds = dict(zip([i.name for i in model.graph.input], graph.inputs, strict=True))
            (standard,) = ReferenceEvaluator(model).run(None, feeds)
        (theirs,) = stock(model, graph.inputs)
        zero = theirs == 0
        assert ((ours == 0) == zero).all(), graph.text
        alike = (np.signbit(ours) == np.signbit(standard)) | (np.signbit(ours) == np.signbit(theirs))
        assert alike[zero].all(), f"{graph.text}: {ours} expected {standard} or {theirs}"
