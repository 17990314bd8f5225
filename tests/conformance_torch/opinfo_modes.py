"""The ways a sample can be run.

Input: a Sample. Output: what it returned and the nodes that stayed in torch, each with its reason. Invariant: a mode
raises what the compiler under test raises; it never falls back by itself, except where the compiler says it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from opinfo_samples import Sample
from torch.utils import _pytree as pytree


@dataclass
class Outcome:
    value: Any = None
    fallback_nodes: list[str] = field(default_factory=list)


def eager(sample: Sample) -> Outcome:
    arguments, keywords = sample.fresh()
    return Outcome(sample.function(*arguments, **keywords))


def in_double(sample: Sample) -> Sample:
    """The same call on float64."""
    arguments, keywords = sample.in_double()
    return Sample(sample.function, arguments, keywords)


def reference_of(mode: str) -> Callable[[Sample], Outcome]:
    """What a mode is compared with."""
    return eager_gradients if mode == "gradients" else eager


def aot_eager(sample: Sample) -> Outcome:
    return Outcome(_compiled(sample, "aot_eager"))


def smelt(sample: Sample) -> Outcome:
    """`torch.compile(backend="smelt")`, with ONNX Runtime's own kernels."""
    return _by_backend(sample, kernels=False)


def kernels(sample: Sample) -> Outcome:
    """`torch.compile(backend="smelt")`, with generated kernels wherever they can be made."""
    return _by_backend(sample, kernels=True)


def _by_backend(sample: Sample, **options: Any) -> Outcome:
    from smelt.frontends.torch_compile import Listening, smelt_backend

    with Listening() as record:
        value = _compiled(sample, smelt_backend, options=options)
    left = [f"{target}: {reason}" for target, reason in record.fallback_nodes]
    return Outcome(value, left + [f"fallback: {text}" for text in record.fallbacks])


def plain(sample: Sample) -> Outcome:
    """The exporter and ONNX Runtime alone: no pass, no kernel, no partition. A graph is all in or all out."""
    from torch._dynamo.backends.common import aot_autograd

    outcome = Outcome()
    backend = aot_autograd(fw_compiler=lambda gm, _: _plain_compiler(gm, outcome.fallback_nodes))
    outcome.value = _compiled(sample, backend)
    return outcome


def traced(sample: Sample) -> Outcome:
    """As `plain`, but traced by AOTAutograd alone: faster than Dynamo, for work on the exporter."""
    outcome = Outcome()
    arguments, keywords = sample.fresh()
    outcome.value = _ahead_of_time(sample.function, outcome.fallback_nodes)(*arguments, **keywords)
    return outcome


def gradients(sample: Sample) -> Outcome:
    """Forward and backward as `traced`: the gradients of a weighted sum of the results."""
    outcome = Outcome()
    outcome.value = _gradients(_ahead_of_time(sample.function, outcome.fallback_nodes), *sample.differentiable())
    return outcome


def aot_gradients(sample: Sample) -> Outcome:
    call = torch.compile(sample.function, backend="aot_eager", fullgraph=True, dynamic=False)
    torch._dynamo.reset()
    return Outcome(_gradients(call, *sample.differentiable()))


def eager_gradients(sample: Sample) -> Outcome:
    return Outcome(_gradients(sample.function, *sample.differentiable()))


def _gradients(call: Callable[..., Any], arguments: Any, keywords: Any) -> list[Any]:
    inputs = [leaf for leaf in pytree.tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
    inputs = [leaf for leaf in inputs if leaf.requires_grad]
    with torch.enable_grad():
        results = pytree.tree_leaves(call(*arguments, **keywords))
        parts = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad and r.is_floating_point()]
        if not parts:
            return []
        total = sum((r * _weights(r)).sum() for r in parts)
        return list(torch.autograd.grad(total, inputs, allow_unused=True))


def _weights(result: torch.Tensor) -> torch.Tensor:
    """No two alike, so that a gradient that went to the wrong place is seen."""
    count = torch.arange(1, result.numel() + 1, dtype=result.dtype)
    return (count * 0.37).cos().reshape(result.shape)


def _ahead_of_time(function: Callable[..., Any], left: list[str]) -> Callable[..., Any]:
    """`function` with its forward and backward graphs in ONNX Runtime."""
    from functorch.compile import aot_function

    def call(*arguments: Any, **keywords: Any) -> Any:
        leaves, tree = pytree.tree_flatten((arguments, keywords))
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        layout: list[Any] = []

        def inner(*tensors: torch.Tensor) -> list[Any]:
            given = [*leaves]
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            inner_arguments, inner_keywords = pytree.tree_unflatten(given, tree)
            flat, spec = pytree.tree_flatten(function(*inner_arguments, **inner_keywords))
            layout[:] = [spec]
            return flat

        def compiler(gm: Any, _: Any) -> Any:
            return _plain_compiler(gm, left)

        results = aot_function(inner, fw_compiler=compiler, bw_compiler=compiler)(*[leaves[p] for p in places])
        return pytree.tree_unflatten(list(results), layout[0])

    return call


