"""C of a user's own: what is read, what is refused and why, and that its statements mean what C means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smelt
from smelt.base.errors import KernelError
from smelt.ir.kernel import Buffer, Builder, ix
from smelt.ir.kernel.interpret import interpret
from smelt.ops.user.c_text import functions_of, signature_of
from smelt.ops.user.evaluate import Evaluator, block_of
from smelt.ops.user.rows import NotARowError, RowEvaluator
from smelt.ops.user.values import Arithmetic

X = np.array([-2.5, -1.0, -0.0, 0.0, 0.3, 1.0, 7.25, np.inf, -np.inf, np.nan], np.float32)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    for name in ("my.domain::K", "my.domain::L"):
        smelt.forget_kernel(name)


def element(text: str, *arrays: np.ndarray) -> np.ndarray:
    """The function over each element, by numpy, from the tensors that its text is turned into."""
    k = Builder()
    buffers = [Buffer(f"x{place}", "f32", tuple(ix(s) for s in a.shape)) for place, a in enumerate(arrays)]
    arithmetic = Arithmetic(k, "f32")
    functions = functions_of("k", text)
    made = Evaluator(functions, arithmetic).function(signature_of("k", text).name, [k.stored(b) for b in buffers])
    assert not isinstance(made, (bool, int, float))
    return interpret(made, {buffer.name: array for buffer, array in zip(buffers, arrays, strict=True)})


def row(text: str, x: np.ndarray) -> np.ndarray:
    k = Builder()
    buffer = Buffer("x", "f32", tuple(ix(s) for s in x.shape))
    functions = functions_of("k", text)
    run = RowEvaluator(functions, Arithmetic(k, "f32"), ix(x.shape[-1]), {"x": k.stored(buffer)})
    run.run(block_of(functions.by_name[signature_of("k", text).name].body), {"n": x.shape[-1]})
    return interpret(run.arrays["y"], {"x": x})


def test_branches_locals_loops_and_helpers_are_as_in_c() -> None:
    text = """
    static float square(float v) { return v * v; }
    float f(float x) {
      float total = 0.0f;            // a sum of three terms
      for (int i = 1; i <= 3; i++) total += square(x) / i;
      if (x < 0) { total = -total; } else if (x > 5) return 5.0f;
      return x == 0 ? 1.0f : total;
    }
    """
    wanted = np.where(X > 5, 5.0, np.where(X == 0, 1.0, X * X * (1 + 1 / 2 + 1 / 3) * np.where(X < 0, -1, 1)))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(element(text, X), wanted.astype(np.float32), rtol=1e-6)


def test_fmax_and_fmin_ignore_nan_as_c_does() -> None:
    np.testing.assert_array_equal(
        element("float f(float x) { return fmaxf(x, 0.5f); }", X), np.fmax(X, np.float32(0.5))
    )
    np.testing.assert_array_equal(
        element("float f(float x) { return fminf(0.5f, x); }", X), np.fmin(X, np.float32(0.5))
    )


def test_integers_divide_towards_zero_and_casts_truncate() -> None:
    x = np.array([-7.9, -1.5, 0.0, 3.9, 8.0], np.float32)
    text = "float f(float x) { int64_t i = (int64_t)x; return i / 2 + (i % 2) * 10 + (7 / 2); }"
    i = np.trunc(x)
    np.testing.assert_array_equal(element(text, x), np.trunc(i / 2) + np.fmod(i, 2) * 10 + 3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=9), st.integers(0, 3))
def test_rows_reduce_and_map(values: list[float], kind: int) -> None:
    x = np.array([values, values[::-1]], np.float32)
    loop, wanted = [
        ("float a = 2; for (int64_t i = 0; i < n; i++) a += x[i];", 2 + x.sum(-1, keepdims=True, dtype=np.float64)),
        ("float a = -INFINITY; for (int64_t i = 0; i < n; i++) if (x[i] > a) a = x[i];", x.max(-1, keepdims=True)),
        ("float a = 9; for (int64_t i = 0; i < n; i++) a = a < x[i] ? a : x[i];",
         np.minimum(9, x.min(-1, keepdims=True))),
        ("float a = 0; for (int64_t i = 0; i < n; i++) if (x[i] > 0) a -= x[i];",
         -np.where(x > 0, x, 0).sum(-1, keepdims=True, dtype=np.float64)),
    ][kind]  # fmt: skip
    text = f"void f(const float *x, float *y, int64_t n) {{ {loop} for (int64_t i = 0; i < n; i++) y[i] = x[i] - a; }}"
    np.testing.assert_allclose(row(text, x), x - wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "body",
    [
        "float s = 0; for (int64_t i = 0; i < n; i++) { s += x[i]; y[i] = s; }",  # a running sum
        "float s = 0; for (int64_t i = 0; i < n; i++) { y[i] = s; s += x[i]; }",
        "float s = 0; for (int64_t i = 0; i < n; i++) { s += x[i]; s *= 2; } y[0] = s;",
        "for (int64_t i = 1; i < n; i++) y[i] = x[i - 1];",
        "for (int64_t i = 0; i < n; i++) y[n - 1 - i] = x[i];",
        "for (int64_t i = 0; i < n; i++) { y[i] = x[i]; if (y[0] > 0) y[i] = 0; }",
        "for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) y[i] = x[j];",
    ],
)
def test_a_row_that_carries_state_is_never_guessed(body: str) -> None:
    with pytest.raises(NotARowError):
        row(f"void f(const float *x, float *y, int64_t n) {{ {body} }}", np.ones((2, 3), np.float32))


def reject(text: str, said: str, reference: object = lambda x: x, name: str = "my.domain::K") -> None:
    with pytest.raises(KernelError, match=said):
        smelt.kernel(name, text, reference=reference)  # type: ignore[arg-type]
        from smelt.ops.user import find_user_kernel

        kernel = find_user_kernel(*name.split("::"))
        assert kernel is not None
        element(text, X)


def test_errors_name_kernel_and_line() -> None:
    reject("float f(float x) {\n  return x +;\n}", r"my.domain::K.*line 2")
    reject("float f(float x) {\n  float y = x;\n  return mystery(y);\n}", "line 3: a call of mystery")
    reject("float f(float x) {\n  while (x > 0) x -= 1;\n  return x;\n}", "line 2: a statement of the kind While")
    reject("float f(float x) { for (int i = 0; i < x; i++) x += 1; return x; }", "depends on the data")
    reject("float f(float x) { return f(x); }", "calls itself")
    reject("float f(float x) { if (x > 0) return x; }", "returns nothing")


def test_what_cannot_be_registered() -> None:
    good = "float f(float x) { return x; }"
    reject(good, "no name for a kernel", name="Snake")
    reject(good, "belongs to ONNX", name="com.microsoft::K")
    reject("int f;", "defines no function")
    reject(good, "takes x, the reference a, x", reference=lambda x, a=1.0: x)
    reject("struct s f(float x) { return x; }", "cannot be read|returns its result")
    reject("void f(const float *x, float *y) { }", "parameter int64_t n")
    reject("void f(const float *x, int64_t n) { }", "no parameter is written")
    reject(good, "default of a is no number", reference=lambda x, a="z": x)
    reject(good, "names each", reference=lambda *x: x)
    smelt.kernel("my.domain::K", good, reference=lambda x: x)
    reject(good, "already")
    smelt.kernel("my.domain::K", good, reference=lambda x: x, replace=True)
