"""Arrays by name in one file.

Input: arrays by any names. Output: an .npz file. Invariant: nothing is pickled; by position with a list of names, since
a name may be anything and a member of an archive may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def write_feeds(path: Path, feeds: Mapping[str, Any]) -> None:
    names = np.array(list(feeds), dtype=np.str_)
    given = (np.asarray(value) for value in feeds.values())
    # Strings come as objects, which only pickle would write.
    arrays = {f"a{i}": a.astype(np.str_) if a.dtype.kind == "O" else a for i, a in enumerate(given)}
    np.savez(path, names=names, **arrays)  # pyright: ignore[reportArgumentType]


def read_feeds(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return {str(name): np.array(archive[f"a{i}"]) for i, name in enumerate(archive["names"])}
