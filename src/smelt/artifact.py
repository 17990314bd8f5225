"""Model + library -> Artifact: the folder that a deployment needs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import onnx_ir as ir

from smelt.base.version import __version__
from smelt.codegen import Generated
from smelt.ir.records import Artifact, Library, Plan


def save_artifact(
    model: ir.Model, directory: Path, generated: Generated | None, library: Library | None, plan: Plan, options: Any,
    findings: Any,
) -> Artifact:  # fmt: skip
    """Write everything beside the target, then move it into place."""
    directory = directory.absolute()
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        manifest: dict[str, Any] = {"format": 1, "smelt": __version__, "library": None}
        if library is not None and generated is not None:
            shutil.copy(library.path, work / library.path.name)
            manifest["library"] = {"file": library.path.name, "sha256": library.sha256, "domain": generated.source.domain}
        ir.save(model, work / "model.onnx", external_data="model.data")
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
        os.chmod(work, 0o755)
        if directory.exists():
            shutil.rmtree(directory)
        work.rename(directory)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Artifact(directory, manifest)
