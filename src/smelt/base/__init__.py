"""Lowest layer: errors, knobs, targets, progress. Imports nothing of smelt above it.

The names below are loaded at first use: a program whose models are compiled starts with few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.base.config import KNOBS, Config, Knob, child_environment
    from smelt.base.errors import (
        CATALOGUE,
        ArtifactError,
        BatchError,
        CacheError,
        CodegenError,
        CompileError,
        ConfigError,
        Explanation,
        ExportError,
        InputError,
        LoadError,
        ModelError,
        NoCompilerError,
        PrecisionError,
        SmeltError,
        ToolchainError,
        TorchError,
        VerifyError,
        explain,
    )
    from smelt.base.progress import Progress, Silent, Step, open_progress
    from smelt.base.target import (
        BUILDS,
        TARGETS,
        Build,
        Target,
        find_target,
        host_arch,
        host_build,
        host_features,
        host_level,
        levels_of,
        runs_on_host,
        select_targets,
    )
    from smelt.base.version import __version__

_HOMES = {
    "config": (
        "KNOBS",
        "Config",
        "Knob",
        "child_environment",
    ),
    "errors": (
        "CATALOGUE",
        "ArtifactError",
        "BatchError",
        "CacheError",
        "CodegenError",
        "CompileError",
        "ConfigError",
        "Explanation",
        "ExportError",
        "InputError",
        "LoadError",
        "ModelError",
        "NoCompilerError",
        "PrecisionError",
        "SmeltError",
        "ToolchainError",
        "TorchError",
        "VerifyError",
        "explain",
    ),
    "progress": (
        "Progress",
        "Silent",
        "Step",
        "open_progress",
    ),
    "target": (
        "BUILDS",
        "TARGETS",
        "Build",
        "Target",
        "find_target",
        "host_arch",
        "host_build",
        "host_features",
        "host_level",
        "levels_of",
        "runs_on_host",
        "select_targets",
    ),
    "version": ("__version__",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BUILDS",
    "CATALOGUE",
    "KNOBS",
    "TARGETS",
    "ArtifactError",
    "BatchError",
    "Build",
    "CacheError",
    "CodegenError",
    "CompileError",
    "Config",
    "ConfigError",
    "Explanation",
    "ExportError",
    "InputError",
    "Knob",
    "LoadError",
    "ModelError",
    "NoCompilerError",
    "PrecisionError",
    "Progress",
    "Silent",
    "SmeltError",
    "Step",
    "Target",
    "ToolchainError",
    "TorchError",
    "VerifyError",
    "__version__",
    "child_environment",
    "explain",
    "find_target",
    "host_arch",
    "host_build",
    "host_features",
    "host_level",
    "levels_of",
    "open_progress",
    "runs_on_host",
    "select_targets",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
