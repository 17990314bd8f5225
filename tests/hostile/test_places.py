"""Folders and caches that are not as they should be: nothing is lost, nothing is left, nothing foreign is loaded."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from build import F, model, node

import smelt
from smelt.base import Config
from smelt.base.errors import ArtifactError, CacheError, SmeltError

X = np.arange(4, dtype=np.float32)


@pytest.fixture
def proto() -> onnx.ModelProto:
    return model([node("Exp", "x", "a"), node("Neg", "a", "y")], {"x": (F, [4])}, {"y": (F, [4])})


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_env().with_(cache_dir=tmp_path / "cache")


@pytest.fixture
def compile_(proto: onnx.ModelProto, config: Config) -> Callable[..., smelt.CompiledModel]:
    def compile_(output: Path, **options: object) -> smelt.CompiledModel:
        settings = {"levels": "v2", "force": True, "verify": False, "config": config, **options}
        return smelt.compile(proto, output, **settings)

    return compile_


def is_right(made: smelt.CompiledModel) -> bool:
    return np.allclose(made.run({"x": X})[0], -np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling", "fake"])
def test_an_output_that_holds_something_else_is_kept(tmp_path: Path, compile_: Callable, kind: str) -> None:
    place, other = tmp_path / "out", tmp_path / "other"
    if kind == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("years of work")
    elif kind == "file":
        place.write_text("a file")
    elif kind == "fake":
        place.mkdir()
        (place / "manifest.json").write_text("[1, 2]")
    else:
        place.symlink_to(other)
        if kind == "link":
            other.mkdir()
            (other / "kept").touch()
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    with pytest.raises(ArtifactError, match="SM-ARTIFACT-004"):
        compile_(place)
    after = [str(p) for p in tmp_path.rglob("*") if "cache" not in p.parts]
    assert sorted(after) == before


def test_an_older_artifact_survives_a_failed_compilation(tmp_path: Path, compile_: Callable, config: Config) -> None:
    compile_(tmp_path / "out").close()
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    broken = model([node("Add", "x nowhere", "y")], {"x": (F, [4])}, {"y": (F, [4])})
    with pytest.raises(SmeltError):
        smelt.compile(broken, tmp_path / "out", config=config)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "out"]


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path, compile_: Callable, config: Config) -> None:
    with pytest.raises(SmeltError):
        compile_(tmp_path / "out", config=config.with_(cflags="-DSMELT_VL=oops"))
    assert not (tmp_path / "out").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_folder_that_cannot_be_written_is_an_error(tmp_path: Path, compile_: Callable) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises((SmeltError, OSError)):
        compile_(tmp_path / "locked" / "out")


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path, compile_: Callable) -> None:
    compile_(tmp_path / "one").close()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(CacheError, match="chmod"):
        compile_(tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_changed_library_in_the_cache_is_built_again(tmp_path: Path, compile_: Callable) -> None:
    compile_(tmp_path / "one").close()
    libraries = list((tmp_path / "cache").rglob("*.so"))
    assert libraries
    for library in libraries:
        library.chmod(0o700)
        library.write_bytes(b"\x7fELF" + b"evil" * 100)
    with compile_(tmp_path / "two") as made:
        assert is_right(made)


@pytest.mark.parametrize("damage", ["changed", "missing", "writable", "outside"])
def test_a_changed_artifact_is_not_loaded(tmp_path: Path, compile_: Callable, damage: str) -> None:
    from smelt.runtime import Executable

    compile_(tmp_path / "out").close()
    (library,) = (tmp_path / "out").glob("*.so")
    if damage == "changed":
        library.write_bytes(library.read_bytes() + b"\0")
    elif damage == "missing":
        library.unlink()
    elif damage == "writable":
        library.chmod(0o666)
    else:
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        manifest["library"]["file"] = f"../{library.name}"
        library.rename(tmp_path / library.name)
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError) as caught:
        Executable.open(tmp_path / "out")
    assert caught.value.hint


def command(*arguments: object, cache: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(smelt.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "SMELT_CACHE_DIR": str(cache), "SMELT_VERIFY": "0"}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))

    return subprocess.run(
        [sys.executable, "-m", "smelt.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=200, env=environment, preexec_fn=limit,
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"rubbish", b"", None], ids=["rubbish", "empty", "absent"])
def test_the_command_line_says_what_is_wrong_and_leaves_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    done = command("compile", path, "-o", tmp_path / "out", cache=tmp_path / "cache")
    assert done.returncode not in (0, -6, -11)
    assert "SM-LOAD" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_the_command_line_takes_strange_names(tmp_path: Path) -> None:
    red = "x\n\x1b[31m"
    nodes = [node("Exp", [red], ["a"], name="%n\0"), node("Neg", ["a"], ["y*/"])]
    strange = model(nodes, {red: (F, [4])}, {"y*/": (F, [4])})
    path = tmp_path / "--help; touch pwned.onnx"
    path.write_bytes(strange.SerializeToString())
    done = command("compile", "-o", tmp_path / "out", "--force", "--", path, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert "\x1b[31m" not in done.stdout, "control characters of a model reach the terminal"
