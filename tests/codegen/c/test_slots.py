"""Memory of tasks: as many slots as threads that run, never one for two, used again by the next kernel."""

import subprocess
from pathlib import Path

from tests import host_compiler

import smelt

HERE = Path(__file__).parent
INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"


def test_kernels_share_the_slots_of_the_threads_that_run(tmp_path: Path):
    program = tmp_path / "probe"
    source = HERE / "slots_probe.c"
    command = [
        *host_compiler.command(),
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{INCLUDE}",
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run([*command, "-lpthread"], check=True, timeout=60)
    answer = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=60).stdout
    blocks, used, done, clashes = map(int, answer.split())
    assert (blocks, clashes) == (1, 0)
    assert used <= 4
    assert done == 20 * 100
