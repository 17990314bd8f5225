"""Kernels for CPUs that this machine is not: AArch64 under emulation, and 64-byte vectors without AVX-512."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from travel import HERE, MODELS, run, write_calls

from smelt.artifact import replace_library
from smelt.base import Config, Target, host_arch
from smelt.check.dump import CALLS, read_sources
from smelt.check.standalone_program import standalone
from smelt.codegen.c.backend import INCLUDE
from smelt.pipeline import Options, compile_to
from smelt.toolchain import Cache, build, find_compiler

AARCH64_ROOT = Path("/usr/aarch64-linux-gnu")
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
on_x86 = pytest.mark.skipif(host_arch() != "x86-64", reason="needs an x86-64 machine")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    cache = tmp_path_factory.mktemp("architectures") / "cache"
    return Config.from_env({"PATH": os.environ["PATH"], "SMELT_CACHE_DIR": str(cache), "SMELT_STRICT": "1"})


@pytest.mark.skipif(not shutil.which("qemu-aarch64") or not AARCH64_ROOT.exists(), reason="needs qemu-user and a libc")
@on_x86
@pytest.mark.parametrize("name", MODELS)
def test_aarch64_kernels_give_what_stock_gives(name: str, tmp_path: Path, config: Config) -> None:
    """Calls are dumped by verification here, and run by the cross-compiled kernels under emulation."""
    pytest.importorskip("ziglang")
    here = Options(force=True, levels=("v2",), dump=tmp_path / "here")
    compile_to(MODELS[name](), tmp_path / "artifact-here", here, config)
    there = Options(force=True, arch="aarch64", dump=tmp_path / "there")
    made = compile_to(MODELS[name](), tmp_path / "artifact-there", there, config)
    assert made.artifact.manifest["library"]["targets"] == ["armv8", "armv82"]
    header = Path(made.artifact.library_path or "").read_bytes()[:20]
    assert header[18:20] == b"\xb7\0"  # EM_AARCH64
    shutil.copytree(tmp_path / "here" / CALLS, tmp_path / "there" / CALLS)
    sources = [read_sources(tmp_path / side, (INCLUDE,)) for side in ("here", "there")]
    assert sources[0][2] == sources[1][2], "the two compilations name their regions differently"
    regions = {entry: region for region, entry in sources[1][2].items()}
    assert regions
    for region in regions.values():
        program = standalone(tmp_path / "there", region, config)
        for cpu, level in (("cortex-a53", "armv8"), ("max", "armv82")):
            emulator = ("qemu-aarch64", "-L", AARCH64_ROOT, "-cpu", cpu)
            done = run(*emulator, *program.command, "--runs", 1, "--threads", 2, "--tolerance", 1e-5)
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"level {level}" in done.stdout and "result: as expected" in done.stdout


@on_x86
@pytest.mark.parametrize("name", MODELS)
def test_vectors_of_64_bytes_are_right_without_avx512(name: str, tmp_path: Path, config: Config) -> None:
    """The baseline entry of a library is replaced by the widest source, compiled for x86-64-v3."""
    proto = MODELS[name]()
    options = Options(force=True, verify=False, levels=("v2",), dump=tmp_path / "d")
    made = compile_to(proto, tmp_path / "narrow", options, config)
    source, _, _ = read_sources(tmp_path / "d", (INCLUDE,))
    wide = (Target("v2", "x86-64", 0, 64, "x86-64-v3", "x86_64_v3", "avx2"),)
    library = build(source, wide, find_compiler(config), Cache(config.cache_dir), config)
    assert library.sha256 != (made.library and made.library.sha256)
    case = tmp_path / "cases" / name
    replace_library(tmp_path / "narrow", library, case / "artifact")
    write_calls(case / "calls", name, proto.SerializeToString())
    done = run(sys.executable, "-I", HERE / "deployed.py", tmp_path / "cases")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["error"] < 1e-5
