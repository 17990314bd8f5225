"""What only a GPU can tell: `make gpu-check` compiles small models, runs them on it and writes one report.

Input: a machine with a GPU, its driver, onnxruntime-gpu and triton. Output: `build/gpu-check.txt`: for each model
whether its results are right, its time beside the GPU provider's own nodes and beside torch's inductor, the same of
functions through `torch.compile(backend="smelt")`, and what compute-sanitizer says; a tool that is not there is named.
Invariant: a machine without a GPU gets a report that says so, and exit code 1; nothing is assumed to have passed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
EXAMPLE = Path(__file__).parents[1] / "examples" / "own_triton_kernel.py"
DEPTH, COLUMNS, BLOCK = 512, 768, 32  # of weights with 4 bits
PROVIDERS = {"cuda": "CUDAExecutionProvider", "rocm": "ROCMExecutionProvider"}


@dataclass(frozen=True)
class Case:
    """`reference` computes the output from the inputs in double precision; without one the provider's own nodes do."""

    name: str
    model: onnx.ModelProto
    reference: Callable[[dict[str, Array]], Array] | None = None
    stock: bool = True


def cases() -> Iterator[Case]:
    for name, text in MODELS.items():
        yield Case(name, onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> g {text}'))
    yield weights_of_4_bits()
    if importlib.util.find_spec("torch") is not None and importlib.util.find_spec("triton") is not None:
        yield users_kernel()


def weights_of_4_bits() -> Case:
    random = np.random.default_rng(0)
    packed = random.integers(0, 256, (COLUMNS, DEPTH // BLOCK, BLOCK // 2)).astype(np.uint8)
    scales = (random.random((COLUMNS, DEPTH // BLOCK)) / 64).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=DEPTH, N=COLUMNS, bits=4, block_size=BLOCK
    )
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in (("x", DEPTH), ("y", COLUMNS))]
    weights = [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales.reshape(-1), "s")]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    halves = np.stack([packed & 15, packed >> 4], -1).reshape(COLUMNS, DEPTH // BLOCK, BLOCK).astype(np.float64)
    plain = ((halves - 8) * scales[..., None]).reshape(COLUMNS, DEPTH)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Case("weights of 4 bits", model, lambda given: given["x"].astype(np.float64) @ plain.T)


def users_kernel() -> Case:
    """The Triton softmax of the examples."""
    spec = importlib.util.spec_from_file_location("own_triton_kernel", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # Triton reads the text of its functions
    spec.loader.exec_module(example)
    return Case(
        "a user's kernel", example.model(), lambda given: example.softmax(2 * given["x"].astype(np.float64), 0.7), False
    )


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
    results = [_checked(case, chosen.device, chosen.once) for case in (cases() if ok else ())]
    if results:
        results += [torch_checked(name, once=chosen.once) for name in MODELS]
    lines += [line for line, _ in results]
    ok = ok and all(right for _, right in results)
    if ok and not chosen.once:
        lines.append(_sanitized(chosen.device))
    chosen.report.parent.mkdir(parents=True, exist_ok=True)
    chosen.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0 if ok else 1


def _checked(case: Case, device: str, once: bool) -> tuple[str, bool]:
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = smelt.compile(case.model, device=device, force=True, output=Path(folder) / "artifact")
            return _compared(case, Path(folder) / "artifact", device, once, made)
    except Exception as error:
        return f"FAIL  {case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", False


def _compared(case: Case, folder: Path, device: str, once: bool, made: Any) -> tuple[str, bool]:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(next(folder.glob("smelt_*.so"))))
    providers = [PROVIDERS[device], "CPUExecutionProvider"]
    ours = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=providers)
    stock = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=providers) if case.stock else None
    worst, given = 0.0, dict[str, Any]()
    for rows in (1, 7, 512):
        given = {i.name: _random(i.shape, rows) for i in ours.get_inputs()}
        wanted = stock.run(None, given)[0] if case.reference is None and stock is not None else None
        wanted = case.reference(given) if wanted is None and case.reference is not None else wanted
        worst = max(worst, _error(ours.run(None, given)[0], wanted))
    head, right = _head(case.name, worst, f"{len(made.result.plan.regions)} regions")
    if once:
        return head, right
    times = [f"{_seconds(session, given) * 1e6:.0f} us" if session else "has no such op" for session in (ours, stock)]
    return f"{head}, smelt {times[0]}, provider {times[1]}, {_inductor(case.name, given)}", right


def _error(found: Array, wanted: Array | None) -> float:
    assert wanted is not None
    return float(np.max(np.abs(found - wanted) / (np.abs(wanted) + np.sqrt(np.mean(wanted**2)))))


def _head(name: str, worst: float, more: str) -> tuple[str, bool]:
    right = worst <= 1e-5
    return f"{'ok  ' if right else 'FAIL'}  {name}: error {worst:.1e}, {more}", right


def torch_checked(name: str, device: str = "cuda", once: bool = False) -> tuple[str, bool]:
    """A function through `torch.compile`, on torch's default stream and on another."""
    title = f"torch.compile, {name}"
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return f"note  {title}: torch is not installed", True
    if device == "cuda" and not torch.cuda.is_available():
        return f"note  {title}: this torch sees no GPU", True
    function = torch_function(name)
    made = torch.compile(function, backend="smelt", options={"kernels": True, "strict": True})
    session = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> g {MODELS[name]}').graph
    shapes = [[d.dim_value or 64 for d in i.type.tensor_type.shape.dim] for i in session.input]
    given = [torch.from_numpy(_random(shape, 64)).to(device) for shape in shapes]
    try:
        wanted = function(*(t.double() for t in given)).cpu().numpy()
        worst = _error(made(*given).cpu().numpy(), wanted)
        if device == "cuda":
            worst = max(worst, _error(_on_another_stream(torch, made, given), wanted))
    except Exception as error:
        return f"FAIL  {title}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", False
    head, right = _head(title, worst, "two streams" if device == "cuda" else device)
    if once or device != "cuda":
        return head, right
    own = f"smelt {_torch_seconds(torch, made, given) * 1e6:.0f} us"
    return f"{head}, {own}, {_inductor_of(torch, name, given)}", right


def _on_another_stream(torch: Any, made: Any, given: list[Any]) -> Array:
    """The result is used there right after the call, by an addition that must wait for it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = made(*(tensor + 0 for tensor in given)) + 0
    stream.synchronize()
    return found.cpu().numpy()


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
    if name not in MODELS:
        return "inductor not timed: it has no such op"
    return _inductor_of(torch, name, [torch.from_numpy(array).to("cuda") for array in given.values()])


def _inductor_of(torch: Any, name: str, tensors: list[Any]) -> str:
    torch._dynamo.reset()
    return f"inductor {_torch_seconds(torch, torch.compile(torch_function(name)), tensors) * 1e6:.0f} us"


def _torch_seconds(torch: Any, made: Any, tensors: list[Any]) -> float:
    best = float("inf")
    for _ in range(53):
        torch.cuda.synchronize()
        started = time.perf_counter()
        made(*tensors)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


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
