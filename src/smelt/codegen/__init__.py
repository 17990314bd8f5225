"""Regions to source text."""

from .backends import Backends
from .c.layout.builder import callable_function
from .c.layout.formats import packed_array
from .c.library import function_units, library_source
from .clocks import launch_counts, with_clocks
from .packing import FedPanels, attach_packed, attach_panels, lift_panels, packed_names, panel_nodes, with_inputs
from .registry import backend_names, find_backend, find_backends, register_backend
from .settings import (
    GPU_CONFIG,
    KERNEL_SETTINGS,
    SETTINGS,
    KernelSetting,
    Setting,
    config_count,
    kernel_settings_of,
    settings_of,
    unknown_settings,
    with_settings,
)

__all__ = [
    "GPU_CONFIG",
    "KERNEL_SETTINGS",
    "SETTINGS",
    "Backends",
    "FedPanels",
    "KernelSetting",
    "Setting",
    "attach_packed",
    "attach_panels",
    "backend_names",
    "callable_function",
    "config_count",
    "find_backend",
    "find_backends",
    "function_units",
    "kernel_settings_of",
    "launch_counts",
    "library_source",
    "lift_panels",
    "packed_array",
    "packed_names",
    "panel_nodes",
    "register_backend",
    "settings_of",
    "unknown_settings",
    "with_clocks",
    "with_inputs",
    "with_settings",
]
