"""What of the device `ort` this process has registered so far.

Input: nothing. Output: `REGISTERED`, which the device fills: its name, then its kernels. Invariant: kernels are
registered with the first tensor, so they tell whether there was one.
"""

from __future__ import annotations

from typing import Final

REGISTERED: Final[dict[str, bool]] = {}


def in_use() -> bool:
    """Whether this process has made a tensor on the device."""
    return "kernels" in REGISTERED
