"""Errors that teach: what went wrong, at which node, and what to try.

Input: a code of the catalogue and the facts of one failure. Output: `SmeltError` and its families.
Invariant: every code raised in the package has an entry in `CATALOGUE`, which docs and `doctor` print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from smelt.base._catalogue import ENTRIES


@dataclass(frozen=True)
class Explanation:
    """What a code means in general, apart from any one failure."""

    code: str
    title: str
    explanation: str
    fix: str


CATALOGUE: Final[dict[str, Explanation]] = {code: Explanation(code, *texts) for code, texts in ENTRIES.items()}


class SmeltError(Exception):
    """Base of every error that smelt raises on purpose.

    `hint` says what to try; without one the catalogue's general fix is used.
    """

    def __init__(self, code: str, message: str, *, node: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.node = node
        known = CATALOGUE.get(code)
        self.hint = hint if hint is not None else (known.fix if known else "")

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.node:
            lines.append(f"  node: {self.node}")
        if self.hint:
            lines.append(f"  try:  {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Verification runs in a subprocess, so errors cross process borders; the default would lose the keywords.
        return _rebuild, (type(self), self.__dict__ | {"args": self.args})


def _rebuild(kind: type[SmeltError], state: dict[str, object]) -> SmeltError:
    error = kind.__new__(kind)
    state = dict(state)
    error.args = state.pop("args")  # pyright: ignore[reportAttributeAccessIssue]
    error.__dict__.update(state)
    return error


class ConfigError(SmeltError):
    """An option or an environment variable has a value that cannot be used."""


class LoadError(SmeltError):
    """A model file cannot be read, or is refused because it is not safe to read."""


class ModelError(SmeltError):
    """A model was read, but breaks a rule of ONNX or of a stage."""


class PassError(SmeltError):
    """A pass failed, which leaves the model in no known state. `name` is the pass; the cause is what it raised."""

    def __init__(self, name: str, error: Exception) -> None:
        message = f"the pass {name!r} failed: {type(error).__name__}: {str(error)[:500]}"
        super().__init__("SM-PASS-005", message, hint=f"Leave it out: --skip-pass {name}; and report the model.")
        self.name = name


class ExportError(SmeltError):
    """A PyTorch program cannot be said in ONNX. `reasons`: one for each call that nothing converts."""

    reasons: tuple[str, ...] = ()


class CodegenError(SmeltError):
    """A region cannot be turned into source."""


class KernelError(SmeltError):
    """A kernel of the user's own cannot be used."""


class ToolchainError(SmeltError):
    """Source cannot be turned into a library."""


class NoCompilerError(ToolchainError):
    """No C compiler was found, or none for the target that was asked for."""


class CompileError(ToolchainError):
    """A compiler ran and failed. `command` and `stderr` hold what it was told and what it said, `unit` is the name of
    the unit that it was given (empty where it linked)."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        command: tuple[str, ...] = (),
        stderr: str = "",
        unit: str = "",
        node: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(code, message, node=node, hint=hint)
        self.command = command
        self.stderr = stderr
        self.unit = unit


class CacheError(ToolchainError):
    """The cache folder cannot be used safely."""


class ArtifactError(SmeltError):
    """An artifact folder is incomplete, altered or not safe to load."""


class InputError(SmeltError):
    """The feeds of a call do not fit the model's inputs."""


class PrecisionError(SmeltError):
    """A lower precision cannot be had as it was asked for: calibration data, budget."""


class BatchError(SmeltError):
    """A run over a data set failed: parts, workers, the disk, a user's function."""


class TorchError(SmeltError):
    """A PyTorch graph cannot be run as asked."""


class VerifyError(SmeltError):
    """A result broke the numerics contract, or verification itself could not finish."""


class StrictError(SmeltError):
    """`strict` was asked for, and there was a fault or a region without a verdict."""


class CoverageError(SmeltError):
    """Fewer nodes are in kernels than `min_coverage` asks for."""


def explain(code: str) -> Explanation:
    """The catalogue's entry for `code`, which may be written in lower case."""
    entry = CATALOGUE.get(code.upper())
    if entry is None:
        raise ConfigError(
            "SM-CONFIG-003", f"there is no error code {code!r}", hint="`smelt doctor --errors` lists all."
        )
    return entry
