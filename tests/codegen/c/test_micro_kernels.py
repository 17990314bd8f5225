"""The registry of micro-kernels against the headers, as the preprocessor sees them for every build."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import smelt
from smelt.base import TARGETS, CodegenError, ConfigError, Target
from smelt.base.features import with_needed
from smelt.codegen.c.micro_kernels import MICRO_KERNELS, MicroKernel, MicroKernels, page

INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
HEADERS = sorted({kernel.header for kernel in MICRO_KERNELS})
DEFINED = re.compile(r"\bvoid smelt_(\w+_\d+x\d+(?:c\d+)?__\w+)\s*\(")


def defined(header: str, target: Target) -> set[str]:
    """The micro-kernels that a unit with this header has. The preprocessor alone can pretend to be on another CPU."""
    text = f"#define SMELT_TILES_UNIT\n#include <smelt/{header}>\n"
    flags = (
        [f"-march={target.march}"]
        if target.arch == "x86-64"
        else ["-ffreestanding", "-U__x86_64__", "-U__SSE2__", "-D__aarch64__"]
    )
    flags += ["-D__ARM_FEATURE_FP16_VECTOR_ARITHMETIC=1"] if target.isa == "neonfp16" else []
    command = ["gcc", "-std=gnu11", "-E", "-P", *flags, *target.defines, f"-I{INCLUDE}", "-x", "c", "-"]
    return set(DEFINED.findall(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for x86-64")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_headers_define_what_is_registered(target: Target) -> None:
    whole = set[str]()
    for header in HEADERS:
        whole |= defined(header, target)
    assert whole == {kernel.name for kernel in MICRO_KERNELS if kernel.target == target}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for x86-64")
def test_a_header_defines_its_own() -> None:
    for header in HEADERS:
        names = {kernel.name for kernel in MICRO_KERNELS if kernel.header == header}
        found = {name for target in TARGETS for name in defined(header, target)}
        assert names and names <= found, header


def test_names_tell_all() -> None:
    kernel = MicroKernel("gemm", "avx512vnni", "u8", "i8", "i32", 12, 32, 4, "int8/int8_tiles.h")
    assert kernel.name == "u8i8i32_gemm_12x32c4__avx512vnni" and kernel.family == "u8i8i32_gemm"
    assert MICRO_KERNELS.by_name[kernel.name] == kernel
    assert "f32_gemm_6x16__avx2" in MICRO_KERNELS.by_name


def test_a_machine_uses_the_kernels_of_its_best_features() -> None:
    def features(family: str, *names: str) -> set[str]:
        return {kernel.feature for kernel in MICRO_KERNELS.of(family, with_needed(*names))}

    assert features("u8i8i32_gemm", "avx512", "avxvnni") == {"avx512", "avxvnni"}
    assert features("u8i8i32_gemm", "avx512vnni", "avx512bf16") == {"avx512vnni"}
    assert features("i16i8i32_gemm", "avx512vnni") == {"avx512"}
    assert features("f32_gemm", "sse4") == {"sse4"} and features("f32_gemm", "bf16", "dotprod") == {"neonfp16"}


def test_unknown_features_and_types_and_second_kernels_are_errors() -> None:
    one = MicroKernel("gemm", "avx2", "f32", "f32", "f32", 6, 16, 1, "mine.h")
    with pytest.raises(CodegenError, match="two micro-kernels f32_gemm_6x16__avx2"):
        MICRO_KERNELS.register(one)
    with pytest.raises(ConfigError, match=r"avx9.*avx512vnni"):
        MicroKernels([MicroKernel("gemm", "avx9", "f32", "f32", "f32", 6, 16, 1, "mine.h")])
    with pytest.raises(KeyError, match=r"f99.*bf16"):
        MicroKernels([MicroKernel("gemm", "avx2", "f99", "f32", "f32", 6, 16, 1, "mine.h")])


def test_the_page_is_up_to_date() -> None:
    written = (Path(__file__).parents[3] / "docs" / "micro_kernels.md").read_text(encoding="utf-8")
    assert written == page(), "run python -m smelt.codegen.c.micro_kernels > docs/micro_kernels.md"
