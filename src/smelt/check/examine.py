"""Verify and time the regions of a compiled model."""

from __future__ import annotations

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.progress import Progress
from smelt.check.findings import Examination, Findings
from smelt.codegen import Generated
from smelt.ir.records import Library


def examine(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress
) -> Findings:
    """The findings for every region of the model as it was partitioned."""
    return Findings()
