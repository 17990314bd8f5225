"""An ONNX model -> CompiledModel.

Input: a path, bytes, a ModelProto or an onnx_ir Model, and options by name. Output: `CompiledModel`, which answers as
an ONNX Runtime session does. Invariant: a temporary artifact folder lives exactly as long as its model; a folder that
the user named is never removed, and a folder that is no artifact is never replaced.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from smelt.artifact import check_replaceable, publish, unwritable, work_beside
from smelt.base.config import Config
from smelt.base.errors import ConfigError, InputError, LoadError
from smelt.base.progress import Progress
from smelt.base.target import find_target, host_arch
from smelt.ir.load import Source
from smelt.passes import read_budget
from smelt.pipeline import Options, Result, compile_to
from smelt.report import Picture, format_report, op_name, report_of
from smelt.runtime import Executable, InputSpec, OutputSpec, SessionSettings

_OPTION_NAMES: Final = tuple(field.name for field in dataclasses.fields(Options))
_SEQUENCES: Final = frozenset(("select", "exclude", "levels", "skip_passes"))


@dataclass(frozen=True)
class Coverage:
    """Nodes in smelt's kernels out of all nodes; `time_share` is the kernels' part of a run, where it was measured."""

    in_kernels: int
    nodes: int
    time_share: float | None = None

    @property
    def ratio(self) -> float:
        """1 for a model without nodes: nothing fell back to ONNX Runtime."""
        return self.in_kernels / self.nodes if self.nodes else 1.0

    def __str__(self) -> str:
        share = "" if self.time_share is None else f", {self.time_share:.0%} of the time"
        return f"{self.in_kernels} of {self.nodes} nodes in kernels{share}"


def compile(
    model: Source, output: str | Path | None = None, *, config: Config | None = None, progress: Progress | None = None,
    **options: Any,
) -> CompiledModel:  # fmt: skip
    """Compile an ONNX model and load it.

    `output` is the artifact folder to write; without one a temporary folder is used, which is gone with the model.
    `options` are the fields of `smelt.Options`: `force=True`, `dims={"batch": 1}`, `exclude=("Softmax",)`, ...

        fast = smelt.compile("model.onnx")
        fast.run({"x": x})
    """
    chosen = _options(options)
    config = config or Config.from_env()
    source = _accepted(model)
    settings = _settings(chosen, config)
    if output is not None:
        target = _replaceable(Path(output)).absolute()
        return _compiled_into(target, lambda folder: compile_to(source, folder, chosen, config, progress), settings)
    folder = Path(tempfile.mkdtemp(prefix="smelt-"))
    try:
        result = compile_to(source, folder / "artifact", chosen, config, progress)
        return CompiledModel(result, settings, temporary=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _compiled_into(target: Path, compile_into: Callable[[Path], Result], settings: SessionSettings) -> CompiledModel:
    """Compile beside `target` and load from there: what no runtime loads never replaces an artifact that works."""
    with work_beside(target) as work:
        made = CompiledModel(compile_into(work / "artifact"), settings)
        check_replaceable(target)
        publish(work / "artifact", target, work)
        made.moved_to(target)
        return made


class CompiledModel:
    """A compiled model that runs. Made by `compile`; also a context manager."""

    def __init__(self, result: Result, settings: SessionSettings | None = None, temporary: Path | None = None) -> None:
        self.result = result
        self._why_not = _foreign(result) or "this compiled model was closed"
        self._executable = None if _foreign(result) else Executable.open(result.artifact, settings)
        self._release = weakref.finalize(self, _remove, temporary)

    def moved_to(self, directory: Path) -> None:
        """The artifact lies elsewhere now. The session goes on: it holds the files, not their names."""
        artifact = dataclasses.replace(self.result.artifact, directory=directory)
        self.result = dataclasses.replace(self.result, artifact=artifact)
        if self._executable is not None:
            self._executable.directory = directory

    def run(self, feeds: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        """All outputs in the model's order, as `session.run(None, feeds)` gives them."""
        return self.executable.run(feeds)

    @property
    def executable(self) -> Executable:
        if self._executable is None:
            raise InputError("SM-INPUT-004", self._why_not)
        return self._executable

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return self.executable.inputs

    @property
    def outputs(self) -> tuple[OutputSpec, ...]:
        return self.executable.outputs

    @property
    def directory(self) -> Path:
        """The artifact folder. A temporary one is removed with this object: `save` keeps it."""
        return self.result.artifact.directory

    @property
    def coverage(self) -> Coverage:
        plan = self.result.plan
        taken = sum(len(region.nodes) for region in plan.regions)
        return Coverage(taken, taken + len(plan.fallbacks), _time_share(self.result))

    def explain(self) -> str:
        """What became of the nodes, and why some fell back to ONNX Runtime."""
        original = Counter(op_name(node) for region in self.result.plan.regions for node in region.nodes)
        original.update(op_name(fallback.node) for fallback in self.result.plan.fallbacks)
        report = report_of(self.result, "model", Picture(original))
        return format_report(report)

    def save(self, directory: str | Path) -> Path:
        """Copy the artifact folder: all that a deployment needs. The copy is complete or absent."""
        target = _replaceable(Path(directory)).absolute()
        if target == self.directory:
            return target
        with work_beside(target) as work:
            try:
                shutil.copytree(self.directory, work / "copy")
                if target.exists():
                    target.rename(work / "old")
                (work / "copy").rename(target)
            except OSError as error:  # shutil collects what it met
                raise unwritable(target, error) from error
        return target

    def close(self) -> None:
        """End the session and remove the folder if it was temporary."""
        self._executable = None
        self._release()

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CompiledModel({self.coverage}, {str(self.directory)!r})"


