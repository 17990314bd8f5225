"""A format's name -> its reader.

Input: a path and a format's name. Output: the file's facts and its reader. Invariant: whatever a library says about a
bad file becomes one kind of error that names the file.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Final

from smelt.base.errors import InputError, SmeltError
from smelt.frontends.batch.sources.pieces import Facts, Format

_MODULES: Final = {
    "parquet": "parquet_file:ParquetFormat",
    "arrow": "arrow_file:ArrowFormat",
    "csv": "csv_file:CsvFormat",
    "jsonl": "jsonl_file:JsonlFormat",
    "npy": "numpy_file:NumpyFormat",
    "npz": "numpy_file:NumpyFormat",
    "images": "image_folder:ImageFormat",
}


def format_of(name: str) -> Format:
    module, _, kind = _MODULES[name].partition(":")
    return getattr(import_module(f"smelt.frontends.batch.sources.{module}"), kind)()


def inspect_file(path: Path, name: str) -> Facts:
    """Schema and pieces, or an error that names the file."""
    try:
        return _checked(path, format_of(name).inspect(path))
    except SmeltError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        # pyarrow, numpy and zipfile have no base class in common for what they raise.
        if isinstance(error, OSError) and error.errno:
            raise InputError("SM-BATCH-003", f"{path} cannot be read: {os.strerror(error.errno)}") from error
        text = (str(error) or type(error).__name__).splitlines()[0][:300]
        raise InputError("SM-BATCH-003", f"{path} cannot be read as {name}: {text}") from error


def _checked(path: Path, facts: Facts) -> Facts:
    """Columns are found by their names."""
    names: list[str] = facts.schema.names
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError("SM-BATCH-003", f"{path} names a column twice: {', '.join(twice)}")
    return facts
