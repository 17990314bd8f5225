"""`smelt.batch`: a data set in, a data set out.

Input: a model, files of rows, a mapping of columns to model inputs. Output: a folder of part files, one for each row
group of the input. Invariant: importing this package imports neither pyarrow nor ray; a part file is complete or
absent, and the same job gives the same bytes however often it was interrupted.

    find -> plan -> probe -> (parts, by workers: read -> prepare -> infer -> write -> commit) -> report

| record | what it is | made by |
|---|---|---|
| `InputFile`, `Part` | a file with its digest; one row group of it | `sources/`, `plan.py` |
| `Job` | everything a worker needs, as JSON: the manifest of the output folder | `plan.py` |
| `Window` | some rows of a part as an Arrow table, a few megabytes | `sources/` |
| `Prepared` | a window's tensors by model input, its batches by length, its failed rows | `prepare.py` |
| `PartRecord` | rows, digest and failed rows of a finished part | `worker.py` |
| `Report` | throughput, time by stage, what limited | `report.py` |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.frontends.batch.entry import batch
    from smelt.frontends.batch.report import Report

_LAZY = {"batch": "smelt.frontends.batch.entry", "Report": "smelt.frontends.batch.report"}

__all__ = ["Report", "batch"]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