def torch_onnx(sample: Sample) -> Outcome:
    """torch.onnx's exporter and ONNX Runtime."""
    arguments, keywords = sample.fresh()
    program = torch.onnx.export(_Call(sample.function), arguments, kwargs=keywords, dynamo=True, verbose=False)
    assert program is not None
    values = program(*arguments, **keywords)
    return Outcome(values[0] if len(values) == 1 else list(values))


MODES: dict[str, Callable[[Sample], Outcome]] = {
    "smelt": smelt, "kernels": kernels, "plain": plain, "traced": traced, "gradients": gradients,
    "torch_onnx": torch_onnx, "aot_eager": aot_eager,
}  # fmt: skip


class _Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)


def _compiled(sample: Sample, backend: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    arguments, keywords = sample.fresh()
    function = sample.function
    call = torch.compile(lambda a, k: function(*a, **k), backend=backend, fullgraph=True, dynamic=False, **options)
    return call(arguments, keywords)


def _plain_compiler(gm: torch.fx.GraphModule, left: list[str]) -> Callable[..., Any]:
    from functorch.compile import make_boxed_func

    from smelt.base import ExportError
    from smelt.export import reason_against, translate

    try:
        translation = translate(gm)
    except ExportError as error:
        reasons = {str(node.target): reason_against(node) for node in gm.graph.nodes}
        left += [f"{target}: {reason}" for target, reason in reasons.items() if reason] or [str(error)]
        return make_boxed_func(gm)
    outputs = next(node for node in gm.graph.nodes if node.op == "output").args[0]
    metas = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in outputs]
    return make_boxed_func(_Program(translation, metas))


class _Program:
    """A translation as a function of torch tensors."""

    def __init__(self, translation: Any, metas: Sequence[Any]) -> None:
        import onnx_ir
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.translation, self.metas = translation, metas
        self.session: Any = None  # a graph that only hands inputs through has nothing to run
        if translation.model.graph.outputs:
            data = onnx_ir.to_proto(translation.model).SerializeToString()
            self.session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        fed = {i.name for i in self.translation.model.graph.inputs}
        slots = self.translation.inputs
        feeds = {s.name: a for s, a in zip(slots, arguments, strict=True) if s.name in fed}
        results = self._run(feeds) if self.session is not None else []
        pairs = zip(self.translation.outputs, self.metas, strict=True)
        return [_result(slot, meta, results, arguments) for slot, meta in pairs]

    def _run(self, feeds: dict[str, Any]) -> list[Any]:
        """By numpy, or through DLPack where numpy has no such type."""
        types = [value.type for value in (*self.session.get_inputs(), *self.session.get_outputs())]
        if "tensor(bfloat16)" not in types:
            return self.session.run(None, {name: _array(value) for name, value in feeds.items()})
        given = {name: _ort_value(value) for name, value in feeds.items()}
        return [_from_ort_value(value) for value in self.session.run_with_ort_values(None, given)]


def _ort_value(value: Any) -> Any:
    import onnx
    import onnxruntime

    if not isinstance(value, torch.Tensor) or value.dtype != torch.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(_array(value))
    bits = value.detach().contiguous().view(torch.int16).numpy()
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)


def _from_ort_value(value: Any) -> Any:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    return torch.utils.dlpack.from_dlpack(value._ortvalue.to_dlpack())


def _array(value: Any) -> np.ndarray:
    """What ONNX Runtime is fed: a complex tensor is a real one with a last axis of 2."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return real.detach().resolve_neg().contiguous().numpy()


def _result(slot: Any, meta: Any, results: Sequence[Any], arguments: Sequence[Any]) -> Any:
    if slot.kind == "input":
        return arguments[slot.index]
    if slot.kind in ("constant", "none"):
        return slot.value
    found = results[slot.index]
    if slot.kind != "tensor":
        return {"int": int, "float": float, "bool": bool}[slot.kind](found)
    # A copy: results of ONNX Runtime may be read-only.
    tensor = found.clone() if isinstance(found, torch.Tensor) else torch.from_numpy(np.array(found, order="C"))
    return torch.complex(tensor[..., 0], tensor[..., 1]) if meta.is_complex() else tensor
