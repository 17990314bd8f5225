"""Artifact folder -> checked paths, before any code of it is loaded.

Input: a folder with model.onnx, manifest.json and the library that the manifest names. Output: an `OpenedArtifact`.
Invariant: a returned library lies in the folder itself, is a plain file with the manifest's digest, and neither it nor
its folder can be written by others; what fails is refused with the command that mends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from smelt.base.errors import ArtifactError
from smelt.base.stamps import fault_of, fault_of_folder

MANIFEST: Final = "manifest.json"
MODEL: Final = "model.onnx"
FORMAT: Final = 1  # of the manifest; what an older one lacks is not needed to load and run
_MANIFEST_LIMIT_BYTES: Final = 1 << 28
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class OpenedArtifact:
    """Paths that may be loaded."""

    directory: Path
    model: Path
    library: Path | None
    manifest: Mapping[str, Any]


def open_artifact(directory: Path) -> OpenedArtifact:
    """Check the folder and everything that a session will load from it."""
    directory = directory.absolute()
    if not directory.is_dir():
        raise ArtifactError("SM-ARTIFACT-001", f"{directory} is not a folder")
    manifest = read_manifest(directory)
    model = directory / MODEL
    if not model.is_file():
        raise ArtifactError("SM-ARTIFACT-001", f"{directory} has no {MODEL}")
    return OpenedArtifact(directory, model, _library_of(directory, manifest), manifest)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest as a dictionary; anything else in its place is an error."""
    path = directory / MANIFEST
    try:
        if path.stat().st_size > _MANIFEST_LIMIT_BYTES:
            raise ArtifactError("SM-ARTIFACT-001", f"{path} is too large for a manifest")
        content: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactError("SM-ARTIFACT-001", f"{directory} has no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError("SM-ARTIFACT-001", f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ArtifactError("SM-ARTIFACT-001", f"{path} is not a JSON object")
    manifest = cast("dict[str, Any]", content)
    _refuse_if_newer(path, manifest)
    return manifest


def _refuse_if_newer(path: Path, manifest: Mapping[str, Any]) -> None:
    found = manifest.get("format")
    if isinstance(found, int) and found > FORMAT:
        made_by = f"smelt {manifest.get('smelt', '(unknown)')}"
        raise ArtifactError(
            "SM-ARTIFACT-001",
            f"{path} was made by {made_by} in format {found}; this version reads formats up to {FORMAT}",
            hint=f"Install {made_by} or a later one, or load model.onnx and its library with ONNX Runtime alone.",
        )


def trusted_library(path: Path, sha256: str) -> Path:
    """`path` made absolute, if it may be loaded: plain file, right digest, safe from others."""
    path = path.absolute()
    _refuse(fault_of_folder(str(path.parent)))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ArtifactError("SM-ARTIFACT-001", f"the library {path} cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError("SM-ARTIFACT-001", f"the library {path} is not a plain file")
        _refuse(fault_of(str(path), status))
        found = _digest(descriptor)
    finally:
        os.close(descriptor)
    if found != sha256.lower():
        raise ArtifactError("SM-ARTIFACT-002", f"{path} has digest {found[:16]}..., the manifest says {sha256[:16]}...")
    return path


def _digest(descriptor: int) -> str:
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _library_of(directory: Path, manifest: Mapping[str, Any]) -> Path | None:
    entry = manifest.get("library")
    if entry is None:
        return None
    fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    name, digest = fields.get("file"), fields.get("sha256")
    if not isinstance(name, str) or not isinstance(digest, str):
        raise ArtifactError("SM-ARTIFACT-001", f"{directory / MANIFEST} names a library without file or sha256")
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise ArtifactError("SM-ARTIFACT-003", f"the library {name!r} does not lie in the artifact's own folder")
    return trusted_library(directory / name, digest)


def _refuse(fault: tuple[str, str] | None) -> None:
    if fault is not None:
        raise ArtifactError("SM-ARTIFACT-003", fault[0], hint=fault[1])
