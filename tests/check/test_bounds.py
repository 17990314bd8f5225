"""Libraries that check bounds: an access beyond a tensor ends the process, and what verifies says why.

The first test runs in a process that was started with the sanitizer, by the second one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from smelt.base import ConfigError
from smelt.base.config import Config, child_environment
from smelt.check.watch import Limits, run_worker
from smelt.pipeline import Options, compile_to
from smelt.runtime import Executable
from smelt.toolchain import bounds_environment, find_compiler, sanitizer_is_loaded

OPTIONS = Options(levels=("v2",), force=True, verify=False, exclude=("MatMul", "Transpose"))
BEHIND = "if (((const volatile float *)env->in[0])[env->in_dims[0][0] * 8] > 1e30f) return 1;"  # x has 8 columns


@pytest.fixture
def bounds(config: Config) -> Config:
    return config.with_(bounds=True)


@pytest.mark.skipif(not sanitizer_is_loaded(), reason="runs in a process that has the sanitizer")
def test_a_read_behind_an_input(two_regions: onnx.ModelProto, spoil, bounds: Config, tmp_path: Path):
    x = np.ones((5, 8), np.float32)
    Executable.open(compile_to(two_regions, tmp_path / "right", OPTIONS, bounds).artifact).run({"x": x})
    print("kept to its bounds", flush=True)
    spoil(0, BEHIND)
    Executable.open(compile_to(two_regions, tmp_path / "wrong", OPTIONS, bounds).artifact).run({"x": x})


@pytest.mark.skipif(sanitizer_is_loaded(), reason="starts the process that has the sanitizer")
def test_a_read_behind_an_input_ends_the_process() -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", __file__)
    environment = child_environment(bounds_environment(find_compiler(Config.from_env())))
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "kept to its bounds" in ran.stdout and ran.returncode == -signal.SIGABRT, ran.stdout + ran.stderr
    assert "AddressSanitizer: heap-buffer-overflow" in ran.stderr and "READ of size 4" in ran.stderr, ran.stderr


@pytest.mark.skipif(sanitizer_is_loaded(), reason="runs in a process that has no sanitizer")
def test_without_the_sanitizer_an_error_says_what_to_load(two_regions, bounds: Config, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"LD_PRELOAD='[^']*libasan\.so"):
        compile_to(two_regions, tmp_path / "out", OPTIONS, bounds)


REPORTS = {
    "==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1": "AddressSanitizer: heap-buffer-overflow",
    "==1==ERROR: AddressSanitizer: stack-buffer-overflow on 0x1\n"
    "    #0 0x7f1 in memcpy ../../../src/libsanitizer/common.inc:827\n    #1 0x7f2 in k_v2 /tmp/a b/my.domain::K:5\n"
    "    #2 0x7f3 in r0_v2 /tmp/regions0.c:48": "AddressSanitizer: stack-buffer-overflow at my.domain::K:5",
    "/tmp/x/my.domain::K:3:9: runtime error: shift exponent 64": "my.domain::K:3:9: runtime error: shift exponent 64",
}


@pytest.mark.parametrize("report", REPORTS)
def test_what_a_sanitizer_said_is_the_reason(report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "planted.py").write_text(f"import os, sys\nprint({report!r}, file=sys.stderr)\nos.abort()\n")
    monkeypatch.syspath_prepend(tmp_path)
    ran = run_worker({}, tmp_path, Limits(20.0, 20.0), module="planted")
    assert ran.failure == f"died of SIGABRT: {REPORTS[report]}"
