"""What killed processes leave in the cache is swept; what is being built is not; sessions' artifacts are freed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt.base import CacheError, Config, Target
from smelt.ir.records import Source
from smelt.toolchain import Cache, build, find_compiler

KEY = "ab" * 32


def age(*folders: Path) -> None:
    for folder in folders:
        os.utime(folder, (1000, 1000))


def test_clear_takes_what_nobody_holds(cache: Cache):
    left, held = cache.claim()
    os.close(held)
    (left / "object.o").write_bytes(b"x" * 1000)
    with cache.work() as folder:
        age(left, folder)
        assert cache.clear() >= 1000
        assert not left.exists() and folder.exists()


def test_a_work_folder_is_held_by_the_last_process_that_has_it(cache: Cache):
    folder, held = cache.claim()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=(held,)
    )
    os.close(held)
    age(folder)
    cache.clear()
    assert folder.exists()
    child.communicate()
    cache.clear()
    assert not folder.exists()


def test_clear_frees_artifacts_of_sessions_but_not_one_that_is_being_made(cache: Cache):
    for key in (KEY, "cd" * 32):
        (cache.root / "session" / key / "artifact").mkdir(parents=True)
        (cache.root / "session" / key / "artifact" / "model.data").write_bytes(b"x" * 5000)
    with cache.lock(KEY, 0):
        assert cache.clear() >= 5000
    assert [path.name for path in (cache.root / "session").iterdir()] == [KEY]
    cache.clear(older_than_s=3600)
    assert (cache.root / "session" / KEY).exists()


def test_a_compiler_without_room_is_a_full_cache_not_a_bad_compiler(
    source: Source, targets: tuple[Target, ...], config: Config, make_compiler: Callable[[str], Path]
):
    full = make_compiler("sys.stderr.write('fatal error: writing to out.o: No space left on device\\n'); sys.exit(1)\n")
    named = config.with_(cc=str(full), cc_from="SMELT_CC")
    with pytest.raises(CacheError, match="cannot be used: No space left on device") as caught:
        build(source, targets, find_compiler(named), Cache(named.cache_dir), named)
    assert caught.value.code == "SM-CACHE-003" and str(config.cache_dir) in caught.value.message
