"""A stack trace of torch's -> the line of the user's program.

Input: the text that FX nodes carry. Output: the frame and its code. Invariant: frames of torch itself are passed over,
unless there are no others; the marks below a line are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

_TORCH: Final = str(Path(torch.__file__).parent)


def user_line(trace: str | None) -> str:
    """`File "model.py", line 7, in forward; return self.linear(x)`, or nothing."""
    frames: list[list[str]] = []
    for line in (trace or "").splitlines():
        text = line.strip()
        if text.startswith('File "'):
            frames.append([text])
        elif frames and text and set(text) - {"^", "~", " "} and len(frames[-1]) == 1:
            frames[-1].append(text)
    own = [frame for frame in frames if _TORCH not in frame[0]]
    chosen = (own or frames)[-1:] or [[]]
    return "; ".join(chosen[0])
