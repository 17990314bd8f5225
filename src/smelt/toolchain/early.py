"""Compile units before a build asks for them.

Input: units that a build will probably need. Output: their objects in the cache. Invariant: one compilation at a time,
beside whatever else the process does. A failure is not reported: the build compiles again, and says what is wrong.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence

from smelt.base import Config, SmeltError, Target
from smelt.base.cache import Cache
from smelt.ir.records import Source
from smelt.toolchain.compiler import Compiler
from smelt.toolchain.jobs import Commands, Job, jobs_of, longest_first


class EarlyObjects:
    """Compiles in a thread of its own until a build takes over."""

    def __init__(
        self, source: Source, targets: Sequence[Target], compiler: Compiler, cache: Cache, config: Config
    ) -> None:
        self._include_dirs = source.include_dirs
        self._commands = Commands(compiler, cache, config)
        self._changed = threading.Condition()
        jobs = [job for job in jobs_of(source, tuple(targets), compiler, config) if job.prebuilt is None]
        self._waiting = longest_first(jobs)[::-1]
        self._current: Job | None = None
        self._thread = threading.Thread(target=self._run, name="smelt-early-objects", daemon=True)
        atexit.register(self.close)
        self._thread.start()

    def hand_over(self) -> str | None:
        """Start nothing more. The key of what is being compiled, which is worth waiting for."""
        with self._changed:
            self._waiting.clear()
            return self._current.key if self._current else None

    def wait(self, key: str) -> None:
        """Until `key` is not being compiled here."""
        with self._changed:
            self._changed.wait_for(lambda: self._current is None or self._current.key != key)

    def close(self) -> None:
        """Stop what runs. Happens at the end of the process at the latest."""
        atexit.unregister(self.close)
        self.hand_over()
        self._commands.processes.stop()
        self._thread.join()

    def _run(self) -> None:
        while self._next():
            try:
                self._compile()
            except (SmeltError, OSError):
                self.hand_over()

    def _next(self) -> bool:
        with self._changed:
            self._current = self._waiting.pop() if self._waiting else None
            self._changed.notify_all()
            return self._current is not None

    def _compile(self) -> None:
        job, cache = self._current, self._commands.cache
        assert job is not None
        if cache.find_object(job.key) is None:
            with cache.work() as folder:
                self._commands.compile(job, self._include_dirs, folder / job.stem)
