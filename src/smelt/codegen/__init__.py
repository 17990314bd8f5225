"""Regions to source text."""

from .c.backend import CBackend, Generated, with_inputs
from .c.region import Packed, RegionCode
from .packing import attach_packed

__all__ = ["CBackend", "Generated", "Packed", "RegionCode", "attach_packed", "with_inputs"]
