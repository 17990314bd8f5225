"""Numbers that Python and the C headers both state: scratch memory, places in `task->s`, and where forms end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests import host_compiler

import smelt
from smelt.codegen.c.layout import (
    arrangement,
    block_quantized,
    convolution,
    grouped_queries,
    int8_panels,
    nbits_panels,
    recurrent,
    window_sizes,
)

INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
# By header, what an expression of C is in Python.
SHARED: dict[str, dict[str, int]] = {
    "recurrent/recurrent_unit.h": {
        "sizeof(smelt_cell_share)": recurrent.SHARE_BYTES,
        "SMELT_CELL_FUSED_ROWS": recurrent.FUSED_ROWS,
        "SMELT_CELL_PANEL": arrangement.PANEL,
        **{f"SMELT_RS_{number.name}": number.value for number in recurrent.Number},
    },
    "attention/grouped_queries_unit.h": {
        "SMELT_GQ_SPAN": grouped_queries.SPAN,
        "SMELT_GQ_FEW": grouped_queries.FEW,
        "SMELT_GEMM_PANEL": grouped_queries.PANEL,
        "SMELT_GS_HEADS": grouped_queries.HEADS,
        "SMELT_GS_KV_HEADS": grouped_queries.KV_HEADS,
        "SMELT_GS_TOTAL": grouped_queries.TOTAL,
    },
    "nbits/nbits_unit.h": {
        "SMELT_NB_PANEL": nbits_panels.NR,
        "SMELT_NB_ROWS": block_quantized.MOST_ROWS,
        "sizeof(smelt_nb_header) / SMELT_NB_ROWS": block_quantized.HEADER_BYTES,
    },
    "int8/int8_unit.h": {
        "SMELT_INT8_PANEL": int8_panels.NR,
        "sizeof(smelt_int8_header)": int8_panels.HEADER_BYTES,
    },
    "conv/window_unit.h": {
        "SMELT_LINES_FLOATS": window_sizes.LINES_FLOATS,
        "SMELT_LINES_DEPTH": window_sizes.LINES_DEPTH,
        "SMELT_LINES_WINDOWS": window_sizes.LINES_WINDOWS,
        "SMELT_PATCH_TAPS": window_sizes.PATCH_TAPS,
        "SMELT_WINOGRAD_PIXELS": window_sizes.LEAST_PIXELS,
        "SMELT_WINOGRAD_CHANNELS": window_sizes.LEAST_CHANNELS,
        "SMELT_CONVOLVE_KC": convolution.MOST_NCHW_DEPTH,
        "sizeof((smelt_window){0}.kernel) / sizeof(int64_t)": window_sizes.MOST_AXES,
    },
}


def checked(folder: Path, header: str, numbers: Mapping[str, int]) -> str:
    """What the compiler says where a number is another one in C."""
    asserted = "".join(f'_Static_assert(({c}) == {number}, "{c} is not {number}");\n' for c, number in numbers.items())
    text = f"#define SMELT_LEVEL probe\n#define SMELT_VL 64\n#include <smelt/{header}>\n{asserted}"
    (folder / "probe.c").write_text(text)
    command = [*host_compiler.command(), "-std=gnu11", "-w", "-fsyntax-only", f"-I{INCLUDE}", "probe.c"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("header", SHARED)
def test_python_and_c_state_the_same_numbers(header: str, tmp_path: Path) -> None:
    assert not checked(tmp_path, header, SHARED[header])
    name, number = next(iter(SHARED[header].items()))
    assert f"{name} is not {number + 1}" in checked(tmp_path, header, {name: number + 1})
