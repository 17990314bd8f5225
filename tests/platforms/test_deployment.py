"""An artifact made here runs elsewhere: other releases, folders, CPUs and compilers, and another language."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from travel import HERE, make_cases, run

TOLERANCE = 1e-5
RELEASES = ("1.17.3", "1.22.1")


def deployed(*prefix: object, cases: Path, **options: object) -> dict[str, object]:
    done = run(*prefix, HERE / "deployed.py", cases, **options)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    answer = json.loads(done.stdout)
    assert answer["error"] < TOLERANCE, answer
    assert answer["present"] == []
    return answer


def isolated_python(packages: Path) -> list[str]:
    """Python that sees its standard library and one folder of packages: no site-packages, no environment."""
    start = "import sys, runpy; sys.path.append(sys.argv[1]); sys.argv[:2] = [];"
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"{start} runpy.run_path(sys.argv[0], run_name='__main__')",
        str(packages),
    ]


def installed(folder: Path, release: str) -> Path:
    numpy = "numpy<2" if release.startswith("1.17") else "numpy"
    done = run(sys.executable, "-m", "pip", "install", "-q", "--target", folder, f"onnxruntime=={release}", numpy)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_deployment_needs_onnxruntime_alone(cases: Path) -> None:
    assert deployed(sys.executable, "-I", cases=cases)["ort"] == ort.__version__


@pytest.mark.full
@pytest.mark.skipif(sys.version_info[:2] > (3, 12), reason="the oldest release has no wheel for this Python")
@pytest.mark.parametrize("release", [*RELEASES, ort.__version__])
def test_releases_of_onnxruntime(cases: Path, tmp_path: Path, release: str) -> None:
    python = isolated_python(installed(tmp_path / "packages", release))
    for name in ("smelt", "torch", "onnx"):
        assert run(*python[:-2], f"import sys; sys.path.append({python[-1]!r}); import {name}").returncode != 0
    assert deployed(*python, cases=cases)["ort"] == release


def test_a_moved_folder_runs(copied: Path) -> None:
    deployed(sys.executable, "-I", cases=copied, cwd="/")


def test_a_folder_that_nobody_can_write_runs_and_stays_as_it_is(copied: Path) -> None:
    everything = [copied, *copied.rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in everything}
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        deployed(sys.executable, "-I", cases=copied)
        assert {path: path.stat().st_mtime_ns for path in [copied, *copied.rglob("*")]} == before
    finally:
        for path in everything:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_an_artifact_names_no_path_of_its_maker(cases: Path) -> None:
    for path in cases.glob("*/artifact/*"):
        content = path.read_bytes()
        for place in (str(cases.parent), str(HERE.parents[1])):
            assert place.encode() not in content, path


# --- compilers -------------------------------------------------------------------------------------------------------


def without_compilers(folder: Path) -> str:
    """A PATH on which no C compiler is found, but everything else that a build may start."""
    folder.mkdir()
    for name in ("sh", "env", "uname"):
        (folder / name).symlink_to(shutil.which(name) or "/bin/false")
    return str(folder)


@pytest.mark.full
def test_zig_alone_compiles_the_models(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    path = without_compilers(tmp_path / "bin")
    made = make_cases(tmp_path / "cases", environment={"PATH": path})
    manifest = json.loads((made / "micro" / "artifact" / "manifest.json").read_text())
    assert "zig" in manifest["library"]["compiler"]
    deployed(sys.executable, "-I", cases=made)


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("clang"), reason="no clang")
def test_clang_compiles_the_models(tmp_path: Path) -> None:
    made = make_cases(tmp_path / "cases", environment={"SMELT_CC": "clang"})
    deployed(sys.executable, "-I", cases=made)


# --- CPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_every_level_of_this_machine_gives_the_same(cases: Path, level: str) -> None:
    """A level that this CPU lacks falls back to the best one below it."""
    deployed(sys.executable, "-I", cases=cases, env={**os.environ, "SMELT_LEVEL": level})


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
@pytest.mark.parametrize("cpu", ["Nehalem", "Haswell"])
def test_old_cpus_run_the_artifact(cases: Path, cpu: str) -> None:
    """Nehalem is x86-64-v2: an AVX instruction in its way ends in SIGILL."""
    deployed("qemu-x86_64", "-cpu", cpu, sys.executable, "-I", cases=cases)


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
def test_the_emulated_old_cpu_does_refuse_newer_code(tmp_path: Path) -> None:
    """The test above can fail: code of the level above dies on that CPU."""
    source = tmp_path / "wide.c"
    source.write_text(
        "#include <immintrin.h>\n"
        "int main(int n, char **v) { (void)v; __m256i a = _mm256_set1_epi32(n); a = _mm256_add_epi32(a, a);"
        " return _mm256_extract_epi32(a, 3) == 77; }\n"
    )
    program = tmp_path / "wide"
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no gcc or clang")
    assert run(compiler, "-O0", "-march=x86-64-v3", source, "-o", program).returncode == 0
    assert run("qemu-x86_64", "-cpu", "Haswell", program).returncode == 0
    assert run("qemu-x86_64", "-cpu", "Nehalem", program).returncode < 0


# --- another language ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    compiler = shutil.which("gcc") or shutil.which("clang")
    found = sorted((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))
    if compiler is None or not found:
        pytest.skip("needs a C compiler, and a wheel with libonnxruntime.so")
    program = tmp_path_factory.mktemp("c") / "deploy"
    source = HERE.parents[1] / "examples" / "deploy_c" / "deploy.c"
    done = run(compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", program, "-ldl")
    assert done.returncode == 0, done.stderr
    return lambda *arguments: run(program, found[0], *arguments)


def test_a_c_program_runs_the_artifact(
    cases: Path, tmp_path: Path, c_program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with np.load(cases / "micro" / "calls" / "2.npz") as call:
        call["x"].tofile(tmp_path / "x.bin")
        wanted, rows = call["expected_y"], len(call["x"])
    done = c_program(cases / "micro" / "artifact", f"x:float:{rows}x33:{tmp_path / 'x.bin'}", f"y:{tmp_path / 'y.bin'}")
    assert done.returncode == 0, done.stderr
    assert f"y: float {rows}x33" in done.stdout
    made = np.fromfile(tmp_path / "y.bin", np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


def test_a_c_program_runs_the_encoder(
    cases: Path, tmp_path: Path, c_program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with np.load(cases / "encoder" / "calls" / "1.npz") as call:
        arguments = []
        for name in ("ids", "mask"):
            call[name].tofile(tmp_path / name)
            arguments.append(f"{name}:int64:{'x'.join(map(str, call[name].shape))}:{tmp_path / name}")
        wanted = call["expected_y"]
    done = c_program(cases / "encoder" / "artifact", *arguments, f"y:{tmp_path / 'y'}")
    assert done.returncode == 0, done.stderr
    made = np.fromfile(tmp_path / "y", np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "usage"), (("nowhere",), "manifest"), (("{artifact}", "x:float:2x9:/dev/zero"), "33")],
    ids=["none", "absent", "shape"],
)
def test_the_c_program_says_what_is_wrong(
    cases: Path, c_program: Callable[..., subprocess.CompletedProcess[str]], arguments: tuple[str, ...], words: str
) -> None:
    artifact = cases / "micro" / "artifact"
    done = c_program(*(argument.format(artifact=artifact) for argument in arguments), *(["y:-"] if arguments else []))
    assert done.returncode != 0
    assert words in done.stderr
