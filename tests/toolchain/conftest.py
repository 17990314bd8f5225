"""A small library with one kernel per level, compilers to build it, and a cache of its own for each test."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt.base import Config, Target, host_arch, levels_of
from smelt.ir.records import Source, Unit
from smelt.toolchain import Cache, Compiler, find_compiler

KERNEL = """
#include <stdint.h>
#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
typedef float vec __attribute__((vector_size(SMELT_VL)));
int64_t PASTE(square_plus, SMELT_LEVEL)(float *x) {
  vec v;
  __builtin_memcpy(&v, x, sizeof v);
  v = v * v + v;
  __builtin_memcpy(x, &v, sizeof v);
  return SMELT_VL;
}
"""


def glue(targets: tuple[Target, ...], marker: str = "default") -> str:
    """One exported function that calls the kernel of a level; 0 for a level that was not built."""
    rows = "".join(
        f"#ifdef SMELT_HAVE_{target.name}\n"
        f"  if (level == {target.index}) return square_plus_{target.name}(x);\n"
        "#endif\n"
        for target in targets
    )
    declared = "".join(f"int64_t square_plus_{target.name}(float *);\n" for target in targets)
    return (
        f"#include <stdint.h>\n{declared}"
        f'__attribute__((visibility("{marker}"))) int64_t RegisterCustomOps(int64_t level, float *x) {{\n{rows}'
        "  (void)x;\n  return 0;\n}\n"
    )


@pytest.fixture
def make_source() -> Callable[..., Source]:
    def make(arch: str | None = None, marker: str = "default", comment: str = "") -> Source:
        text = glue(levels_of(arch or host_arch()), marker)
        return Source((Unit("k0", KERNEL + comment), Unit("glue", text, per_level=False)), ())

    return make


@pytest.fixture
def source(make_source: Callable[..., Source]) -> Source:
    return make_source()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_env({"SMELT_CACHE_DIR": str(tmp_path / "cache"), "PATH": os.environ["PATH"]})


@pytest.fixture
def cache(config: Config) -> Cache:
    return Cache(config.cache_dir)


@pytest.fixture
def compiler(config: Config) -> Compiler:
    return find_compiler(config)


@pytest.fixture
def targets() -> tuple[Target, ...]:
    return levels_of(host_arch())


@pytest.fixture
def make_compiler(tmp_path: Path, compiler: Compiler) -> Callable[[str], Path]:
    """Write a program that says it is the real compiler, and runs `body` (Python) when told to compile.

    In `body`, `real(*arguments)` runs the real compiler in place of the program.
    """

    def make(body: str) -> Path:
        program = tmp_path / f"compiler{len(list(tmp_path.glob('compiler*')))}"
        program.write_text(
            f"#!{sys.executable} -S\n"
            "import os, sys, time\n"
            f"def real(*arguments): os.execv({compiler.argv[0]!r}, [*{list(compiler.argv)!r}, *arguments])\n"
            "if not {'-c', '-o'} & set(sys.argv): real(*sys.argv[1:])\n" + body,
            encoding="utf-8",
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    return make
