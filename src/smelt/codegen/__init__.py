"""Regions to source text."""

from .c.backend import CBackend, Generated, with_inputs
from .c.region import Packed, RegionCode

__all__ = ["CBackend", "Generated", "Packed", "RegionCode", "with_inputs"]
