"""Artifacts that sessions use, in the cache.

Input: keys. Output: artifact folders, and reasons why there is none. Invariant: an artifact appears whole or not at all
(rename); what could not be compiled is remembered for a day, so that no start waits for it twice: an attempt that ran
out of time says nothing of a longer one.

    <cache>/session/<key>/artifact/    an artifact folder
    <cache>/session/<key>/failed.json  why there is none
    <cache>/session/known/             digests of files
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from smelt.base.cache import Cache
from smelt.base.config import Config
from smelt.base.sources import compiling_sources
from smelt.base.target import host_features
from smelt.runtime import ort_version

FORMAT: Final = 1
OUT_OF_TIME: Final = "it was not compiled within {} s"  # the provider reads the number
_FORGET_S: Final = 24 * 3600.0


class Store:
    """The sessions' part of one cache folder."""

    def __init__(self, config: Config) -> None:
        self.cache = Cache(config.cache_dir)
        self.root = self.cache.root / "session"
        self.known = self.root / "known"
        self.known.mkdir(mode=0o700, parents=True, exist_ok=True)

    def key(self, model_digest: str, options: Mapping[str, Any]) -> str:
        """All that decides what a compilation gives on this machine."""
        facts = [
            FORMAT,
            compiling_sources(self.known),
            ort_version(),
            sorted(host_features()),
            model_digest,
            dict(options),
        ]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def find(self, key: str) -> Path | None:
        folder = self.root / key / "artifact"
        if not folder.is_dir():
            return None
        with suppress(OSError):
            os.utime(folder)
        return folder

    def failure(self, key: str, limit_s: float | None = None) -> str | None:
        """Why an earlier attempt of the last day gave nothing, if one of `limit_s` seconds would not either."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            content: dict[str, Any] = json.loads((self.root / key / "failed.json").read_bytes())
            reason = str(content["reason"])
            if time.time() - float(content["time"]) < _FORGET_S and not _was_shorter(reason, limit_s):
                return reason
        return None

    def kept(self) -> tuple[int, list[str]]:
        """How many artifacts there are, and why other models have none."""
        keys = [path.name for path in self.root.iterdir() if path != self.known]
        failures = [reason for key in keys if (reason := self.failure(key)) is not None]
        return sum(self.find(key) is not None for key in keys), failures

    def fail(self, key: str, reason: str) -> None:
        with suppress(OSError):
            folder = self.root / key
            folder.mkdir(mode=0o700, exist_ok=True)
            aside = folder / f"failed.{os.getpid()}"
            aside.write_text(json.dumps({"time": time.time(), "reason": reason}), encoding="utf-8")
            aside.replace(folder / "failed.json")

    def fail_for_time(self, key: str, limit_s: float) -> str:
        """Remember an attempt that ran out of time; the reason for the log."""
        reason = OUT_OF_TIME.format(f"{limit_s:g}")
        self.fail(key, reason)
        return reason

    def publish(self, key: str, staged: Path) -> None:
        """Move a finished artifact into its place; where another process was first, its own stays."""
        folder = self.root / key
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            staged.rename(folder / "artifact")
        except OSError:
            if not (folder / "artifact").is_dir():
                raise
        (folder / "failed.json").unlink(missing_ok=True)

    @contextmanager
    def lock(self, key: str, timeout_s: float) -> Generator[None]:
        """Held by the process that compiles."""
        with self.cache.lock(key, timeout_s):
            yield


def _was_shorter(reason: str, limit_s: float | None) -> bool:
    late = re.fullmatch(OUT_OF_TIME.replace("{}", "([0-9.e+-]+)"), reason)
    return late is not None and limit_s is not None and limit_s > float(late.group(1))
