"""Variables of the environment, one at a time and as their types.

Input: the process environment, or a mapping in its place. Output: a value, or an error that names the variable.
Invariant: importing this takes nothing that Python has not loaded at its start; `base/config.py` has them all together,
and is not loaded by a program whose models are compiled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from smelt.base.errors import ConfigError

LOG_LEVELS: Final = ("quiet", "info", "debug")
HOOKS: Final = ("off", "on", "background")
HOOK_LIMIT_S: Final = 30.0
_TRUE: Final = {"1", "true", "yes", "on"}
_FALSE: Final = {"0", "false", "no", "off"}


def cache_folder(env: Mapping[str, str] = os.environ) -> str:
    """Where the cache lies; empty where it takes a package to say."""
    named = env.get("SMELT_CACHE_DIR", "").strip()
    if named:
        return os.path.join(os.getcwd(), os.path.expanduser(named))
    if sys.platform == "linux":  # as platformdirs has it, whose import costs a process that starts often
        asked, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
        if asked.startswith("/") or home.startswith("/"):
            return os.path.join(asked if asked.startswith("/") else f"{home}/.cache", "smelt")
    return ""


def threads(env: Mapping[str, str] = os.environ) -> int:
    return integer(env, "SMELT_THREADS", 0)


def hook(env: Mapping[str, str] = os.environ) -> str:
    return choice(env, "SMELT_HOOK", "off", HOOKS)


def hook_limit_s(env: Mapping[str, str] = os.environ) -> float:
    return seconds(env, "SMELT_HOOK_LIMIT", HOOK_LIMIT_S)


def hook_skip(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    return tuple(pattern for pattern in env.get("SMELT_HOOK_SKIP", "").split(os.pathsep) if pattern)


def wanted_log(env: Mapping[str, str] = os.environ) -> str | None:
    """What SMELT_LOG asks for; None where it is unset or cannot be read, which `Config.from_env` complains about."""
    text = env.get("SMELT_LOG", "").strip().lower()
    return text if text in LOG_LEVELS else None


def boolean(env: Mapping[str, str], variable: str, default: bool) -> bool:
    text = env.get(variable, "").strip().lower()
    if not text:
        return default
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _wrong(variable, text, "neither 1 nor 0")


def integer(env: Mapping[str, str], variable: str, default: int) -> int:
    text = env.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise _wrong(variable, text, "not a whole number")
    return int(text)


def seconds(env: Mapping[str, str], variable: str, default: float) -> float:
    text = env.get(variable, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise _wrong(variable, text, "not a positive number of seconds")
    return value


def choice(env: Mapping[str, str], variable: str, default: str, choices: tuple[str, ...]) -> str:
    text = env.get(variable, "").strip().lower()
    if not text:
        return default
    if text not in choices:
        raise _wrong(variable, text, f"not one of {', '.join(choices)}")
    return text


def _wrong(variable: str, text: str, what: str) -> ConfigError:
    from smelt.base.errors import ConfigError

    return ConfigError("SM-CONFIG-001", f"{variable}={text!r} is {what}")
