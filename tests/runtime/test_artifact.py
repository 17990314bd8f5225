"""No code of an artifact is loaded unless its folder, file and digest are right."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt.base.errors import ArtifactError
from smelt.runtime import Executable, open_artifact


def library_of(artifact: Path) -> Path:
    return next(artifact.glob("toy-*.so"))


def set_library(artifact: Path, entry: object) -> None:
    (artifact / "manifest.json").write_text(json.dumps({"library": entry}))


def code_of(artifact: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        Executable.open(artifact)
    assert caught.value.hint
    return caught.value.code


def test_a_sound_artifact_opens(artifact: Path) -> None:
    opened = open_artifact(artifact)
    assert opened.library == library_of(artifact)
    assert opened.model == artifact / "model.onnx"


def test_an_artifact_without_library_opens(artifact: Path) -> None:
    (artifact / "manifest.json").write_text("{}")
    assert open_artifact(artifact).library is None


@pytest.mark.parametrize("name", ["model.onnx", "manifest.json", "library"])
def test_a_missing_file_is_an_error(artifact: Path, name: str) -> None:
    (library_of(artifact) if name == "library" else artifact / name).unlink()
    assert code_of(artifact) == "SM-ARTIFACT-001"


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff", '{"library": 3}', '{"library": {"file": 1, "sha256": "x"}}'])
def test_a_damaged_manifest_is_an_error(artifact: Path, text: str) -> None:
    (artifact / "manifest.json").write_bytes(text.encode("latin-1"))
    assert code_of(artifact) == "SM-ARTIFACT-001"


def test_a_manifest_nested_too_deep_is_an_error(artifact: Path) -> None:
    (artifact / "manifest.json").write_text("[" * 200_000)
    assert code_of(artifact) == "SM-ARTIFACT-001"


def test_one_changed_byte_of_the_library_is_noticed(artifact: Path) -> None:
    library = library_of(artifact)
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    assert code_of(artifact) == "SM-ARTIFACT-002"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_folder_that_others_can_write_is_refused(artifact: Path, mode: int) -> None:
    artifact.chmod(mode)
    assert code_of(artifact) == "SM-ARTIFACT-003"


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_library_that_others_can_write_is_refused(artifact: Path, mode: int) -> None:
    library_of(artifact).chmod(mode)
    assert code_of(artifact) == "SM-ARTIFACT-003"


def test_a_folder_whose_parent_anyone_can_write_is_refused(artifact: Path) -> None:
    artifact.parent.chmod(0o777)
    assert code_of(artifact) == "SM-ARTIFACT-003"
    artifact.parent.chmod(0o1777)
    open_artifact(artifact)


@pytest.mark.parametrize("name", ["../x.so", "/etc/passwd", "a/b.so", "..", "", "a\\b", "a\0b"])
def test_a_library_outside_the_folder_is_refused(artifact: Path, name: str) -> None:
    set_library(artifact, {"file": name, "sha256": "0" * 64})
    assert code_of(artifact) == "SM-ARTIFACT-003"


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/bin/true")])
def test_what_is_not_a_plain_file_is_not_loaded(artifact: Path, make: Callable[[Path], None]) -> None:
    make(artifact / "other.so")
    set_library(artifact, {"file": "other.so", "sha256": "0" * 64})
    assert code_of(artifact) == "SM-ARTIFACT-001"


def test_a_file_of_another_user_is_refused(artifact: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(library_of(artifact), 12345, 12345)
    assert code_of(artifact) == "SM-ARTIFACT-003"
