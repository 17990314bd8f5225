"""Model -> onnxruntime.InferenceSession, with the options that smelt sets in one place.

Input: a model as a path or bytes, and the library of its custom operators if it has any. Output: a live session.
Invariant: the library is registered by its absolute path and is not checked here; callers that load from a folder
that others may have touched go through `artifact.open_artifact` first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

from smelt.base.config import custom_op_libraries
from smelt.base.cpus import usable_cpus
from smelt.runtime.own_sessions import own_sessions

Optimization = Literal["disable", "basic", "extended", "all"]
CPU_PROVIDERS: Final[tuple[str, ...]] = ("CPUExecutionProvider",)
_EXTERNAL_DATA_KEY: Final = "session.model_external_initializers_file_folder_path"


def _ort() -> Any:
    """Loaded for the first session: compiling from the cache needs none. Its binary part has no types."""
    import onnxruntime

    return onnxruntime


def ort_version() -> str:
    """The release of ONNX Runtime, whichever distribution it comes from (onnxruntime-gpu, say)."""
    if (loaded := sys.modules.get("onnxruntime")) is not None:
        return str(cast("Any", loaded).__version__)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("onnxruntime")  # without loading it
    except PackageNotFoundError:
        return str(_ort().__version__)


def available_providers() -> tuple[str, ...]:
    """The execution providers of the installed onnxruntime."""
    return tuple(str(name) for name in _ort().get_available_providers())


class Session(Protocol):
    """What smelt uses of onnxruntime.InferenceSession."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]: ...

    def get_inputs(self) -> Sequence[Any]: ...

    def get_outputs(self) -> Sequence[Any]: ...

    def get_overridable_initializers(self) -> Sequence[Any]: ...

    def get_providers(self) -> Sequence[str]: ...

    def end_profiling(self) -> str: ...


@dataclass(frozen=True)
class SessionSettings:
    """How a session runs. `threads` 0: as many as this process has CPUs; `log_severity` 4 prints nothing that is
    raised as well; 3 prints errors."""

    threads: int = 0
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] = CPU_PROVIDERS
    optimization: Optimization = "all"
    spin: bool = True
    log_severity: int = 4
    profile_prefix: Path | None = None
    optimized_path: Path | None = None
    external_data_dir: Path | None = None
    config: Mapping[str, str] | None = None


def _level(name: Optimization) -> object:
    levels = _ort().GraphOptimizationLevel
    return {
        "disable": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[name]


def session_options(settings: SessionSettings, library: Path | None = None) -> Any:
    """The options of one session. They serve one session only: the external data folder belongs to a model."""
    options = _ort().SessionOptions()
    options.intra_op_num_threads = settings.threads or usable_cpus().session_threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = _level(settings.optimization)
    options.log_severity_level = settings.log_severity
    if not settings.spin:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if settings.profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(settings.profile_prefix)
    if settings.optimized_path is not None:
        options.optimized_model_filepath = str(settings.optimized_path)
    if settings.external_data_dir is not None:
        options.add_session_config_entry(_EXTERNAL_DATA_KEY, str(settings.external_data_dir.absolute()))
    for key, value in (settings.config or {}).items():
        options.add_session_config_entry(key, value)
    for other in custom_op_libraries():
        options.register_custom_ops_library(str(other))
    if library is not None:
        options.register_custom_ops_library(str(library.absolute()))
    return options


def session_for(
    model: bytes | str | Path, library: Path | None = None, settings: SessionSettings | None = None
) -> Session:
    """A session over `model`. Bytes with external data need `settings.external_data_dir`."""
    settings = settings or SessionSettings()
    source = model if isinstance(model, bytes) else str(model)
    options = session_options(settings, library)
    with own_sessions():
        made = _ort().InferenceSession(source, options, providers=list(settings.providers))
    from smelt.runtime.foreign_types import with_foreign_types

    return cast("Session", with_foreign_types(made))
