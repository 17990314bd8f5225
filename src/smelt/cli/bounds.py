"""Start the command again with gcc's sanitizers loaded, where `SMELT_BOUNDS=1` asks for libraries that need them.

Input: the knobs. Output: the same command in the same process, or nothing. Invariant: a command is replaced at most
once, and never where the knob is off; a knob or compiler that is no good is left to the command, which says so.
"""

from __future__ import annotations

import os
import sys

from smelt.base.config import Config, child_environment
from smelt.base.errors import SmeltError


def start_with_sanitizer() -> None:
    try:
        config = Config.from_env()
        if not config.bounds:
            return
        from smelt.toolchain import bounds_environment, find_compiler, sanitizer_is_loaded

        if not sanitizer_is_loaded():
            environment = child_environment(bounds_environment(find_compiler(config)))
            os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - this very command
    except (SmeltError, OSError):
        return
