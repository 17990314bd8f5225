"""`torch.compile(model, backend="smelt")`: graphs of PyTorch in stock ONNX Runtime, forward and backward."""

from smelt.frontends.torch_compile.backend import debug_backend, register, smelt_backend
from smelt.frontends.torch_compile.explain import Explanation, explain
from smelt.frontends.torch_compile.frozen import refresh
from smelt.frontends.torch_compile.options import TorchOptions
from smelt.frontends.torch_compile.record import (
    FallbackNode,
    GraphReport,
    Listening,
    PartReport,
    Record,
    process_record,
)

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
