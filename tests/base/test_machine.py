"""The machine record: read from sysfs, faked, and equal to what the C side makes of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests import host_compiler

import smelt
from smelt.base.errors import ConfigError
from smelt.base.machine import REFERENCE, Machine, find_machine
from smelt.codegen.machine_sizes import formulas, machine_sizes

INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
# As they were measured on a machine with 1 MB of L2 and two cores; each is felt by the speed of some model.
MEASURED = {
    "near_panels": 262144, "near_rows": 1 << 20, "row_affine_bytes": 1 << 20, "b_streaming_bytes": 4 << 20,
    "block_floats": 8192, "gemm_tasks": 48, "gemm_rounds": 24, "unpacked_tasks": 24, "fused_floats": 1 << 18,
    "b2b_floats": 8192, "group_bytes": 1 << 19, "epilogue_floats": 1 << 17,
    "b2b_most": 131072, "b2b_team": 48, "window_tasks": 32, "window_blocks": 8, "window_panels": 200000,
    "window_part": 8192, "window_k_block": 65536, "winograd_near": 450000, "winograd_tasks": 8,
    "tile_bytes": 640 * 1024, "tile_image_bytes": 768 * 1024, "least_tiles": 6, "most_tasks": 128,
    "cell_span_floats": 40960, "nontemporal_bytes": 1 << 18, "gemm_rows": 144, "int8_block_bytes": 192 << 10,
    "int8_panel_bytes": 20 << 10,
}  # fmt: skip
PROBE = """
#include <smelt/base/machine_load.h>
#include <stdio.h>
int main(void) {
  const char *strange = smelt_machine_load();
  if (strange) return printf("%s\\n", strange), 1;
#define SMELT_SIZE(name, formula, what) printf("%s %lld\\n", #name, (long long)smelt_sizes.name);
#include <smelt/base/machine_sizes.h>
  return 0;
}
"""
FAKES = (
    Machine(), Machine(l1_bytes=49152, processors=1, threads=1), Machine(l2_bytes=1310720, processors=64, threads=64),
    Machine(l1_bytes=8 << 10, l2_bytes=128 << 10, processors=300, threads=300), Machine(l2_bytes=16 << 20, threads=17),
)  # fmt: skip


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE)
    program = folder / "probe"
    command = [*host_compiler.command(), f"-I{INCLUDE}", str(folder / "probe.c"), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def run(probe: Path, machine: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SMELT_MACHINE": machine}
    return subprocess.run([probe], env=environment, capture_output=True, text=True, check=False)


def spelled(m: Machine) -> str:
    return f"l1={m.l1_bytes},l2={m.l2_bytes},l3={m.l3_bytes},processors={m.processors},threads={m.threads}"


def test_the_reference_machine_has_the_sizes_that_were_measured() -> None:
    assert dict(machine_sizes(REFERENCE)) == MEASURED


@pytest.mark.parametrize("machine", FAKES, ids=spelled)
def test_python_and_c_compute_the_same_sizes(probe: Path, machine: Machine) -> None:
    made = run(probe, spelled(machine))
    found = {name: int(value) for name, value in (line.split() for line in made.stdout.splitlines())}
    assert made.returncode == 0 and found == dict(machine_sizes(machine)) and found.keys() == formulas().keys()


def test_c_reads_the_caches_that_sysfs_tells(probe: Path) -> None:
    """But for threads, which the test tells."""
    here = find_machine()
    made = run(probe, f"threads={here.threads}")
    found = {name: int(value) for name, value in (line.split() for line in made.stdout.splitlines())}
    assert found == dict(machine_sizes(here))


@pytest.mark.parametrize("text", ["l4=1", "l2", "l2=", "l2=x", "threads=4;l2=1", "threads=4,cores=2"])
def test_what_is_no_machine_is_refused(probe: Path, text: str) -> None:
    made = run(probe, text)
    assert made.returncode == 1 and made.stdout.strip() in text


def test_an_unknown_field_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no 'cores'") as found:
        REFERENCE.with_(cores=4)
    assert "l2_bytes" in found.value.hint and REFERENCE.with_(threads=4).threads == 4


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    for place, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2M")]):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{place}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    found = find_machine(tmp_path)
    assert (found.l1_bytes, found.l2_bytes, found.l3_bytes) == (48 << 10, 2 << 20, REFERENCE.l3_bytes)
