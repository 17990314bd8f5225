"""bench/older_cpu.py: a command that sees this CPU without AVX-512."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "older_cpu.py"
CPUINFO = Path("/proc/cpuinfo")
able = pytest.mark.skipif(
    "cpuid_fault" not in CPUINFO.read_text() or shutil.which("cc") is None,
    reason="this CPU does not fault on CPUID, or there is no cc",
)
PROBE = """
import ctypes, mmap
from smelt.base.target import host_level
code = mmap.mmap(-1, 64, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("53b80700000031c90fa289d85bc3"))  # push rbx; cpuid of leaf 7, subleaf 0; eax = ebx; pop; ret
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(host_level().name, ctypes.CFUNCTYPE(ctypes.c_uint32)(at)() >> 16 & 1)
"""


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("older_cpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_newer_flags_are_left_out_and_nothing_else_changes(script):
    told = "model name\t: X avx512\nflags\t\t: fma avx2 avx512f avx512_vnni gfni amx_tile bmi2\n\nbugs\t: y\n"
    assert script.older(told) == "model name\t: X avx512\nflags\t\t: fma avx2 bmi2\n\nbugs\t: y\n"


@able
def test_cpuid_and_the_operating_system_agree_that_there_is_no_avx512():
    run = [sys.executable, str(SCRIPT), sys.executable, "-c", PROBE]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert said == ["v3", "0"]


@able
def test_a_crash_stays_a_crash():
    crash = [sys.executable, "-c", "import ctypes; ctypes.string_at(0)"]
    assert subprocess.run([sys.executable, str(SCRIPT), *crash], check=False).returncode == 256 - 11
