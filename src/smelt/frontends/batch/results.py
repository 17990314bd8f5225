"""Outputs of the model -> typed columns.

Input: arrays by output, batch by batch, in any order of rows. Output: an Arrow table with the window's rows in their
order. Invariant: its schema is the job's, whatever the batch; a row without a result is null in every output column, or
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from smelt.base.errors import BatchError
from smelt.frontends.batch.arrays import cell_type, ragged_to_arrow, to_arrow
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.prepare import Prepared
from smelt.runtime import InputSpec

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OutputColumn:
    """One output. `dims`: the axes after the batch's; a name is an axis that varies. `trim`: the group of inputs whose
    padding the first axis follows."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str | None, ...]
    trim: str = ""

    @property
    def arrow_type(self) -> Any:
        return cell_type(self.dtype, [dim if isinstance(dim, int) else None for dim in self.dims])

    @property
    def dense(self) -> bool:
        return all(isinstance(dim, int) for dim in self.dims)


def output_columns(
    specs: Sequence[InputSpec], wanted: Sequence[str], made: Mapping[str, Array], rows: int
) -> list[OutputColumn]:
    """Columns of the outputs that are wanted. `made`: what a call with `rows` rows gave."""
    columns: list[OutputColumn] = []
    for spec in specs:
        if spec.name not in wanted:
            continue
        array = made.get(spec.name)
        if not isinstance(array, np.ndarray):
            raise BatchError("SM-BATCH-014", f"output {spec.name!r} is no tensor but {spec.type}")
        if array.ndim == 0 or array.shape[0] != rows:
            raise BatchError("SM-BATCH-014", f"output {spec.name!r} has shape {list(array.shape)} for {rows} rows")
        told = spec.shape if spec.shape is not None and len(spec.shape) == array.ndim else None
        dims = tuple(array.shape[1:]) if told is None else tuple(told[1:])
        trim = f"dim {dims[0]}" if dims and isinstance(dims[0], str) else ""
        columns.append(OutputColumn(spec.name, array.dtype, dims, trim))
    return columns


class Collector:
    """Collects the results of one window."""

    def __init__(self, columns: Sequence[OutputColumn], prepared: Prepared) -> None:
        self.columns = columns
        self.prepared = prepared
        count = prepared.count
        self._missing = np.ones(count, bool)
        self._dense: dict[str, Array] = {}
        self._ragged: dict[str, list[Array | None]] = {}
        self._tables: list[tuple[Array, Any]] = []

    def add(self, rows: Array, made: Mapping[str, Array]) -> None:
        """Results of the prepared rows `rows`."""
        places = self.prepared.rows[rows]
        self._missing[places] = False
        for column in self.columns:
            values = made[column.name]
            if column.dense:
                self._store(column, places, values)
            else:
                self._keep(column, rows, places, values)

    def _store(self, column: OutputColumn, places: Array, values: Array) -> None:
        held = self._dense.get(column.name)
        if held is None:
            shape = (len(self._missing), *values.shape[1:])
            held = np.full(shape, None, object) if values.dtype.kind == "O" else np.zeros(shape, values.dtype)
            self._dense[column.name] = held
        held[places] = values

    def _keep(self, column: OutputColumn, rows: Array, places: Array, values: Array) -> None:
        held = self._ragged.setdefault(column.name, [None] * self.prepared.count)
        sizes = self.prepared.groups.get(column.trim)
        for at, place in enumerate(places):
            length = int(sizes[rows[at]]) if sizes is not None else len(values[at])
            held[place] = values[at][:length]

    def add_table(self, rows: Array, table: Any) -> None:
        """What the postprocessing function made of the prepared rows `rows`."""
        places = self.prepared.rows[rows]
        self._missing[places] = False
        self._tables.append((places, table))

    def table(self, schema: Any, drop_failed: bool) -> Any:
        """Kept columns and results. `schema`: of the whole table."""
        pa = package("pyarrow")
        kept = self.prepared.kept
        made = self._from_tables() if self._tables else {c.name: self._column(c) for c in self.columns}
        count = len(self._missing)
        arrays = [
            kept.column(f.name) if f.name in kept.column_names else made.get(f.name, pa.nulls(count, f.type))
            for f in schema
        ]
        try:
            table = pa.Table.from_arrays(arrays, names=schema.names).cast(schema)
        except (pa.ArrowInvalid, ValueError, pa.ArrowNotImplementedError) as error:
            raise BatchError("SM-BATCH-014", f"results do not fit the columns of the first rows: {error}") from error
        return table.take(np.flatnonzero(~self._missing)) if drop_failed and self._missing.any() else table

    def _column(self, column: OutputColumn) -> Any:
        if not column.dense:
            return ragged_to_arrow(self._ragged[column.name], column.arrow_type)
        held = self._dense.get(column.name)
        if held is None:
            return package("pyarrow").nulls(len(self._missing), column.arrow_type)
        return to_arrow(held, self._missing)

    def _from_tables(self) -> dict[str, Any]:
        pa = package("pyarrow")
        joined = pa.concat_tables([table for _, table in self._tables], promote_options="permissive")
        places = np.concatenate([rows for rows, _ in self._tables])
        source = np.zeros(len(self._missing), np.int64)
        source[places] = np.arange(len(places))
        order = pa.array(source, mask=self._missing)
        return {name: joined.column(name).take(order) for name in joined.column_names}
