"""Loops over code generation, toolchain and runtime: verify, tune."""

from smelt.check.examine import examine
from smelt.check.findings import Examination, Findings, Verdict

__all__ = ["Examination", "Findings", "Verdict", "examine"]
