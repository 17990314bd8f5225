"""The user's own functions: before the model and after it.

Input: a function and a batch. Output: a table of columns. Invariant: a function sees a batch of rows in their order
and must give as many; where it raises, the batch is halved until the rows that it refuses are found.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from smelt.base.errors import BatchError, InputError
from smelt.frontends.batch.arrays import to_arrow
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.records import FunctionRef
from smelt.frontends.batch.tensors import Dense, plain, tensor_of

Array = npt.NDArray[Any]
Function = Callable[[Any], Any]
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def reference(function: Function | str | None) -> FunctionRef | None:
    """How a worker process finds the function again, and what it is now."""
    if function is None:
        return None
    if isinstance(function, str):
        function = resolve(function)
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = f"{module}:{name}"
    digest = hashlib.sha256(source.encode()).hexdigest()
    importable = module not in {"__main__", ""} and _found(f"{module}:{name}") is function
    return FunctionRef(f"{module}:{name}", digest, importable)


def resolve(name: str) -> Function:
    """`package.module:function` -> the function."""
    found = _found(name)
    if not callable(found):
        raise InputError("SM-BATCH-012", f"there is no function {name!r}", hint="Write package.module:function.")
    return found


def _found(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in attribute.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError, ValueError):
        return None
    return found


def call(function: Function, batch: Any, batch_format: str, name: str) -> Any:
    """Columns that the function makes of a table, as a table of as many rows."""
    made = function(as_arrays(batch) if batch_format == "numpy" else batch)
    table = as_table(made, name)
    if table.num_rows != batch.num_rows:
        raise BatchError("SM-BATCH-012", f"{name} was given {batch.num_rows} rows and returned {table.num_rows}")
    return table


def as_arrays(table: Any) -> dict[str, Any]:
    """A table as numpy: dense columns as arrays, others as arrays of objects."""
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        column = plain(table.column(name))
        pa = package("pyarrow")
        if column.null_count or pa.types.is_binary(column.type) or pa.types.is_struct(column.type):
            arrays[name] = _objects(column.to_pylist())
            continue
        tensor, _ = tensor_of(column, name, None, None, False)
        arrays[name] = (
            tensor.values if isinstance(tensor, Dense) else _objects([np.asarray(v) for v in column.to_pylist()])
        )
    return arrays


def _objects(values: list[Any]) -> Array:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def as_table(made: Any, name: str) -> Any:
    """What a function returned, as a table."""
    pa = package("pyarrow")
    if isinstance(made, pa.Table):
        return made
    if isinstance(made, pa.RecordBatch):
        return pa.Table.from_batches([made])
    if isinstance(made, Mapping):
        given = cast("Mapping[str, Any]", made)
        return pa.table({str(key): _column(value) for key, value in given.items()})
    kind = type(made).__name__
    raise BatchError(
        "SM-BATCH-012",
        f"{name} returned a {kind}",
        hint="Return a dictionary of arrays, a pyarrow Table or RecordBatch.",
    )


def _column(value: Any) -> Any:
    pa = package("pyarrow")
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value
    array = None if isinstance(value, list) else np.asarray(value)
    if array is not None and array.dtype.kind != "O":
        return to_arrow(array)
    items = cast("list[Any]", value) if array is None else array.tolist()
    return pa.array([item.tolist() if isinstance(item, np.ndarray) else item for item in items])


def halved(
    rows: Array, run: Callable[[Array], Any], failed: Callable[[int, Exception], None]
) -> list[tuple[Array, Any]]:
    """Results of `run` over `rows`, in pieces where it raises; rows that fail alone are told to `failed`."""
    if not len(rows):
        return []
    try:
        return [(rows, run(rows))]
    except (BatchError, MemoryError):
        raise
    except Exception as error:
        # A user's function and ONNX Runtime raise anything; whose fault it is, shows when a row is alone.
        if len(rows) == 1:
            failed(int(rows[0]), error)
            return []
    middle = len(rows) // 2
    return [*halved(rows[:middle], run, failed), *halved(rows[middle:], run, failed)]


def said(error: Exception) -> str:
    """An exception in one line, the same in every run: an object's address in memory is left out."""
    text = _ADDRESS.sub("", " ".join(str(error).split()))[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
