"""`torch.compile(model, backend="smelt")`: graphs of PyTorch in stock ONNX Runtime, forward and backward."""

from smelt.frontends.torch_compile.backend import register, smelt_backend
from smelt.frontends.torch_compile.options import TorchOptions
from smelt.frontends.torch_compile.record import GraphReport, LeftNode, Listening, PartReport, Record, process_record

register()

__all__ = [
    "GraphReport",
    "LeftNode",
    "Listening",
    "PartReport",
    "Record",
    "TorchOptions",
    "process_record",
    "smelt_backend",
]
