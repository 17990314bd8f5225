"""An artifact -> the session options that load it.

Input: an artifact folder, and options to add to. Output: `onnxruntime.SessionOptions` with the library registered.
Invariant: the folder was checked first; a library is registered once with the same options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from smelt.runtime import open_artifact

_registered: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def session_options(folder: str | Path, base: Any = None) -> Any:
    """Options for `onnxruntime.InferenceSession(folder / "model.onnx", options)`; `base` is changed and given back."""
    return with_library(base, open_artifact(Path(folder)).library)


def with_library(base: Any, library: Path | None) -> Any:
    """`base`, or new options, with the library registered."""
    import onnxruntime

    options = cast("Any", onnxruntime).SessionOptions() if base is None else base
    known = _registered.setdefault(options, set())
    if library is not None and library.name not in known:  # the name tells the content, wherever the file lies
        options.register_custom_ops_library(str(library))
        known.add(library.name)
    return options
