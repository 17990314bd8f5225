"""Builds the provider's library into the package.

Input: csrc/*.c and a C compiler: $CC, cc, gcc, clang, or the wheel `ziglang`. Output: a wheel for one platform and any
Python 3. Invariant: plain C, no header and no library of ONNX Runtime; only two functions are exported.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
PACKAGE = "onnxruntime_ep_smelt"
LIBRARY = f"lib{PACKAGE}.so"
FLAGS = ["-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-cast-function-type"]
ZIG_GLIBC = "2.28"  # what a library built by zig asks for: the tag manylinux_2_28


def release() -> str:
    text = (HERE / "src" / PACKAGE / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    assert found is not None
    return found.group(1)


def compiler() -> list[str]:
    named = os.environ.get("CC", "").strip()
    if named:
        return shlex.split(named)
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-gnu.{ZIG_GLIBC}", "-g0"]
    raise SystemExit("onnxruntime-ep-smelt needs a C compiler: set CC, install gcc or clang, or `pip install ziglang`")


def compile_library(target: Path) -> None:
    sources = sorted(str(path) for path in (HERE / "csrc").glob("*.c"))
    defined = f'-DSMELT_EP_RELEASE="{release()}"'
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*compiler(), *FLAGS, defined, "-o", str(target), *sources, "-ldl", "-lpthread"], check=True)


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        target = HERE / "src" if self.editable_mode else Path(self.build_lib)
        compile_library(target / PACKAGE / LIBRARY)


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        system = super().get_tag()[2]
        if "ziglang" in compiler() or "zig" in Path(compiler()[0]).name:
            system = f"manylinux_{ZIG_GLIBC.replace('.', '_')}_{platform.machine()}"
        return "py3", "none", system


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


if __name__ == "__main__":
    setup(
        version=release(),
        cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
        distclass=WithLibrary,
    )
