"""PyTorch graphs -> ONNX models.

Input: an FX graph of functional ATen ops (`translate`), or one call (`one_op`). Output: a `Translation`: an
`onnx_ir.Model` and the slots that say what to feed and what comes back. Invariant: converters are tried in this order:
a user's (`register_converter`), the table (`aten/`), onnxscript's torchlib, torch's decompositions; what is left has a
reason (`reason_against`).

To add an op: write a converter in the module of its family in `aten/` (see `registry` for the form, `expressions` for
the declarative one, `call` for what a converter can ask). Torch is imported with this package and not before.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from smelt.export.call import Call, Meta
from smelt.export.coverage import Entry, table
from smelt.export.one_op import one_op
from smelt.export.program import translate_program
from smelt.export.records import (
    ExportOptions,
    ExportReport,
    Guards,
    InputSlot,
    OutputSlot,
    Refused,
    Translation,
)
from smelt.export.registry import converter, forget_converter, register_converter
from smelt.export.translate import reason_against, translate

__all__ = [
    "Call", "Entry", "ExportOptions", "ExportReport", "Guards", "InputSlot", "Meta", "OutputSlot", "Refused",
    "Translation", "converter", "forget_converter", "one_op", "reason_against", "register_converter", "table",
    "translate", "translate_program",
]  # fmt: skip


class _Callable(ModuleType):
    """`smelt.export(module, args)` is the public way in, beside `smelt.export.translate` and the others."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _export_module()(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_export_module())


def _export_module() -> Any:
    return import_module("smelt.frontends.export_module").export_module


sys.modules[__name__].__class__ = _Callable
