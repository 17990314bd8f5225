"""The tests of kernels and the fuzz suites once more, in libraries that check every access to memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from smelt.base.config import Config, child_environment
from smelt.toolchain import bounds_environment, find_compiler

TESTS = Path(__file__).parent.parent
SUITES = {
    "sizes": ["fuzz/test_run_time_sizes.py"],
    "networks": ["codegen/test_random_networks.py"],
    "graphs": ["codegen/test_random_graphs.py", "codegen/test_attention_fuzz.py"],
    "regions": ["codegen", "--ignore-glob=*random_*", "--ignore-glob=*fuzz*", f"--ignore={TESTS}/codegen/c"],
    "operators": ["ops"],
}


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", SUITES)
def test_kernels_keep_to_their_memory(suite: str) -> None:
    what = [str(TESTS / part) if (TESTS / part).exists() else part for part in SUITES[suite]]
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "1",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "3000",
        *what,
    )
    environment = child_environment(bounds_environment(find_compiler(Config.from_env())))
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-6000:]
