"""A Hugging Face folder of a language model -> a folder of onnxruntime-genai, by genai's own model builder.

Input: a folder with config.json, safetensors and a tokenizer. Output: a folder with genai_config.json. Invariant: the
builder runs in a process of its own, offline, and runs no code of the folder; it writes into the work folder only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

from smelt.base import child_environment
from smelt.base.errors import ConfigError, LoadError
from smelt.frontends.genai_folder import check_tokenizer, decoder_of

_PRECISIONS: Final = {"w4": "int4", "w8": "int8"}
_LEVELS: Final = {"exact": 1, "fast": 4}  # MatMulNBits: float32 or 8-bit activations
LIMIT_S = 3600.0  # a billion parameters take half a minute
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def build_folder(folder: Path, work: Path, precision: str, accuracy: str) -> Path:
    """The decoder with weights in blocks of 32, with its configuration and tokenizer, below `work`."""
    if precision not in _PRECISIONS:
        raise ConfigError("SM-CONFIG-001", f"--precision {precision!r} is not one of {', '.join(_PRECISIONS)}")
    if accuracy not in _LEVELS:
        raise ConfigError("SM-CONFIG-001", f"--accuracy {accuracy!r} is not one of {', '.join(_LEVELS)}")
    architecture = check_hugging_face(folder)
    for name in ("onnxruntime_genai", "torch", "transformers"):
        if find_spec(name) is None:
            raise LoadError("SM-LOAD-011", f"a Hugging Face folder is built by onnxruntime-genai; {name} is missing")
    made = work / "built"
    command = _command(folder, work, made, _PRECISIONS[precision], _LEVELS[accuracy])
    _run(command, work, f"{folder} ({architecture}): onnxruntime-genai's builder")
    decoder_of(made)
    return made


def _command(folder: Path, work: Path, made: Path, precision: str, level: int) -> tuple[str, ...]:
    options = ("hf_token=false", "hf_remote=false", "prune_lm_head=true", f"accuracy_level={level}")
    return (
        sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", "local", "-i", str(folder.absolute()),
        "-o", str(made), "-p", precision, "-e", "cpu", "-c", str(work / "cache"), "--extra_options", *options,
    )  # fmt: skip


def _run(command: Sequence[str], work: Path, what: str) -> None:
    environment = child_environment(_OFFLINE)
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, cwd=work, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as late:
        raise LoadError("SM-LOAD-010", f"{what} took more than {LIMIT_S:.0f} s") from late
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise LoadError("SM-LOAD-010", f"{what} failed: {last[:500]}")


def check_hugging_face(folder: Path) -> str:
    """Refuse an incomplete folder. Gives the architecture that it names."""
    config = _config(folder)
    names = config.get("architectures")
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(name, str) for name in cast("list[object]", names))
    ):
        raise LoadError("SM-LOAD-010", f"{folder / 'config.json'} names no architecture")
    if not any(folder.glob("*.safetensors")):
        raise LoadError("SM-LOAD-009", f"{folder} holds no weights", hint="*.safetensors beside config.json.")
    check_tokenizer(folder)
    return str(cast("list[str]", names)[0])


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "config.json"
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LoadError("SM-LOAD-009", f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise LoadError("SM-LOAD-009", f"{path} holds no object")
    return cast("dict[str, Any]", found)
