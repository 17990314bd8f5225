"""The note of a model's last session: what it lets a start skip, and what makes it void."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smelt.base import environment
from smelt.frontends.session import known
from smelt.frontends.session.known import Opening, recall, remember

KEY = "ab" * 32
RELEASE = "1.31.1"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A cache with one artifact."""
    folder = tmp_path / "cache"
    artifact = folder / "session" / KEY / "artifact"
    for place in (folder, folder / "session", folder / "session" / "known", artifact.parent, artifact):
        place.mkdir(mode=0o700)
    for name in ("model.onnx", "manifest.json", "smelt_x.so"):
        (artifact / name).write_text(name)
    monkeypatch.setenv("SMELT_CACHE_DIR", str(folder))
    monkeypatch.setattr("smelt.base.stamps._COARSE_S", -1.0)  # what was written just now counts, too
    return folder


@pytest.fixture
def opening(root) -> Opening:
    artifact = root / "session" / KEY / "artifact"
    return Opening(str(artifact / "model.onnx"), str(artifact / "smelt_x.so"), ("w", "two\nlines"))


@pytest.fixture
def files(tmp_path) -> list[str]:
    made = []
    for name in ("m.onnx", "m.data"):
        (tmp_path / name).write_text(name)
        made.append(str(tmp_path / name))
    return made


@pytest.fixture
def noted(root, opening, files) -> Path:
    remember(files[0], RELEASE, KEY, opening, files)
    (note,) = (root / "session" / "known").iterdir()
    return note


def test_what_was_opened_is_opened_again(noted, opening, files, monkeypatch, tmp_path):
    assert recall(files[0], RELEASE) == opening
    monkeypatch.chdir(tmp_path)
    assert recall("m.onnx", RELEASE) == opening  # the same file by another spelling of its folder
    assert noted.stat().st_mode & 0o777 == 0o600


def test_a_model_without_kernels_is_known_too(root, opening, files):
    plain = Opening(opening.model, "", ())
    remember(files[0], RELEASE, KEY, plain, files)
    assert recall(files[0], RELEASE) == plain


def rewritten(path: Path) -> None:
    """Other bytes of the same number, with the time of the old ones."""
    seen = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


@pytest.mark.parametrize("name", ["m.onnx", "m.data", "smelt_x.so", "manifest.json"])
@pytest.mark.parametrize("change", [rewritten, Path.unlink, lambda path: path.chmod(0o666)])
def test_a_file_that_changed_is_looked_at_again(noted, opening, files, tmp_path, name, change):
    path = tmp_path / name if name.startswith("m.") else Path(opening.model).with_name(name)
    change(path)
    assert recall(files[0], RELEASE) is None


@pytest.mark.parametrize("place", ["", "session", "session/known", f"session/{KEY}", f"session/{KEY}/artifact", "note"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_does_not_count(root, noted, files, place, mode):
    path = noted if place == "note" else root / place
    path.chmod(0o700 | mode)
    assert recall(files[0], RELEASE) is None


def test_a_folder_above_that_others_can_write_does_not_count(root, noted, files):
    root.parent.chmod(0o777)
    assert recall(files[0], RELEASE) is None
    root.parent.chmod(0o1777)  # as /tmp is
    assert recall(files[0], RELEASE) is not None


def test_another_owner_start_release_package_or_path_does_not_count(noted, opening, files, monkeypatch, tmp_path):
    assert recall(files[0], "1.23.2") is None
    os.link(files[0], tmp_path / "other.onnx")  # its external data may lie elsewhere
    assert recall(str(tmp_path / "other.onnx"), RELEASE) is None
    remember(files[0], RELEASE, KEY, opening, files)  # the link was a change
    for name, other in (("boot", "another"), ("boot", ""), ("package_stamp", "other sources")):
        with monkeypatch.context() as patch:
            patch.setattr(known, name, lambda other=other: other)
            assert recall(files[0], RELEASE) is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        assert recall(files[0], RELEASE) is None
    assert recall(files[0], RELEASE) == opening


@pytest.mark.parametrize("content", [b"", b"\0" * 20, b"\xff\xfe", b"smelt session 1\0", b"x" * 100])
def test_a_broken_note_is_none(noted, files, content):
    noted.write_bytes(content)
    assert recall(files[0], RELEASE) is None


@pytest.mark.parametrize(
    ("old", "new"), [(KEY, f"../session/{KEY}"), ("smelt_x.so", "../smelt_x.so"), ("\x002\0", "\0nine\0")]
)
def test_a_note_leads_nowhere_else(noted, files, old, new):
    text = noted.read_text()
    assert old in text
    noted.write_text(text.replace(f"\0{old}\0" if not old.startswith("\0") else old, f"\0{new}\0", 1))
    assert recall(files[0], RELEASE) is None


def test_a_file_that_changed_just_now_is_not_noted(root, opening, files, monkeypatch):
    """Its next change may fall into the same tick of the clock."""
    monkeypatch.setattr("smelt.base.stamps._COARSE_S", 60.0)
    remember(files[0], RELEASE, KEY, opening, files)
    assert list((root / "session" / "known").iterdir()) == []


def test_no_cache_and_no_folder_mean_none(monkeypatch, files, opening):
    monkeypatch.setattr(known, "cache_folder", lambda: "")
    assert recall(files[0], RELEASE) is None
    remember(files[0], RELEASE, KEY, opening, files)
    assert environment.cache_folder({"SMELT_CACHE_DIR": "~/x"}).endswith("/x")