def _options(given: Mapping[str, Any]) -> Options:
    for name in given:
        if name not in _OPTION_NAMES:
            close = get_close_matches(name, _OPTION_NAMES, n=1)
            meant = f"Is it meant to be {close[0]!r}?" if close else f"Known are {', '.join(_OPTION_NAMES)}."
            raise ConfigError("SM-CONFIG-005", f"there is no option {name!r}", hint=meant)
    return Options(**{name: _spelled(name, value) for name, value in given.items()})


def _spelled(name: str, value: Any) -> Any:
    """One name stands for a list of one; a path may be text."""
    if name in _SEQUENCES:
        return (value,) if isinstance(value, str) else tuple(value)
    if name == "budget":
        return read_budget(value, "any")
    return Path(value) if name == "dump" and value is not None else value


def _accepted(model: Any) -> Any:
    import onnx
    import onnx_ir as ir

    if isinstance(model, (str, Path, bytes, onnx.ModelProto, ir.Model)) or hasattr(model, "__fspath__"):
        return model
    kind = type(model).__name__
    raise LoadError(
        "SM-LOAD-008", f"a {kind} is no ONNX model", hint="Give a path, bytes, an onnx.ModelProto or an onnx_ir.Model."
    )


def _settings(options: Options, config: Config) -> SessionSettings:
    return SessionSettings(threads=options.threads or config.threads)


def _foreign(result: Result) -> str:
    """Why this machine cannot run the library, or nothing."""
    arches = {find_target(name).arch for name in result.library.targets} if result.library is not None else set[str]()
    return "" if arches <= {host_arch()} else f"this model was compiled for {', '.join(sorted(arches))}: run it there"


def _replaceable(directory: Path) -> Path:
    """Absent, empty, or an artifact: anything else may hold what the user still needs."""
    check_replaceable(directory)
    return directory


def _time_share(result: Result) -> float | None:
    verdicts = result.findings.verdicts if result.findings is not None else ()
    whole = sum(v.time_us or 0.0 for v in verdicts if v.region is None)
    kept = {region.index for region in result.plan.regions}
    parts = [v.time_us for v in verdicts if v.region in kept and v.time_us is not None]
    return min(1.0, sum(parts) / whole) if whole and parts else None


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
