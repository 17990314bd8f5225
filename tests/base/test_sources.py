"""The digest of the package's sources: every change of a source changes it, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import smelt
from smelt.base.sources import compiling_sources, digest_of_sources, examining_sources, record_of, stamp_of_sources


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("check/judge.py", "check/c/fast.h", "cli/app.py", "pipeline.py"):
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n", encoding="utf-8")
    return tmp_path / "package"


def digest(package: Path, **chosen: frozenset[str]) -> str:
    digest_of_sources.cache_clear()
    return digest_of_sources(package, **chosen)


@pytest.mark.parametrize("name", ["check/judge.py", "check/c/fast.h", "check/new.py", "pipeline.py"])
def test_every_source_counts(package: Path, name: str) -> None:
    before = digest(package)
    (package / name).write_text("changed\n", encoding="utf-8")
    assert digest(package) != before


def test_a_moved_source_counts(package: Path) -> None:
    before = digest(package)
    (package / "check/judge.py").rename(package / "check/other.py")
    assert digest(package) != before


def test_what_was_left_out_and_compiled_files_do_not_count(package: Path) -> None:
    shown, checked = (digest(package, leave_out=frozenset({"cli"})), digest(package, only=frozenset({"check"})))
    (package / "cli/app.py").write_text("changed\n", encoding="utf-8")
    (package / "check/judge.pyc").write_bytes(b"compiled")
    assert digest(package, leave_out=frozenset({"cli"})) == shown
    (package / "pipeline.py").write_text("changed\n", encoding="utf-8")
    assert digest(package, only=frozenset({"check"})) == checked


def test_the_package_is_digested_where_it_lies() -> None:
    folders = {path.parent.name for path in Path(smelt.__file__).parent.glob("*/__init__.py")}
    assert {"check", "ops", "bench", "cli", "report"} <= folders, "a folder that is named there was renamed"
    assert len({compiling_sources(), examining_sources(), digest(Path(smelt.__file__).parent)}) == 3


def test_a_remembered_digest_is_that_of_the_sources_as_they_are(tmp_path: Path):
    known = tmp_path / "known"
    known.mkdir()
    assert compiling_sources(known) == compiling_sources() == compiling_sources(known)
    assert [path.name.startswith("sources-") for path in known.iterdir()] == [True]
    assert compiling_sources(tmp_path / "absent") == compiling_sources()


def test_a_stamp_changes_with_sources_alone(tmp_path: Path):
    (tmp_path / "a").mkdir()
    source = tmp_path / "a" / "b.py"
    source.write_text("x = 1\n")
    before = stamp_of_sources(tmp_path)
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "b.pyc").write_bytes(b"x")
    assert stamp_of_sources(tmp_path) == before
    os.utime(source, ns=(1, 1))
    changed = stamp_of_sources(tmp_path)
    (tmp_path / "a" / "c.h").write_text("")
    assert len({before, changed, stamp_of_sources(tmp_path), stamp_of_sources(tmp_path, leave_out=frozenset("a"))}) == 4


def test_an_installed_package_is_told_by_its_record(package: Path) -> None:
    record = package.parent / "onnx_smelt-1.2.3.dist-info" / "RECORD"
    assert record_of(package) == ""
    record.parent.mkdir()
    record.write_text("__editable__.onnx_smelt.pth,sha256=a,5\n", encoding="ascii")
    assert record_of(package) == ""  # installed from a checkout, whose files may change
    record.write_text("package/__init__.py,sha256=a,5\n", encoding="ascii")
    first = record_of(package)
    record.write_text("package/__init__.py,sha256=b,5\n", encoding="ascii")
    assert first and record_of(package) not in ("", first)
