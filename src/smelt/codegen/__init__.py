"""Regions to source text."""

from .c.backend import CBackend, Generated, with_inputs
from .c.region import Packed, RegionCode
from .packing import FedPanels, attach_packed, attach_panels, lift_panels, packed_array, packed_names, panel_nodes

__all__ = [
    "CBackend",
    "FedPanels",
    "Generated",
    "Packed",
    "RegionCode",
    "attach_packed",
    "attach_panels",
    "lift_panels",
    "packed_array",
    "packed_names",
    "panel_nodes",
    "with_inputs",
]
