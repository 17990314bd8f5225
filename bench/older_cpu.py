"""Runs a command as if this CPU had no AVX-512: what machines with AVX2 alone will see, peers and smelt alike.

Input: a command. Output: its exit code. Invariant: the command and all processes that it starts see one CPU, by CPUID
and by /proc/cpuinfo; clock and caches stay those of this machine.

    python bench/older_cpu.py python -m smelt.bench models --peers ort,smelt,openvino
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NEWER = ("avx512", "avx_vnni", "amx", "gfni", "vaes", "vpclmulqdq")


def main(command: list[str]) -> int:
    if not command:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory(prefix="older-cpu-") as folder:
        environment = {**os.environ, "LD_PRELOAD": str(build(Path(folder)))}
        return subprocess.run(command, env=environment, check=False).returncode


def build(folder: Path) -> Path:
    """The library that answers instead of the CPU."""
    told, library = folder / "cpuinfo", folder / "older_cpu.so"
    told.write_text(older(Path("/proc/cpuinfo").read_text(encoding="utf-8")), encoding="utf-8")
    flags = ["-O1", "-shared", "-fPIC", f'-DOLDER_CPU_INFO="{told}"']
    subprocess.run(["cc", *flags, str(HERE / "older_cpu.c"), "-o", str(library), "-ldl"], check=True)
    return library


def older(cpuinfo: str) -> str:
    """The same text without the newer flags."""
    return "\n".join(_older_line(line) for line in cpuinfo.split("\n"))


def _older_line(line: str) -> str:
    key, colon, value = line.partition(":")
    if key.strip() != "flags":
        return line
    return f"{key}{colon} {' '.join(flag for flag in value.split() if not flag.startswith(NEWER))}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
