"""The ways to run a model that are compared, each opened in a process of its own.

Input: a `Job`: model file, feeds, number of threads. Output: a `Loaded` that runs once per call and gives its outputs.
Invariant: every peer gets the same number of threads, keeps its defaults otherwise, computes in the types of its file
(in float32 where they are that), and has its inputs in place before the clock starts; a peer's packages are imported
only when it is opened.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

Array = np.ndarray[Any, Any]
_BF16: Final = "-bf16"  # peers that compute in it, whatever the file holds


@dataclass(frozen=True)
class Job:
    """What a worker opens. `model` is a file, or smelt's artifact folder; `module` names a torch module, if any."""

    peer: str
    model: Path
    feeds: Path
    threads: int
    module: str = ""

    @property
    def compiles(self) -> bool:
        """Whether opening takes long, and may be done beside others."""
        return PEERS[self.peer].needs_module


@dataclass(frozen=True)
class Loaded:
    run: Callable[[], object]
    outputs: Callable[[], list[Array]]


@dataclass(frozen=True)
class Peer:
    """`packages` must be installed; `needs_module` peers run a torch module and not the file."""

    name: str
    about: str
    open: Callable[[Job], Loaded]
    packages: tuple[str, ...] = ("onnxruntime",)
    needs_module: bool = False

    @property
    def installed(self) -> bool:
        return all(importlib.util.find_spec(package) is not None for package in self.packages)


def read_feeds(path: Path) -> dict[str, Array]:
    """Arrays by name. They are numbered in the file, since a name may be anything."""
    with np.load(path, allow_pickle=False) as stored:
        names = cast("list[str]", json.loads(str(stored["names"])))
        return {name: stored[f"feed{place}"] for place, name in enumerate(names)}


def write_feeds(path: Path, feeds: Mapping[str, Array]) -> None:
    arrays = {f"feed{place}": array for place, array in enumerate(feeds.values())}
    np.savez(path, names=np.array(json.dumps(list(feeds))), **cast("Any", arrays))


# ONNX Runtime, alone and with artifacts


def _open_ort(job: Job) -> Loaded:
    from smelt.runtime import SessionSettings, session_for

    return _bound(session_for(job.model, None, SessionSettings(threads=job.threads)), job)


def _open_smelt(job: Job) -> Loaded:
    from smelt.runtime import Executable, SessionSettings

    return _bound(Executable.open(job.model, SessionSettings(threads=job.threads)).session, job)


def _bound(session: Any, job: Job) -> Loaded:
    """Inputs bound once, outputs left in the session's own memory: the model is timed, not Python's arrays."""
    import onnxruntime

    binding = session.io_binding()
    for name, array in read_feeds(job.feeds).items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C")))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")

    def run() -> None:
        session.run_with_iobinding(binding)

    def outputs() -> list[Array]:
        return cast("list[Array]", binding.copy_outputs_to_cpu())

    return Loaded(run, outputs)


def fuse_with_ort(model: Path, output: Path, fusion: str, module: str) -> None:
    """Rewrite a transformer by onnxruntime's own optimizer.

    It finds heads and width by itself in BERTs alone, and fails on some graphs of other kinds: then as a BERT.
    """
    from onnxruntime.transformers.optimizer import optimize_model  # pyright: ignore[reportUnknownVariableType]

    from smelt.bench.modules import attention_sizes_of

    optimize = cast("Any", optimize_model)
    heads, width = (0, 0) if fusion == "bert" else attention_sizes_of(module)
    try:
        fused = optimize(str(model), model_type=fusion, num_heads=heads, hidden_size=width, opt_level=1, use_gpu=False)
    except Exception:
        fused = optimize(str(model), model_type="bert", num_heads=0, hidden_size=0, opt_level=1, use_gpu=False)
    fused.save_model_to_file(str(output), use_external_data_format=True)


# OpenVINO


def _open_openvino(job: Job) -> Loaded:
    import openvino

    core = cast("Any", openvino).Core()
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if job.peer.endswith(_BF16) else "f32",
    }
    compiled = core.compile_model(core.read_model(str(job.model)), "CPU", settings)
    request = compiled.create_infer_request()
    for name, array in read_feeds(job.feeds).items():
        request.set_tensor(name, cast("Any", openvino).Tensor(np.asarray(array, order="C")))

    def outputs() -> list[Array]:
        return [np.array(request.get_output_tensor(place).data) for place in range(len(compiled.outputs))]

    return Loaded(request.infer, outputs)


# torch


def _open_torch(job: Job) -> Loaded:
    """Plain, or through torch.compile with the settings that the peer's name stands for."""
    import torch

    from smelt.bench.modules import module_of

    library = cast("Any", torch)
    library.set_num_threads(job.threads)
    feeds = read_feeds(job.feeds)
    module = module_of(job.module, job.model)
    if job.peer.endswith(_BF16):
        module = module.to(library.bfloat16)
    if job.peer in _INDUCTOR:
        module = _compiled(library, module, _INDUCTOR[job.peer])
    values = [library.from_numpy(np.asarray(array, order="C")) for array in feeds.values()]
    if job.peer.endswith(_BF16):
        values = [value.to(library.bfloat16) if value.is_floating_point() else value for value in values]
    last: list[Any] = []

    def run() -> None:
        with library.no_grad():
            last[:] = [module(*values)]

    def outputs() -> list[Array]:
        several = isinstance(last[0], (tuple, list))
        return [
            np.asarray(_plain(library, tensor).numpy()) for tensor in cast("list[Any]", last[0] if several else last)
        ]

    return Loaded(run, outputs)


def _plain(library: Any, tensor: Any) -> Any:
    return tensor.float() if tensor.dtype == library.bfloat16 else tensor


# On CPUs, templates for products are tried only on frozen weights.
_INDUCTOR: Final[dict[str, dict[str, bool]]] = {
    "inductor": {},
    "inductor-freezing": {"freezing": True},
    "inductor-max": {"freezing": True, "max_autotune": True},
    "inductor-bf16": {"freezing": True},
}


def _compiled(library: Any, module: Any, settings: Mapping[str, bool]) -> Any:
    import torch._inductor.config as inductor

    for name, value in settings.items():
        setattr(inductor, name, value)
    return library.compile(module)


_ALL: Final = (
    Peer("ort", "stock ONNX Runtime, optimizers on", _open_ort),
    Peer("smelt", "this project's artifact in stock ONNX Runtime", _open_smelt),
    Peer("ort-fp32", "stock ONNX Runtime on the float32 file of a quantized model", _open_ort),
    Peer("smelt-fp32", "this project's artifact of that file", _open_smelt),
    Peer("ort-fused", "ONNX Runtime after its transformers optimizer", _open_ort, ("onnxruntime", "onnx", "sympy")),
    Peer("openvino", "OpenVINO, latency hint, f32", _open_openvino, ("openvino",)),
    Peer("openvino-bf16", "OpenVINO, latency hint, bf16", _open_openvino, ("openvino",)),
    Peer(
        "inductor-bf16", "torch.compile of the module in bfloat16, freezing", _open_torch, ("torch",), needs_module=True
    ),
    Peer("eager", "torch without compilation", _open_torch, ("torch",), needs_module=True),
    Peer("inductor", "torch.compile", _open_torch, ("torch",), needs_module=True),
    Peer("inductor-freezing", "torch.compile, weights frozen", _open_torch, ("torch",), needs_module=True),
    Peer("inductor-max", "torch.compile, weights frozen, max-autotune", _open_torch, ("torch",), needs_module=True),
)
PEERS: Final[dict[str, Peer]] = {peer.name: peer for peer in _ALL}
