"""A compiled module on disk, and back.

Input: a captured program, or a folder that `save` wrote. Output: an artifact with `torch.json` beside its manifest;
`LoadedModule`. Invariant: loading traces, exports and compiles nothing, and runs no code from the folder but the
artifact's own library, whose digest is checked; a call that the saved program does not serve raises and says why.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree

from smelt.base.config import Config
from smelt.base.cpus import usable_cpus
from smelt.base.errors import ArtifactError, InputError, TorchError
from smelt.frontends.result_names import result_names
from smelt.runtime import Feed, Fetch, SessionSettings, TorchRunner, open_artifact, session_for

from .guard import Guard

if TYPE_CHECKING:
    from smelt.pipeline import Options

    from .capture import Captured

FILE: Final = "torch.json"
_VERSION: Final = 1


def save_program(captured: Captured, directory: str | Path, options: Options, config: Config) -> Path:
    """Compile a captured program into an artifact folder that `load_module` opens."""
    from smelt.export import ExportOptions, translate_program
    from smelt.export.dtypes import to_torch
    from smelt.pipeline import compile_to

    if captured.written:
        raise TorchError(
            "SM-TORCH-004", f"the module writes its buffers ({captured.written[0]}), which a saved program cannot",
            hint="Save it in evaluation mode: module.eval().",
        )  # fmt: skip
    options_of_export = ExportOptions(output_names=result_names(captured.out_spec))
    translation = translate_program(captured.program, options=options_of_export)
    names = [v.name for v in translation.model.graph.inputs]
    made = [(v.name, str(to_torch(v.dtype)).removeprefix("torch.")) for v in translation.model.graph.outputs]
    described = {
        "version": _VERSION,
        "in_spec": pytree.treespec_dumps(captured.guard.in_spec),
        "out_spec": pytree.treespec_dumps(captured.out_spec),
        "guard": captured.guard.to_json(),
        "inputs": [[slot.kind, names[slot.index] if slot.index is not None else None] for slot in translation.inputs],
        "outputs": [[slot.kind, slot.index, _plain(slot.value)] for slot in translation.outputs],
        "results": made,
    }
    text = json.dumps(described, indent=1)
    result = compile_to(translation.model, Path(directory), options, config)
    (result.artifact.directory / FILE).write_text(text, encoding="utf-8")
    return result.artifact.directory


def _plain(value: Any) -> Any:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise TorchError("SM-TORCH-004", f"a result is a {type(value).__name__}, which cannot be saved")
    return value


def load_module(directory: str | Path, *, threads: int = 0) -> LoadedModule:
    """Open what `CompiledModule.save` wrote."""
    folder = Path(directory)
    try:
        described = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if described["version"] != _VERSION:
            raise ArtifactError("SM-ARTIFACT-001", f"{FILE} has version {described['version']}, not {_VERSION}")
        saved = _Saved.read(described)
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ArtifactError(
            "SM-ARTIFACT-001", f"{folder} holds no saved module: {error}", hint="Save one with CompiledModule.save."
        ) from error
    opened = open_artifact(folder)
    settings = SessionSettings(threads=threads or min(torch.get_num_threads(), usable_cpus().count))
    return LoadedModule(saved, session_for(opened.model, opened.library, settings), folder)


@dataclass(frozen=True)
class _Saved:
    out_spec: Any
    guard: Guard
    inputs: tuple[tuple[str, str | None], ...]
    outputs: tuple[tuple[str, int | None, Any], ...]
    results: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> _Saved:
        spec = pytree.treespec_loads(described["in_spec"])
        inputs = [(str(kind), name) for kind, name in described["inputs"]]
        outputs = [(str(kind), index, value) for kind, index, value in described["outputs"]]
        return cls(
            pytree.treespec_loads(described["out_spec"]), Guard.from_json(spec, described["guard"]), tuple(inputs),
            tuple(outputs), tuple((str(name), str(dtype)) for name, dtype in described["results"]),
        )  # fmt: skip


class LoadedModule(torch.nn.Module):
    """A saved module that runs. It has no parameters: its weights are the artifact's."""

    def __init__(self, saved: _Saved, session: Any, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self._saved = saved
        feeds = [
            Feed(name, place, str(check[1]).removeprefix("torch."))
            for place, ((kind, name), check) in enumerate(zip(saved.inputs, saved.guard.checks, strict=True))
            if kind == "tensor" and name is not None
        ]
        self._runner = TorchRunner(session, feeds, [Fetch(name, dtype) for name, dtype in saved.results])
        self._takers = [_taker(*slot) for slot in saved.outputs]
        self.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        guard = self._saved.guard
        if spec != guard.in_spec:
            raise InputError("SM-INPUT-001", f"the arguments have another structure than {guard.in_spec}")
        reason = guard.refuses(leaves)
        if reason:
            raise InputError(
                "SM-INPUT-002", f"the saved program does not serve this call: {reason}",
                hint="Save one for such calls: save(folder, *args, **kwargs) with arguments like these.",
            )  # fmt: skip
        made = self._runner(leaves)
        return pytree.tree_unflatten([take(made, leaves) for take in self._takers], self._saved.out_spec)

    def train(self, mode: bool = True) -> LoadedModule:
        if mode:
            raise TorchError(
                "SM-TORCH-004", "a saved module cannot be trained", hint="Train the original and save again."
            )
        return self


def _taker(kind: str, index: int | None, value: Any) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    if index is None:
        return lambda _made, _given: value
    if kind == "input":
        return lambda _made, given: given[index]
    if kind == "tensor":
        return lambda made, _given: made[index]
    return lambda made, _given: made[index].item()
