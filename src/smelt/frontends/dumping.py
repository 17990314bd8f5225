"""`with smelt.dump(folder):` keeps what is compiled or exported meanwhile.

Input: a folder. Output: files there: `0000.onnx`, `0000.fx.txt`, and the arrays of calls. Invariant: numbers go on
where the folder's last ones end, and no file is overwritten; without an active dump nothing is written.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import ConfigError
from smelt.check.recorded import record_call
from smelt.ir.save import save_model

_DIGITS: Final = 4
_lock: Final = threading.Lock()
_active: Final[list[Target]] = []


@dataclass(frozen=True)
class Target:
    """Where to dump. `every_call`: keep the arrays of each call, not of the first alone. `prefix` of all file names."""

    folder: Path
    every_call: bool = False
    prefix: str = ""


@contextmanager
def dump(folder: str | Path, *, every_call: bool = False, prefix: str = "", clean: bool = False) -> Generator[Path]:
    """Keep every ONNX model that is made for PyTorch meanwhile, its FX graph as text, and the arrays of its first call.

        with smelt.dump("dumped"):
            torch.compile(model, backend="smelt")(x)

    `every_call` keeps the arrays of each call. `prefix` comes before the numbers in file names, and `clean` first
    removes what was dumped with the same prefix before. `smelt replay dumped` runs them again. Graphs that were
    compiled before are not seen.
    """
    if prefix != Path(prefix).name:
        raise ConfigError("SM-CONFIG-007", f"the prefix {prefix!r} is no beginning of a file name")
    target = Target(Path(folder).expanduser().absolute(), every_call, prefix)
    target.folder.mkdir(parents=True, exist_ok=True)
    if clean:
        _remove_dumped(target)
    with _lock:
        _active.append(target)
    try:
        yield target.folder
    finally:
        with _lock:
            _active.remove(target)


def dump_target(chosen: Path | None = None) -> Target | None:
    """Where to dump now: what an option chose, the innermost `with`, or the environment's folder."""
    if chosen is not None:
        return Target(Path(chosen).expanduser().absolute())
    with _lock:
        if _active:
            return _active[-1]
    folder = Config.from_env().dump_dir
    return None if folder is None else Target(folder)


class Dumped:
    """One model in the folder."""

    def __init__(self, target: Target, model: ir.Model, graph_text: str) -> None:
        self._every = target.every_call
        self._calls = 0
        self.path = _reserved(target.folder, target.prefix)
        self.path.with_suffix(".fx.txt").write_text(graph_text, encoding="utf-8")
        save_model(model, self.path, data_name=f"{self.path.stem}.data")

    @property
    def wanted(self) -> bool:
        """Whether the next call is kept."""
        return self._every or not self._calls

    def call(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Keep a call's tensors or arrays by the model's names."""
        number, self._calls = self._calls, self._calls + 1
        made = [{name: as_array(value) for name, value in kept.items()} for kept in (inputs, outputs)]
        record_call(self.path, number, *made)


def _remove_dumped(target: Target) -> None:
    """Only files that a dump writes are removed."""
    written = re.compile(
        re.escape(target.prefix) + rf"\d{{{_DIGITS},}}\.(onnx|data|fx\.txt|call\d+\.(in|out)puts\.npz)"
    )
    for path in target.folder.iterdir():
        if written.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _reserved(folder: Path, prefix: str) -> Path:
    """A new model's path; another process may write to the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        path = folder / f"{prefix}{number:0{_DIGITS}d}.onnx"
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor or a number as an array; bfloat16 widened."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).contiguous().numpy()
