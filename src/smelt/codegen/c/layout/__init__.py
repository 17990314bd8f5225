"""Layouts of tensors on a CPU, one file per decision."""

from .block_quantized import has_half_scales
from .builder import CpuBuilder
from .rules import RULES

__all__ = ["RULES", "CpuBuilder", "has_half_scales"]
