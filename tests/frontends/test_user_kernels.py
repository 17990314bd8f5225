"""Kernels of a user's own through every way in, verified against the user's reference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.base.errors import KernelError

X = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32)
W = np.random.default_rng(1).random(33).astype(np.float32)
SNAKE = "float snake(float x, float alpha) { float s = sinf(alpha * x); return x + s * s / alpha; }"
RMS = """
void rms(const float *x, const float *w, float *y, int64_t n, float eps) {
  float total = 0;
  for (int64_t i = 0; i < n; i++) total += x[i] * x[i];
  const float scale = 1.0f / sqrtf(total / n + eps);
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
}
"""
DECAY = """
void decay(const float *x, float *y, int64_t n, float by) {
  float state = 0;
  for (int64_t i = 0; i < n; i++) { state = by * state + x[i]; y[i] = state; }
}
"""
LARGEST = """
#include <stddef.h>
static int64_t largest(const float *x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) if (x[i] > x[best]) best = i;
  return best;
}
void largest_of_rows(const smelt_array *x, smelt_array *y) {
  const int64_t n = x->shape[x->rank - 1];
  for (int64_t r = 0; r < y->size; r++) ((int64_t *)y->data)[r] = largest((const float *)x->data + r * n, n);
}
"""


def snake(x: Any, alpha: float = 1.0) -> Any:
    return x + np.sin(alpha * x) ** 2 / alpha


def rms(x: Any, w: Any, eps: float = 1e-6) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def decay(x: Any, by: float = 0.5) -> Any:
    y = np.zeros_like(x)
    for i in range(x.shape[-1]):
        y[..., i] = x[..., i] + (by * y[..., i - 1] if i else 0)
    return y


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    for name in ("Snake", "Rms", "Decay", "Largest"):
        smelt.forget_kernel(f"my.domain::{name}")


def model(op: str, weights: dict[str, Any] | None = None, result: int = TensorProto.FLOAT, **attributes: Any) -> Any:
    """Neg, the op, and Tanh where it gives floats."""
    constants = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    own = helper.make_node(op, ["n", *(weights or {})], ["o"], domain="my.domain", **attributes)
    floats = result == TensorProto.FLOAT
    nodes = [helper.make_node("Neg", ["x"], ["n"]), own, helper.make_node("Tanh" if floats else "Abs", ["o"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", result, None)], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(proto: Any, x: Any = X) -> tuple[Any, Any]:
    """The output, and how many kernels the region has."""
    with smelt.compile(proto, levels="v2") as compiled:
        assert compiled.coverage.in_kernels == 3
        assert compiled.result.findings is not None
        assert any(not verdict.rejected for verdict in compiled.result.findings.verdicts)
        assert compiled.result.generated is not None
        return compiled.run({"x": x})[0], len(compiled.result.generated.codes[0].info)


def test_an_element_function_is_fused_with_its_neighbours() -> None:
    smelt.kernel("my.domain::Snake", SNAKE)(snake)
    y, kernels = run(model("Snake", alpha=2.0))
    np.testing.assert_allclose(y, np.tanh(snake(-X, 2.0)), atol=1e-6)
    assert kernels == 1


def test_a_row_function_is_fused_with_its_neighbours() -> None:
    smelt.kernel("my.domain::Rms", RMS)(rms)
    y, kernels = run(model("Rms", {"w": W}))
    np.testing.assert_allclose(y, np.tanh(rms(-X, W)), atol=1e-6)
    assert kernels == 1


def test_a_row_that_carries_state_is_called_as_it_is() -> None:
    smelt.kernel("my.domain::Decay", DECAY)(decay)
    y, kernels = run(model("Decay", by=0.25))
    np.testing.assert_allclose(y, np.tanh(decay(-X, 0.25)), atol=1e-6)
    assert kernels == 3


def test_a_function_over_tensors_has_shapes_and_types_of_its_own() -> None:
    smelt.kernel("my.domain::Largest", LARGEST, shape=lambda x: x[:-1], dtypes="i64")(lambda x: np.argmax(x, -1))
    y, _ = run(model("Largest", result=TensorProto.INT64))
    np.testing.assert_array_equal(y, np.argmax(-X, -1))


def test_a_kernel_that_differs_from_its_reference_is_refused(tmp_path: Path) -> None:
    smelt.kernel("my.domain::Snake", SNAKE, reference=lambda x, alpha=1.0: snake(x, alpha) + 1e-3)
    with pytest.raises(KernelError, match=r"my.domain::Snake cannot run in this model: verification failed"):
        smelt.compile(model("Snake"), tmp_path / "out", levels="v2")
    assert not (tmp_path / "out").exists()


def test_c_that_does_not_compile_is_told_with_the_users_line() -> None:
    broken = LARGEST.replace("int64_t best = 0;", "int64_t best = nowhere;")
    smelt.kernel("my.domain::Largest", broken, shape=lambda x: x[:-1], dtypes="i64")(lambda x: np.argmax(x, -1))
    with pytest.raises(KernelError, match=r"my.domain::Largest:4.*nowhere"):
        smelt.compile(model("Largest", result=TensorProto.INT64), levels="v2")


def test_a_kernel_that_is_not_deterministic_is_refused() -> None:
    counting = """
    void decay(const float *x, float *y, int64_t n, float by) {
      static int calls = 0;
      calls++;
      for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i] + calls * by;
    }
    """
    smelt.kernel("my.domain::Decay", counting)(lambda x, by=0.5: x[..., ::-1] + by)
    with pytest.raises(KernelError, match="verification failed"):
        smelt.compile(model("Decay"), levels="v2")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": lambda x: x[5], "dtypes": "i64"}, "shape rule of kernel my.domain::Largest failed: IndexError"),
        ({"shape": lambda x: [x, x], "dtypes": "i64"}, "1 outputs in C, 2 shapes"),
        ({"shape": lambda x: x, "dtypes": "i64"}, "cannot run in this model"),
        ({"dtypes": "i65"}, "no type 'i65'"),
    ],
)
def test_shapes_and_types_that_do_not_fit(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(KernelError, match=said):
        smelt.kernel("my.domain::Largest", LARGEST, **changes)(lambda x: np.argmax(x, -1))
        smelt.compile(model("Largest", result=TensorProto.INT64), levels="v2")


def test_a_reference_that_raises_is_told() -> None:
    def broken(x: Any, alpha: float = 1.0) -> Any:
        raise ValueError(f"no {alpha} of {x.shape}")

    smelt.kernel("my.domain::Snake", SNAKE)(broken)
    with pytest.raises(KernelError, match="ValueError: no"):
        smelt.compile(model("Snake"), levels="v2")


def test_halves_and_doubles_are_taken_by_the_same_text() -> None:
    smelt.kernel("my.domain::Snake", SNAKE)(snake)
    for kind, dtype, near in ((TensorProto.FLOAT16, np.float16, 2e-3), (TensorProto.DOUBLE, np.float64, 1e-12)):
        proto = model("Snake", alpha=2.0)
        for value in (*proto.graph.input, *proto.graph.output):
            value.type.tensor_type.elem_type = kind
        y, _ = run(proto, X.astype(dtype))
        assert y.dtype == dtype
        np.testing.assert_allclose(y, np.tanh(snake(-X.astype(dtype).astype(np.float64), 2.0)), atol=near)


def test_the_command_line_takes_a_file_of_kernels(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import numpy as np, smelt\n\n@smelt.kernel('my.domain::Snake', {SNAKE!r})\n"
        "def snake(x, alpha=1.0):\n    return x + np.sin(alpha * x) ** 2 / alpha\n"
    )
    onnx.save(model("Snake"), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "smelt", "compile", "m.onnx", "-q", "--levels", "v2", "--kernels"]
    done = subprocess.run([*command, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (y,) = smelt.load(tmp_path / "m.smelt").run({"x": X})
    np.testing.assert_allclose(y, np.tanh(snake(-X)), atol=1e-6)
    missing = subprocess.run([*command, "no.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert missing.returncode != 0
    assert "no.py" in missing.stderr
    assert "SM-KERNEL-004" in missing.stderr


def test_ops_of_another_library_stay_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other library is an artifact's: an op that this process has no kernel for."""
    first = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])],
    )  # fmt: skip
    smelt.compile(
        helper.make_model(first, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "other",
        levels="v2", force=True,
    ).close()  # fmt: skip
    other = onnx.load(tmp_path / "other" / "model.onnx")
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Neg", ["e"], ["n"]),
        helper.make_node(other.graph.node[0].op_type, ["n"], ["o"], domain=other.graph.node[0].domain),
        helper.make_node("Tanh", ["o"], ["t"]),
        helper.make_node("Abs", ["t"], ["y"]),
    ]
    told = helper.make_tensor_value_info("o", TensorProto.FLOAT, ["a", "b"])
    graph = helper.make_graph(nodes, "g", list(first.input), list(first.output), value_info=[told])
    proto = helper.make_model(graph, opset_imports=list(other.opset_import), ir_version=8)
    monkeypatch.setenv("SMELT_CUSTOM_OPS", str(next((tmp_path / "other").glob("*.so"))))
    with smelt.compile(proto, levels="v2", force=True) as compiled:
        assert compiled.coverage.in_kernels == 4
        (y,) = compiled.run({"x": X})
    n = -np.exp(X.astype(np.float64))
    np.testing.assert_allclose(y, np.abs(np.tanh(n / (1 + np.exp(-n)))), atol=1e-6)
