"""Patterns -> files.

Input: paths, folders and patterns as users write them. Output: files in a fixed order, each with its format's name.
Invariant: the same files give the same order wherever the command runs; a path of no known format is an error.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from smelt.base.errors import InputError

EXTENSIONS: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
}
IMAGES: Final = frozenset((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"))


def find_files(patterns: str | Path | Sequence[str | Path]) -> list[tuple[Path, str]]:
    """Every file that the patterns name, once, in the order of the patterns and of the names."""
    given = [patterns] if isinstance(patterns, (str, Path)) else list(patterns)
    found: dict[Path, str] = {}
    for pattern in given:
        for path, kind in _expanded(pattern):
            found.setdefault(path, kind)
    if not found:
        raise InputError("SM-BATCH-002", f"no files match {', '.join(repr(str(one)) for one in given) or 'nothing'}")
    return list(found.items())


def _expanded(pattern: str | Path) -> list[tuple[Path, str]]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        return _of_folder(path)
    if path.exists():
        return [(path.absolute(), _kind(path))]
    matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
    plain = [Path(name) for name in matches if Path(name).is_file()]
    known = [(one.absolute(), _kind(one)) for one in plain if one.suffix.lower() in EXTENSIONS]
    return known or [(one.absolute(), _kind(one)) for one in plain]


def _kind(path: Path) -> str:
    kind = EXTENSIONS.get(path.suffix.lower())
    if kind is None:
        raise InputError(
            "SM-BATCH-003", f"{path}: no known format", hint=f"Known endings: {' '.join(EXTENSIONS)}; or a folder."
        )
    return kind


def _of_folder(folder: Path) -> list[tuple[Path, str]]:
    """A Hugging Face data set, a folder of data files, or a folder of images."""
    if (folder / "dataset_dict.json").is_file():
        splits = json.loads((folder / "dataset_dict.json").read_text(encoding="utf-8")).get("splits", [])
        raise InputError(
            "SM-BATCH-003", f"{folder} holds several splits", hint=f"Name one: {folder}/{' or '.join(splits)}"
        )
    if (folder / "state.json").is_file():
        return _of_saved_dataset(folder)
    inside = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "_")))
    data = [(path.absolute(), EXTENSIONS[path.suffix.lower()]) for path in inside if path.suffix.lower() in EXTENSIONS]
    if data:
        return data
    if image_files(folder):
        return [(folder.absolute(), "images")]
    if below := next(iter(sorted(_data_below(folder))), None):
        raise InputError(
            "SM-BATCH-002", f"{folder} has no files of its own; below it is e.g. {below.relative_to(folder)}",
            hint=f"Give a pattern: -i '{folder}/**/*{below.suffix}'.",
        )  # fmt: skip
    return []


def _data_below(folder: Path) -> Iterable[Path]:
    """Data files in folders below, as partitioned tables have them."""
    return (path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file())


def _of_saved_dataset(folder: Path) -> list[tuple[Path, str]]:
    """What `datasets.Dataset.save_to_disk` wrote: Arrow streams, named in state.json."""
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("SM-BATCH-003", f"{folder}/state.json cannot be read: {error}") from error
    if state.get("_indices_data_files"):
        raise InputError("SM-BATCH-003", f"{folder} has an order of its own", hint="Save it after flatten_indices().")
    for name in names:
        if Path(name).name != name:
            raise InputError("SM-BATCH-003", f"{folder}/state.json names {name!r}, which lies elsewhere")
    return [((folder / name).absolute(), "arrow") for name in names]


def image_files(folder: Path) -> list[Path]:
    """All images below a folder, in the order of their names."""
    return sorted(_images(folder), key=lambda path: path.relative_to(folder).parts)


def _images(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in IMAGES and path.is_file())
