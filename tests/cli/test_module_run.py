"""The command line also runs as a module."""

from __future__ import annotations

import subprocess
import sys


def test_python_m_smelt_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "smelt", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "compile" in done.stdout, done.stderr
