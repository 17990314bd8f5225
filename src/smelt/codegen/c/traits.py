"""What was chosen for a kernel beside its form, as reports and tests name it.

Input: nothing. Output: names. Invariant: a kernel has a trait exactly where its text was written so.
"""

from __future__ import annotations

from typing import Final

IN_REGISTERS: Final = "transposed in registers"
REGISTER_EPILOGUE: Final = "register epilogue"
ROW_PAIRS: Final = "row pairs"
MASK_BOUNDS: Final = "mask bounds"
KV_SEGMENTS: Final = "KV-cache segments"
STRIDED_LOADS: Final = "strided loads"  # of lanes that lie apart from each other
STRIDED_STORES: Final = "strided stores"
