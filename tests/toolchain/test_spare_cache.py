"""A cache that the system does not let be written is no reason to fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from smelt.base import CacheError, cache
from smelt.toolchain import Cache, usable_root


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SPARE", {})


def refuse(monkeypatch: pytest.MonkeyPatch, root: Path, code: int) -> None:
    make = os.mkdir

    def mkdir(path, *rest, **named):
        if Path(path).is_relative_to(root):
            raise OSError(code, os.strerror(code))
        return make(path, *rest, **named)

    monkeypatch.setattr(os, "mkdir", mkdir)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("filled", [True, False])
def test_a_private_folder_takes_its_place(tmp_path: Path, monkeypatch, code: int, filled: bool) -> None:
    root = tmp_path / "cache"
    if filled:
        Cache(root)
    refuse(monkeypatch, root, code)
    spare = usable_root(root)
    assert spare != root and usable_root(root) == spare
    with Cache(spare).work() as folder:
        assert folder.is_relative_to(spare) and spare.stat().st_mode & 0o077 == 0


def test_a_full_disk_is_an_error_with_the_path(tmp_path: Path, monkeypatch) -> None:
    refuse(monkeypatch, tmp_path / "cache", errno.ENOSPC)
    with pytest.raises(CacheError, match=f"{tmp_path}/cache cannot be used: No space left"):
        usable_root(tmp_path / "cache")


def test_a_cache_that_can_be_written_stays(tmp_path: Path) -> None:
    assert usable_root(tmp_path / "cache") == tmp_path / "cache"
