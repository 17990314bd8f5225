"""A Triton kernel of your own in an ONNX model: a softmax, compiled ahead of time for every GPU target.

    python examples/own_triton_kernel.py

The op has two bodies and one reference: the Triton kernel runs where onnxruntime has a GPU provider, the C text on the
CPU. Both are verified against the reference before anything is written, the kernel by Triton's interpreter. The
artifact needs neither Python, PyTorch nor Triton. Needs the extras `triton` and `kernels`, and torch, to compile.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import triton
import triton.language as tl
from onnx import TensorProto, helper

import smelt


@triton.jit
def softmax_kernel(x, y, n, temperature, block: tl.constexpr):
    start = tl.program_id(0) * n
    c = tl.arange(0, block)
    v = tl.load(x + start + c, mask=c < n, other=float("-inf")).to(tl.float32) / temperature
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + start + c, e / tl.sum(e, 0), mask=c < n)


def launch(x, temperature=1.0):
    """As it is written for PyTorch."""
    y, n = torch.empty_like(x), x.shape[-1]
    softmax_kernel[(x.numel() // n,)](x, y, n, temperature, block=triton.next_power_of_2(n))
    return y


@smelt.kernel(
    "example::Softmax",
    """
void softmax(const float *x, float *y, int64_t n, float temperature) {
  float top = -INFINITY, total = 0;
  for (int64_t i = 0; i < n; i++) top = fmaxf(top, x[i]);
  for (int64_t i = 0; i < n; i++) total += expf((x[i] - top) / temperature);
  for (int64_t i = 0; i < n; i++) y[i] = expf((x[i] - top) / temperature) / total;
}
""",
    triton=launch,
)
def softmax(x, temperature=1.0):
    e = np.exp((x - x.max(-1, keepdims=True)) / temperature)
    return e / e.sum(-1, keepdims=True)


def model():
    """Add, Softmax, for any number of rows."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"], domain="example", temperature=0.7),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 1000]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "own_triton_kernel", ends[:1], ends[1:]), opset_imports=opsets, ir_version=8
    )


def main() -> None:
    x = np.random.default_rng(0).standard_normal((8, 1000)).astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "artifact"
        made = smelt.compile(model(), folder, device="cuda")
        print(made, *made.result.findings.notes, sep="\n")
        library = next(folder.glob("smelt_*.so"))
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(library))
        wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
        providers = [one for one in wanted if one in onnxruntime.get_available_providers()]
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=providers)
        y = session.run(None, {"x": x})[0]
        error = float(np.abs(y - softmax(2 * x.astype(np.float64), 0.7)).max())
        print(f"{library.stat().st_size / 1e6:.1f} MB, ran with {providers[0]}, largest error {error:.1e}")
        assert error < 1e-6
        made.close()


if __name__ == "__main__":
    main()
