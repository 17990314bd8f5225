"""Layouts of tensors on a CPU, one file per decision."""

from .builder import CpuBuilder
from .rules import RULES

__all__ = ["RULES", "CpuBuilder"]
