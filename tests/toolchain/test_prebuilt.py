"""Objects that come with the installation are linked instead of compiled, while they fit."""

from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path

import pytest

from smelt.base import Config, Target, host_level
from smelt.ir.records import Source
from smelt.toolchain import Cache, Compiler, build, prebuild_all, prebuilt, warm
from smelt.toolchain.jobs import jobs_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "installed"
    monkeypatch.setattr(prebuilt, "FOLDER", place)
    return place


@pytest.fixture
def units(source: Source) -> Source:
    """What no model changes of the small library."""
    return dataclasses.replace(source, units=source.units[:1])


def _prebuilt_of(source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config) -> list[bool]:
    return [job.prebuilt is not None for job in jobs_of(source, targets, compiler, config)]


def test_a_build_links_the_objects_of_the_installation(
    folder: Path, units: Source, source: Source, targets, compiler: Compiler, cache: Cache, config: Config
):
    assert prebuild_all(units, targets, compiler, cache, config, folder) == (len(targets), len(targets))
    assert prebuild_all(units, targets, compiler, cache, config, folder) == (len(targets), 0)
    told: list[str] = []
    library = build(source, targets, compiler, cache, config, step=told.append)
    assert list((cache.root / "obj").glob("*/*.o")) != [], "the glue is compiled"
    assert len(list((cache.root / "obj").glob("*/*.o"))) == 1, "and nothing else is"
    assert len(told) == len(targets) + 2
    here = host_level()
    assert here is not None
    values = (ctypes.c_float * 64)(*[2.0] * 64)
    run = ctypes.CDLL(str(library.path)).RegisterCustomOps
    assert run(ctypes.c_int64(here.index), values) == here.vector_bytes
    assert values[0] == 6.0


def test_the_compiler_that_made_an_object_does_not_matter_but_its_flags_do(
    folder: Path,
    units: Source,
    source: Source,
    targets,
    compiler: Compiler,
    cache: Cache,
    config: Config,
    tmp_path: Path,
):
    prebuild_all(units, targets, compiler, cache, config, folder)
    found = [True] * len(targets) + [False]
    assert _prebuilt_of(source, targets, compiler, config) == found
    other = dataclasses.replace(compiler, identity="another", version="99")
    assert _prebuilt_of(source, targets, other, config) == found
    assert not any(_prebuilt_of(source, targets, compiler, config.with_(cflags="-DMORE=1")))
    header = tmp_path / "include" / "smelt" / "new.h"
    header.parent.mkdir(parents=True)
    header.write_text("\n")
    assert not any(
        _prebuilt_of(dataclasses.replace(source, include_dirs=(tmp_path / "include",)), targets, compiler, config)
    )


def test_an_object_whose_bytes_changed_is_not_used(
    folder: Path, units: Source, source: Source, targets, compiler: Compiler, cache: Cache, config: Config
):
    prebuild_all(units, targets, compiler, cache, config, folder)
    broken = sorted(folder.glob("*.o"))[0]
    broken.write_bytes(broken.read_bytes()[:-1] + b"x")
    assert sorted(_prebuilt_of(source, targets, compiler, config)) == [False, False] + [True] * (len(targets) - 1)
    build(source, targets, compiler, cache, config)
    assert prebuild_all(units, targets, compiler, cache, config, folder) == (len(targets), 1)


def test_objects_of_older_headers_are_removed(
    folder: Path, make_source, targets, compiler: Compiler, cache: Cache, config: Config
):
    first = dataclasses.replace(make_source(), units=make_source().units[:1])
    second = dataclasses.replace(
        make_source(comment="// changed\n"), units=make_source(comment="// changed\n").units[:1]
    )
    prebuild_all(first, targets, compiler, cache, config, folder)
    prebuild_all(second, targets, compiler, cache, config, folder)
    assert len(list(folder.iterdir())) == len(targets)
    assert not any(_prebuilt_of(first, targets, compiler, config))


def test_warming_fills_the_cache_once(
    folder: Path, units: Source, targets, compiler: Compiler, cache: Cache, config: Config
):
    assert warm(units, targets, compiler, cache, config) == (len(targets), len(targets))
    assert warm(units, targets, compiler, cache, config) == (len(targets), 0)
    assert len(list((cache.root / "obj").glob("*/*.o"))) == len(targets)
