"""Regions to source text."""

from .c.backend import CBackend, Generated, with_inputs
from .c.region import Packed, RegionCode
from .packing import attach_packed, packed_names

__all__ = ["CBackend", "Generated", "Packed", "RegionCode", "attach_packed", "packed_names", "with_inputs"]
