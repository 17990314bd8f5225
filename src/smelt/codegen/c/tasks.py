"""The C structs of tasks, one per launcher: what a launch fills and a kernel's body reads.

Input: nothing. Output: `TaskStruct` records. Invariant: each has the fields of `HEAD`, then its own, as the header that
declares it says; a field has one meaning. The tests compare them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class TaskStruct:
    """`name` is the struct, `header` declares it with these `fields` behind those of the head."""

    name: str
    header: str
    fields: tuple[str, ...]

    @property
    def local(self) -> str:
        """The first line of a body: its task, by the name that all lines use."""
        return f"{self.name} *t = p;"

    def declared(self, place: int, **more: str) -> str:
        """The task of a launch, whose buffers and sizes have the same place in their names; `more` are its other fields
        that the region knows."""
        known = {"env": "env", "b": f"buffers{place}", "s": f"sizes{place}", "work": "&work", **more}
        unknown = known.keys() - {*HEAD, *self.fields}
        assert not unknown, f"{self.name} has no {sorted(unknown)}"
        return f"{self.name} task{place} = {{{', '.join(f'.{field} = {text}' for field, text in known.items())}}};"


HEAD: Final = ("env", "b", "s", "work", "cut", "blocks", "across", "memory", "slot_bytes")
LOOPS: Final = TaskStruct("smelt_loop_task", "threads/loop.h", ("units", "step", "row_bytes"))
FUNCTION: Final = TaskStruct("smelt_task", "threads/loop.h", (*LOOPS.fields, "f"))
GEMM: Final = TaskStruct(
    "smelt_gemm_task", "gemm/loop_gemm.h",
    ("row_blocks", "block_rows", "block_panels", "next", "apart", "whole", "from", "terms"),
)  # fmt: skip
PACK: Final = TaskStruct("smelt_pack_task", "gemm/loop_gemm.h", (*LOOPS.fields, "block_rows"))
B2B: Final = TaskStruct(
    "smelt_b2b_task", "attention/loop_b2b_gemm.h", ("row_blocks", "block_rows", "block_bytes", "group", "span", "next")
)
WINDOW: Final = TaskStruct(
    "smelt_window_task", "conv/window.h",
    ("row_blocks", "block_rows", "block_wide", "start", "part_rows", "part_wide", "winograd"),
)  # fmt: skip
TASKS: Final = (LOOPS, FUNCTION, GEMM, PACK, B2B, WINDOW)
