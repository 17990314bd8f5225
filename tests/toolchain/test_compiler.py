"""The search for a compiler: order, named compilers, what is refused and why."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt.base import Config, NoCompilerError, host_arch
from smelt.toolchain import compiler as compiler_module
from smelt.toolchain import find_compiler, list_compilers

OTHER = "aarch64" if host_arch() == "x86-64" else "x86-64"


def config_with(tmp_path: Path, **variables: str) -> Config:
    return Config.from_env({"SMELT_CACHE_DIR": str(tmp_path / "cache"), "PATH": os.environ["PATH"], **variables})


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def imitation(folder: Path, name: str, kind: str, version: str, arch: str = host_arch()) -> Path:
    """A program that answers as a compiler does when asked for its macros."""
    names = {
        "gcc": ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"),
        "clang": ("__clang_major__", "__clang_minor__", "__clang_patchlevel__"),
    }[kind]
    macros = dict(zip(names, version.split("."), strict=True)) | {
        "__linux__": "1",
        f"__{arch.replace('-', '_')}__": "1",
    }
    if kind == "clang":
        macros |= {"__clang__": "1", "__GNUC__": "4"}
    return program(folder, name, "\n".join(f"echo '#define {macro} {value}'" for macro, value in macros.items()))


@pytest.fixture
def without_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_module, "_zig_of_package", lambda: None)
    compiler_module._inspect.cache_clear()


@pytest.fixture(autouse=True)
def forget_probes():
    yield
    compiler_module._inspect.cache_clear()


def test_zig_takes_over_where_every_compiler_is_hidden(tmp_path: Path):
    found = find_compiler(config_with(tmp_path, PATH=str(tmp_path)))
    assert found.kind == "zig"
    assert found.makes("x86-64") and found.makes("aarch64")


def test_no_compiler_at_all_is_an_error_that_names_a_remedy(tmp_path: Path, without_zig: None):
    with pytest.raises(NoCompilerError, match="pip install ziglang") as caught:
        find_compiler(config_with(tmp_path, PATH=str(tmp_path)))
    assert caught.value.code == "SM-TOOL-001"


def test_cc_comes_before_gcc_before_clang(tmp_path: Path):
    folder = tmp_path / "bin"
    imitation(folder, "clang", "clang", "16.0.1")
    assert find_compiler(config_with(tmp_path, PATH=str(folder))).kind == "clang"
    imitation(folder, "gcc", "gcc", "13.2.0")
    compiler_module._inspect.cache_clear()
    assert find_compiler(config_with(tmp_path, PATH=str(folder))).version == "13.2.0"
    imitation(folder, "cc", "gcc", "14.1.0")
    compiler_module._inspect.cache_clear()
    assert find_compiler(config_with(tmp_path, PATH=str(folder))).version == "14.1.0"


def test_a_named_compiler_may_have_arguments(tmp_path: Path):
    name = next((name for name in ("gcc", "clang") if shutil.which(name)), None)
    if name is None:
        pytest.skip("neither gcc nor clang is installed")
    found = find_compiler(config_with(tmp_path, SMELT_CC=f"{name} -pipe '-DX=a b'"))
    assert found.argv[1:] == ("-pipe", "-DX=a b")
    plain = find_compiler(config_with(tmp_path, SMELT_CC=name))
    assert plain.identity != found.identity


@pytest.mark.parametrize("spelled", ["zig", "zig cc", "ziglang", f"'{sys.executable}' -m ziglang cc"])
def test_zig_may_be_named_in_every_usual_way(tmp_path: Path, spelled: str):
    found = find_compiler(config_with(tmp_path, SMELT_CC=spelled))
    assert found.kind == "zig" and found.argv[-1] == "cc"


def test_zig_is_recognized_behind_a_wrapper_script(tmp_path: Path):
    zig = find_compiler(config_with(tmp_path, SMELT_CC="zig"))
    wrapper = program(tmp_path / "bin", "mycc", f'exec "{zig.argv[0]}" cc "$@"')
    found = find_compiler(config_with(tmp_path, SMELT_CC=str(wrapper)))
    assert (found.kind, found.argv) == ("zig", (str(wrapper),))


@pytest.mark.parametrize(
    ("spelled", "reason"),
    [
        ("no-such-compiler", "was not found"),
        ("'unbalanced", "quotes"),
        ("/bin/true", "not gcc, clang or zig"),
        ("/bin/false", "ended with 1"),
        ("/etc/passwd", "was not found"),
        ("''", "was not found"),
    ],
)
def test_a_compiler_named_by_smelt_cc_is_used_or_refused(tmp_path: Path, spelled: str, reason: str):
    with pytest.raises(NoCompilerError, match=reason) as caught:
        find_compiler(config_with(tmp_path, SMELT_CC=spelled))
    assert caught.value.code == "SM-TOOL-002"


def test_a_shell_never_sees_the_named_compiler(tmp_path: Path):
    with pytest.raises(NoCompilerError):
        find_compiler(config_with(tmp_path, SMELT_CC=f"nothing; touch {tmp_path}/made $(touch {tmp_path}/made)"))
    assert not (tmp_path / "made").exists()


def test_an_unusable_cc_is_passed_over_but_listed(tmp_path: Path):
    config = config_with(tmp_path, CC="no-such-compiler")
    assert find_compiler(config).kind in {"gcc", "clang", "zig"}
    first = list_compilers(config)[0]
    assert (first.origin, first.compiler) == ("CC", None) and "not found" in first.reason


def test_an_old_gcc_is_passed_over_with_its_reason(tmp_path: Path):
    imitation(tmp_path / "bin", "gcc", "gcc", "9.4.0")
    config = config_with(tmp_path, PATH=str(tmp_path / "bin"))
    assert find_compiler(config).kind == "zig"
    assert "gcc 9.4.0 is older than 11" in [candidate.reason for candidate in list_compilers(config)]


@pytest.mark.parametrize("extra", ["__INTEL_COMPILER 2021", "__ILP32__ 1"])
def test_what_only_looks_like_a_usable_gcc_is_refused(tmp_path: Path, extra: str):
    fake = imitation(tmp_path / "bin", "fake", "gcc", "12.2.0")
    assert find_compiler(config_with(tmp_path, SMELT_CC=str(fake))).kind == "gcc"
    fake.write_text(fake.read_text() + f"echo '#define {extra}'\n")
    compiler_module._inspect.cache_clear()
    with pytest.raises(NoCompilerError):
        find_compiler(config_with(tmp_path, SMELT_CC=str(fake)))


def test_a_compiler_that_hangs_when_asked_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler_module, "_PROBE_TIMEOUT_S", 0.3)
    slow = program(tmp_path / "bin", "slow", "/bin/sleep 60")
    with pytest.raises(NoCompilerError, match="did not answer"):
        find_compiler(config_with(tmp_path, SMELT_CC=str(slow)))


def test_another_architecture_is_compiled_by_zig(tmp_path: Path):
    assert find_compiler(config_with(tmp_path), OTHER).kind == "zig"


def test_a_compiler_for_this_machine_only_is_refused_for_another(tmp_path: Path, without_zig: None):
    with pytest.raises(NoCompilerError) as caught:
        find_compiler(config_with(tmp_path, PATH=str(tmp_path)), OTHER)
    assert caught.value.code == "SM-TOOL-003"
    named = imitation(tmp_path / "bin", "gcc", "gcc", "12.1.0")
    with pytest.raises(NoCompilerError, match="makes no code for") as caught:
        find_compiler(config_with(tmp_path, SMELT_CC=str(named)), OTHER)
    assert caught.value.code == "SM-TOOL-003"


def test_identity_changes_with_the_program(tmp_path: Path, make_compiler: Callable[[str], Path]):
    one = find_compiler(config_with(tmp_path, SMELT_CC=str(make_compiler("real(*sys.argv[1:])\n"))))
    two = find_compiler(config_with(tmp_path, SMELT_CC=str(make_compiler("real(*sys.argv[1:])\n"))))
    assert one.identity.split()[:2] == two.identity.split()[:2]
    assert one.identity != two.identity
