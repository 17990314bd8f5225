"""What a file is, whatever its name and time.

Input: paths. Output: digests. Invariant: equal bytes give equal digests. Of a file beyond 64 MB only its size and 256
blocks across it are hashed, first and last among them (the footer of a Parquet file tells every page's place): a run
must not read its whole input twice.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

_WHOLE_BYTES: Final = 64 << 20
_BLOCKS: Final = 256
_BLOCK_BYTES: Final = 1 << 16


def file_digest(path: Path) -> str:
    """Of all bytes, or of a sample of a large file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(f"sampled {size}".encode())
        for block in range(_BLOCKS):
            file.seek((size - _BLOCK_BYTES) * block // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK_BYTES))
    return "sampled-" + digest.hexdigest()


def whole_digest(path: Path) -> str:
    """Of all bytes: a model's."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listing_digest(root: Path, files: list[Path]) -> str:
    """Of a folder: names and sizes."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root)}\0{file.stat().st_size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def folder_digest(root: Path) -> str:
    """Of a folder: names and contents."""
    digest = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(root)}\0{whole_digest(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
