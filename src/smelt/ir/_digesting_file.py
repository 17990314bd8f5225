"""A file that is hashed while it is written.

Input: pieces of memory that do not change. Output: the pieces in the file, and the digest of all of them. Invariant:
the digest is that of what was handed to the file; a thread of its own hashes a piece while the next one is written.
"""

from __future__ import annotations

import hashlib
from queue import SimpleQueue
from threading import Semaphore, Thread
from types import TracebackType
from typing import BinaryIO

_HASH_BYTES = 16 << 20
_AHEAD = 4  # pieces that may wait for the hashing thread
_ALONE_BYTES = 1 << 20  # a smaller file is hashed on the spot


class DigestingFile:
    """Write only. The digest is known after the `with` block."""

    def __init__(self, file: BinaryIO) -> None:
        self.sha256 = ""
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0
        self._queue: SimpleQueue[memoryview | None] = SimpleQueue()
        self._room = Semaphore(_AHEAD)
        self._thread: Thread | None = None

    def write(self, piece: bytes | memoryview, chunk_bytes: int = 1 << 24) -> None:
        """Hand the piece to the file in writes of at most `chunk_bytes`."""
        view = memoryview(piece)
        for start in range(0, len(view), _HASH_BYTES):
            self._hash(view[start : start + _HASH_BYTES])
            for place in range(start, min(len(view), start + _HASH_BYTES), chunk_bytes):
                self._file.write(view[place : min(place + chunk_bytes, start + _HASH_BYTES)])
        self._size += len(view)

    def tell(self) -> int:
        return self._size

    def _hash(self, piece: memoryview) -> None:
        if self._thread is None and len(piece) < _ALONE_BYTES:
            self._digest.update(piece)
            return
        if self._thread is None:
            self._thread = Thread(target=self._work, name="smelt-digest", daemon=True)
            self._thread.start()
        self._room.acquire()
        self._queue.put(piece)

    def _work(self) -> None:
        while (piece := self._queue.get()) is not None:
            self._digest.update(piece)
            self._room.release()

    def __enter__(self) -> DigestingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        self.sha256 = self._digest.hexdigest()
