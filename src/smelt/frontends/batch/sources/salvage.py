"""Rows of which some cannot be read -> a table in which every good row keeps its place.

Input: rows as dictionaries, or the reason why one is none. Output: an Arrow table of the wanted types, and the bad
rows with their reasons. Invariant: the table has a row for each row given; a bad row is null in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smelt.frontends.batch.packages import package


def table_of_rows(rows: Iterable[dict[str, Any] | str], schema: Any) -> tuple[Any, dict[int, str]]:
    """Slow, and used only where the fast reader gave up."""
    pa = package("pyarrow")
    every = list(rows)
    bad = {place: row for place, row in enumerate(every) if isinstance(row, str)}
    columns: list[Any] = []
    for field in schema:
        values = [None if isinstance(row, str) else row.get(field.name) for row in every]
        columns.append(_column(values, field, bad))
    return pa.Table.from_arrays(columns, schema=schema), bad


def _column(values: list[Any], field: Any, bad: dict[int, str]) -> Any:
    pa = package("pyarrow")
    with_nulls: list[Any] = []
    for place, value in enumerate(values):
        try:
            with_nulls.append(_converted(value, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError):
            bad.setdefault(place, f"column {field.name!r}: {str(value)[:80]!r} is no {field.type}")
            with_nulls.append(None)
    return pa.array(with_nulls, type=field.type)


def _converted(value: Any, kind: Any) -> Any:
    pa = package("pyarrow")
    if isinstance(value, str) and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None if value == "" else pa.scalar(value).cast(kind).as_py()
    pa.scalar(value, type=kind)
    return value
