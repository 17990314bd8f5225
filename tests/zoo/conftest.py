"""The modules of this folder and of the worker pool are found by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

for package in ("torch", "transformers"):
    pytest.importorskip(package)
