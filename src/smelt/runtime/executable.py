"""A live session over an artifact.

Input: an artifact folder. Output: `Executable`, whose `run` answers as `session.run(None, feeds)` does.
Invariant: no code of the artifact is loaded before its folder, its library and the library's digest were checked;
one Executable may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from smelt.base.errors import ModelError, SmeltError
from smelt.runtime.artifact import OpenedArtifact, open_artifact
from smelt.runtime.feeds import FeedChecker, InputSpec, OutputSpec, output_specs, run_once
from smelt.runtime.session import Session, SessionSettings, session_for

if TYPE_CHECKING:
    from smelt.ir.records import Artifact

_WORDS: Final = 1000


class Executable:
    """Made by `Executable.open`."""

    def __init__(self, opened: OpenedArtifact, session: Session) -> None:
        self.directory = opened.directory
        self.manifest = opened.manifest
        self.session = session
        self._check = FeedChecker(session)
        self._outputs = output_specs(session)

    @classmethod
    def open(cls, artifact: Artifact | Path | str, settings: SessionSettings | None = None) -> Executable:
        """Check the artifact, then load it."""
        directory = Path(artifact) if isinstance(artifact, (str, Path)) else artifact.directory
        opened = open_artifact(directory)
        try:
            session = session_for(opened.model, opened.library, settings)
        except SmeltError:
            raise
        except Exception as error:
            # onnxruntime has no base class of its own for what it raises.
            raise ModelError("SM-MODEL-008", f"ONNX Runtime refuses the model: {str(error)[:_WORDS]}") from error
        return cls(opened, session)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return self._check.inputs

    @property
    def outputs(self) -> tuple[OutputSpec, ...]:
        return self._outputs

    def run(self, feeds: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        """All outputs in the model's order. `feeds` is a mapping by name, or a list in the model's order."""
        return run_once(self.session, self._check(feeds))
