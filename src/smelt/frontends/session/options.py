"""An artifact -> the session options that load it.

Input: an artifact folder, and options to add to. Output: `onnxruntime.SessionOptions` with the library registered.
Invariant: the folder was checked first; a library is registered once with the same options.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pathlib import Path

_registered: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def session_options(folder: str | Path, base: Any = None) -> Any:
    """Options for `onnxruntime.InferenceSession(folder / "model.onnx", options)`; `base` is changed and given back."""
    from pathlib import Path

    from smelt.runtime import open_artifact

    return with_library(base, str(open_artifact(Path(folder)).library or ""))


def with_library(base: Any, library: str) -> Any:
    """`base`, or new options, with the library registered, if there is one."""
    import onnxruntime

    options = cast("Any", onnxruntime).SessionOptions() if base is None else base
    known = _registered.setdefault(options, set())
    name = os.path.basename(library)  # it tells the content, wherever the file lies
    if name and name not in known:
        options.register_custom_ops_library(library)
        known.add(name)
    return options
