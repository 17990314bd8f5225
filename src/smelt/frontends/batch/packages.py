"""Packages that only some runs need.

Input: a module's name. Output: the module. Invariant: a package that is missing is an error that names the extra to
install, never an ImportError out of the middle of a run.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from smelt.base.errors import InputError

# What no extra of ours brings.
_BY_ITSELF: Final = {"sentence_transformers": "sentence-transformers", "tokenizers": "tokenizers"}


def package(name: str, extra: str = "batch") -> Any:
    """The module `name`, imported now. pyarrow, tokenizers and ray carry no types, so it is `Any`."""
    try:
        return import_module(name)
    except ImportError as error:
        wanted = _BY_ITSELF.get(name, f"'onnx-smelt[{extra}]'")
        raise InputError("SM-BATCH-001", f"{name} cannot be imported: {error}", hint=f"pip install {wanted}") from error
