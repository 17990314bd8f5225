"""Kernels of your own in an ONNX model: an activation that is fused, and a sampling step over whole tensors.

    python examples/own_kernels.py

Both are plain C with a reference in numpy. smelt compiles the model, verifies it against the references, and gives an
artifact that stock ONNX Runtime runs without smelt.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import smelt


@smelt.kernel(
    "example::Snake",
    """
float snake(float x, float alpha) {
  float s = sinf(alpha * x);
  return x + s * s / alpha;
}
""",
)
def snake(x, alpha=1.0):
    return x + np.sin(alpha * x) ** 2 / alpha


@smelt.kernel(
    "example::Sample",
    """
/* The token whose share of exp(logits / temperature) holds the number u of [0, 1). */
void sample(const smelt_array *logits, const smelt_array *u, smelt_array *token, float temperature) {
  const int64_t n = logits->shape[logits->rank - 1];
  for (int64_t row = 0; row < token->size; row++) {
    const float *x = (const float *)logits->data + row * n;
    double top = x[0], total = 0;
    for (int64_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) total += exp((x[i] - top) / temperature);
    double left = ((const float *)u->data)[row] * total;
    int64_t found = 0;
    while (found < n - 1 && (left -= exp((x[found] - top) / temperature)) >= 0) found++;
    ((int64_t *)token->data)[row] = found;
  }
}
""",
    shape=lambda _logits, u, **_attributes: u,
    dtypes="i64",
)
def sample(logits, u, temperature=1.0):
    powers = np.exp((logits.astype(np.float64) - logits.max(-1, keepdims=True)) / temperature)
    shares = np.cumsum(powers, -1)
    return np.minimum((shares <= u[..., None] * shares[..., -1:]).sum(-1), logits.shape[-1] - 1).astype(np.int64)


def model():
    """Linear, Snake, Linear, Sample."""
    rng = np.random.default_rng(0)
    weights = {"a": rng.standard_normal((16, 64)) / 4, "b": rng.standard_normal((64, 100)) / 8}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Snake", ["h"], ["s"], domain="example", alpha=2.0),
        helper.make_node("MatMul", ["s", "b"], ["logits"]),
        helper.make_node("Sample", ["logits", "u"], ["token"], domain="example", temperature=0.7),
    ]
    graph = helper.make_graph(
        nodes,
        "own_kernels",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 16]),
            helper.make_tensor_value_info("u", TensorProto.FLOAT, ["rows"]),
        ],
        [helper.make_tensor_value_info("token", TensorProto.INT64, ["rows"])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), weights


def main() -> None:
    proto, weights = model()
    rng = np.random.default_rng(1)
    x, u = rng.standard_normal((8, 16)).astype(np.float32), rng.random(8).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, smelt.compile(proto, Path(folder) / "artifact") as compiled:
        (token,) = compiled.run({"x": x, "u": u})
        print(compiled)
    wanted = sample(snake(x @ weights["a"], 2.0) @ weights["b"], u, 0.7)
    print("tokens   ", token)
    print("reference", wanted)
    assert (token == wanted).all()


if __name__ == "__main__":
    main()
