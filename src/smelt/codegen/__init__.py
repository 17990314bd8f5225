"""Regions to source text."""

from .c.backend import CBackend, Generated, with_inputs
from .c.region import Packed, RegionCode
from .packing import FedPanels, attach_packed, attach_panels, lift_panels, packed_array, packed_names, panel_nodes
from .settings import SETTINGS, Setting, settings_of, with_settings

__all__ = [
    "SETTINGS",
    "CBackend",
    "FedPanels",
    "Generated",
    "Packed",
    "RegionCode",
    "Setting",
    "attach_packed",
    "attach_panels",
    "lift_panels",
    "packed_array",
    "packed_names",
    "panel_nodes",
    "settings_of",
    "with_inputs",
    "with_settings",
]
