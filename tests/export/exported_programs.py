"""Running exported programs in ONNX Runtime, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from smelt.export import ExportOptions, Translation, translate


def traced(function: Callable[..., Any], *inputs: Any, mode: str = "symbolic") -> torch.fx.GraphModule:
    """The functional ATen graph of a function."""
    return make_fx(torch.func.functionalize(function, remove="mutations_and_views"), tracing_mode=mode)(*inputs)


def run(translation: Translation, inputs: Sequence[Any]) -> list[Any]:
    """Feed by slots, give results by slots."""
    names = [value.name for value in translation.model.graph.inputs]
    feeds = {
        names[slot.index]: _fed(value)
        for slot, value in zip(translation.inputs, inputs, strict=True)
        if slot.index is not None
    }
    made = _session(translation).run(None, feeds) if translation.model.graph.outputs else []
    results: list[Any] = []
    for slot in translation.outputs:
        if slot.kind == "input":
            results.append(inputs[slot.index])
        elif slot.kind in ("none", "constant"):
            results.append(slot.value)
        else:
            results.append(torch.from_numpy(made[slot.index]) if slot.kind == "tensor" else made[slot.index].item())
    return results


def _session(translation: Translation) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    proto = ir.to_proto(translation.model)
    return onnxruntime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def _fed(value: Any) -> Any:
    import numpy as np

    return value.detach().contiguous().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def exported(function: Callable[..., Any], *inputs: Any, options: ExportOptions | None = None) -> list[Any]:
    gm = traced(function, *inputs)
    return run(translate(gm, options=options or ExportOptions()), inputs)


def assert_same(
    function: Callable[..., Any], *inputs: Any, options: ExportOptions | None = None, **tolerance: float
) -> None:
    """The exported function gives what eager PyTorch gives: values, dtypes and shapes."""
    expected = function(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    found = exported(function, *inputs, options=options)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, **(tolerance or {}))
