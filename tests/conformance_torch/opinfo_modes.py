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


@dataclass
class Outcome:
    value: Any = None
    left: list[str] = field(default_factory=list)


def eager(sample: Sample) -> Outcome:
    arguments, keywords = sample.fresh()
    return Outcome(sample.function(*arguments, **keywords))


def in_double(sample: Sample) -> Any:
    arguments, keywords = sample.in_double()
    return sample.function(*arguments, **keywords)


def aot_eager(sample: Sample) -> Outcome:
    return Outcome(_compiled(sample, "aot_eager"))


def plain(sample: Sample) -> Outcome:
    """The exporter and ONNX Runtime alone: no pass, no kernel, no partition. A graph is all in or all out."""
    from torch._dynamo.backends.common import aot_autograd

    outcome = Outcome()
    backend = aot_autograd(fw_compiler=lambda gm, _: _plain_compiler(gm, outcome.left))
    outcome.value = _compiled(sample, backend)
    return outcome


def torch_onnx(sample: Sample) -> Outcome:
    """torch.onnx's exporter and ONNX Runtime."""
    arguments, keywords = sample.fresh()
    program = torch.onnx.export(_Call(sample.function), arguments, kwargs=keywords, dynamo=True, verbose=False)
    assert program is not None
    values = program(*arguments, **keywords)
    return Outcome(values[0] if len(values) == 1 else list(values))


MODES: dict[str, Callable[[Sample], Outcome]] = {"plain": plain, "torch_onnx": torch_onnx, "aot_eager": aot_eager}


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

    from smelt.export import reason_against, translate

    for node in gm.graph.nodes:
        reason = reason_against(node) if node.op == "call_function" else None
        if reason is not None:
            left.append(f"{node.target}: {reason}")
    return make_boxed_func(gm if left else _Program(translate(gm)))


class _Program:
    """A translation as a function of torch tensors."""

    def __init__(self, translation: Any) -> None:
        import onnx_ir
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.translation = translation
        proto = onnx_ir.to_proto(translation.model)
        self.session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        self.names = {i.name for i in self.session.get_inputs()}

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        slots = self.translation.inputs
        feeds = {s.name: _array(a) for s, a in zip(slots, arguments, strict=True) if s.name in self.names}
        results = self.session.run(None, feeds)
        return [_result(slot, results, arguments) for slot in self.translation.outputs]


def _array(value: Any) -> np.ndarray:
    return value.detach().contiguous().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _result(slot: Any, results: Sequence[Any], arguments: Sequence[Any]) -> Any:
    raise NotImplementedError
