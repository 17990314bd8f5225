"""Regions to source text."""

from .c.backend import CBackend, Generated, with_inputs
from .c.library import library_source, likely_source
from .c.region import Packed, RegionCode
from .clocks import launch_counts, with_clocks
from .packing import FedPanels, attach_packed, attach_panels, lift_panels, packed_array, packed_names, panel_nodes
from .settings import (
    KERNEL_SETTINGS,
    SETTINGS,
    KernelSetting,
    Setting,
    kernel_settings_of,
    settings_of,
    strangers,
    with_settings,
)

__all__ = [
    "KERNEL_SETTINGS",
    "SETTINGS",
    "CBackend",
    "FedPanels",
    "Generated",
    "KernelSetting",
    "Packed",
    "RegionCode",
    "Setting",
    "attach_packed",
    "attach_panels",
    "kernel_settings_of",
    "launch_counts",
    "library_source",
    "lift_panels",
    "likely_source",
    "packed_array",
    "packed_names",
    "panel_nodes",
    "settings_of",
    "strangers",
    "with_clocks",
    "with_inputs",
    "with_settings",
]
