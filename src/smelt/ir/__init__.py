"""The graph IR (`onnx_ir`), the stage records, and services on models: load, save, verify, print, walk."""

from smelt.ir.backend import Backend
from smelt.ir.load import load_model
from smelt.ir.records import (
    Artifact,
    Claim,
    Entry,
    Fallback,
    KernelInfo,
    Library,
    Plan,
    Region,
    Source,
    Unit,
)  # fmt: skip

__all__ = [
    "Artifact", "Backend", "Claim", "Entry", "Fallback", "KernelInfo", "Library", "Plan", "Region", "Source", "Unit",
    "load_model",
]  # fmt: skip
