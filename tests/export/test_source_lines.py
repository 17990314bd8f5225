"""The line of the user's program is found in a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from smelt.export.source_lines import user_line  # noqa: E402

INSIDE = str(Path(torch.__file__).parent / "utils" / "_contextlib.py")


def test_frames_of_torch_and_marks_are_passed_over() -> None:
    trace = (
        '  File "model.py", line 7, in forward\n    return untold(x).sin()\n           ^^^^^^^^^\n'
        f'  File "{INSIDE}", line 124, in decorate\n    return func(*args, **kwargs)\n           ^^^^^^^^^\n'
    )
    assert user_line(trace) == 'File "model.py", line 7, in forward; return untold(x).sin()'


def test_a_trace_of_torch_alone_gives_its_last_frame() -> None:
    assert user_line(f'  File "{INSIDE}", line 1, in f\n    g()\n').endswith("g()")
    assert user_line(None) == "" == user_line("nothing")
