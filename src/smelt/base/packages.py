"""Whether a package of an extra can be imported, without importing it.

Input: its name. Output: yes or no. Invariant: a package that somebody keeps from being imported is not there.
"""

from __future__ import annotations

from importlib.util import find_spec


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
