"""What only a GPU can tell: `make gpu-check` compiles small models, runs them on it and writes one report.

Input: a machine with a GPU, its driver, onnxruntime-gpu and triton. Output: `build/gpu-check.txt`: for each model
whether its results are right, its time beside the GPU provider's own nodes and beside torch's inductor, and what
compute-sanitizer says; a tool that is not there is named.
Invariant: a machine without a GPU gets a report that says so, and exit code 1; nothing is assumed to have passed.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import smelt

onnxruntime: Any = importlib.import_module("onnxruntime")  # it ships no stubs

Array = np.ndarray[Any, Any]
OPSET = 23
MODELS = {
    "silu and softmax": "(float[n,1024] x, float[1024] b) => (float[n,1024] y) "
    "{ a = Add(x, b) s = Sigmoid(a) c = Mul(a, s) y = Softmax(c) }",
    "layer norm": "(float[n,768] x, float[768] b) => (float[n,768] y) "
    "{ a = Add(x, x) y = LayerNormalization(a, b, b) }",
    "long rows": "(float[n,50000] x, float[50000] b) => (float[n,50000] y) { a = Mul(x, b) y = Softmax(a) }",
    "transpose": "(float[n,64] x, float[64] b) => (float[64,n] y) { a = Add(x, b) y = Transpose(a) }",
    "attention": "(float[2,8,n,64] q, float[2,8,n,64] k, float[2,8,n,64] v) => (float[2,8,n,64] y) "
    "{ y = Attention<is_causal = 1>(q, k, v) }",
}
PROVIDERS = {"cuda": "CUDAExecutionProvider", "rocm": "ROCMExecutionProvider"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=list(PROVIDERS), default="cuda")
    parser.add_argument("--report", type=Path, default=Path("build/gpu-check.txt"))
    parser.add_argument("--once", action="store_true", help="run each model once, as under a sanitizer")
    chosen = parser.parse_args()
    lines = [f"smelt gpu-check, onnxruntime {onnxruntime.__version__}, {chosen.device}"]
    ok = PROVIDERS[chosen.device] in onnxruntime.get_available_providers()
    if not ok:
        lines.append(
            f"FAIL  onnxruntime has no {PROVIDERS[chosen.device]}: install onnxruntime-gpu on a machine with a GPU"
        )
    for name, text in MODELS.items() if ok else ():
        line, right = _checked(name, text, chosen.device, chosen.once)
        lines.append(line)
        ok = ok and right
    if ok and not chosen.once:
        lines.append(_sanitized(chosen.device))
    chosen.report.parent.mkdir(parents=True, exist_ok=True)
    chosen.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0 if ok else 1


def _checked(name: str, text: str, device: str, once: bool) -> tuple[str, bool]:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> g {text}')
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = smelt.compile(model, device=device, force=True, output=Path(folder) / "artifact")
            return _compared(name, model, Path(folder) / "artifact", device, once, made)
    except Exception as error:
        return f"FAIL  {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", False


def _compared(name: str, model: onnx.ModelProto, folder: Path, device: str, once: bool, made: Any) -> tuple[str, bool]:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(next(folder.glob("smelt_*.so"))))
    providers = [PROVIDERS[device], "CPUExecutionProvider"]
    ours = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=providers)
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
    worst, given = 0.0, dict[str, Any]()
    for rows in (1, 7, 512):
        given = {i.name: _random(i.shape, rows) for i in ours.get_inputs()}
        wanted: Array = stock.run(None, given)[0]
        found: Array = ours.run(None, given)[0]
        worst = max(worst, float(np.max(np.abs(found - wanted) / (np.abs(wanted) + np.sqrt(np.mean(wanted**2))))))
    right = worst <= 1e-5
    head = f"{'ok  ' if right else 'FAIL'}  {name}: error {worst:.1e}, {len(made.result.plan.regions)} regions"
    if once:
        return head, right
    times = [_seconds(session, given) for session in (ours, stock)]
    others = f"smelt {times[0] * 1e6:.0f} us, provider {times[1] * 1e6:.0f} us, {_inductor(name, given)}"
    return f"{head}, {others}", right


def _random(shape: list[Any], rows: int) -> Array:
    sizes = [s if isinstance(s, int) else rows for s in shape]
    return np.random.default_rng(len(sizes)).standard_normal(sizes).astype(np.float32)


def _seconds(session: Any, given: dict[str, Any]) -> float:
    """The least of 50 calls, inputs and outputs on the device."""
    binding = session.io_binding()
    device = "cuda"
    for name, array in given.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
    binding.bind_output(session.get_outputs()[0].name, device)
    best = float("inf")
    for _ in range(50):
        started = time.perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        best = min(best, time.perf_counter() - started)
    return best


def torch_function(name: str) -> Any:
    """What a model computes, over tensors in the order of its inputs."""
    torch: Any = importlib.import_module("torch")
    function: Any = torch.nn.functional

    def silu_and_softmax(x: Any, b: Any) -> Any:
        return torch.softmax(function.silu(x + b), -1)

    def layer_norm(x: Any, b: Any) -> Any:
        return function.layer_norm(x + x, b.shape, b, b)

    def long_rows(x: Any, b: Any) -> Any:
        return torch.softmax(x * b, -1)

    def transpose(x: Any, b: Any) -> Any:
        return (x + b).T.contiguous()

    def attention(q: Any, k: Any, v: Any) -> Any:
        return function.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {
        "silu and softmax": silu_and_softmax,
        "layer norm": layer_norm,
        "long rows": long_rows,
        "transpose": transpose,
        "attention": attention,
    }[name]


def _inductor(name: str, given: dict[str, Array]) -> str:
    """Its time of the same, the least of 50 calls."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return "inductor not timed: torch is not installed"
    if not torch.cuda.is_available():
        return "inductor not timed: this torch sees no GPU"
    tensors = [torch.from_numpy(array).to("cuda") for array in given.values()]
    made = torch.compile(torch_function(name))
    best = float("inf")
    for _ in range(53):
        torch.cuda.synchronize()
        started = time.perf_counter()
        made(*tensors)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return f"inductor {best * 1e6:.0f} us"


def _sanitized(device: str) -> str:
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return "note  compute-sanitizer is not installed: accesses were not watched"
    with tempfile.TemporaryDirectory() as folder:
        command = [tool, "--error-exitcode", "9", sys.executable, __file__, "--once", "--device", device]
        done = subprocess.run([*command, "--report", f"{folder}/r.txt"], capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    return f"{'ok  ' if done.returncode == 0 else 'FAIL'}  compute-sanitizer: {last}"


if __name__ == "__main__":
    sys.exit(main())
