"""Text of a model -> text that can be shown.

Input: any string out of a model. Output: a short one of printable characters. Invariant: nothing that moves a cursor,
changes the direction of text or hides characters gets through; what was escaped or cut can be seen to be.
"""

from __future__ import annotations

from typing import Final

NAME_LIMIT: Final = 160


def readable(text: str, limit: int = NAME_LIMIT) -> str:
    """The text itself where it is short and printable; else escaped and cut."""
    short = text if len(text) <= limit else text[: limit - 1]
    plain = short if short.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in short)
    return plain if len(text) <= limit else plain + "…"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def in_bytes(number: float) -> str:
    """`1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def in_time(microseconds: float) -> str:
    """`12.3 us`, `4.56 ms`, `7.89 s`."""
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1000:.2f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.2f} s"
