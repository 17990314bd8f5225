"""`torch.compile(model, backend="smelt")`: graphs of PyTorch in stock ONNX Runtime, forward and backward."""

from smelt.frontends.torch_compile.backend import debug_backend, register, smelt_backend
from smelt.frontends.torch_compile.calls.frozen import refresh
from smelt.frontends.torch_compile.inspection.explain import Explanation, explain
from smelt.frontends.torch_compile.inspection.record import (
    FallbackNode,
    GraphReport,
    Listening,
    PartReport,
    Record,
    process_record,
)
from smelt.frontends.torch_compile.options import TorchOptions

register()

__all__ = [
    "Explanation",
    "FallbackNode",
    "GraphReport",
    "Listening",
    "PartReport",
    "Record",
    "TorchOptions",
    "debug_backend",
    "explain",
    "process_record",
    "refresh",
    "smelt_backend",
]
