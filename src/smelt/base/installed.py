"""Which files this package is: told by the list that a package manager left, or by the sources of a checkout.

Input: nothing. Output: paths. Invariant: importing this takes nothing that Python has not loaded at its start.
"""

from __future__ import annotations

import os
from typing import Final

PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def record_file(package: str) -> str:
    """The list that the package was installed by; empty for a checkout and what is installed from one."""
    mark = f"\n{os.path.basename(package)}/__init__.py,".encode()
    for entry in os.scandir(os.path.dirname(package)):
        if entry.name.startswith("onnx_smelt-") and entry.name.endswith(".dist-info"):
            try:
                with open(f"{entry.path}/RECORD", "rb") as stream:
                    if mark in b"\n" + stream.read():
                        return f"{entry.path}/RECORD"
            except OSError:
                continue
    return ""
