"""Model + library -> Artifact: the folder that a deployment needs.

Input: the rewritten model, its library and what is known about both. Output: a folder with model.onnx, model.data for
large tensors, the library and manifest.json. Invariant: the folder is complete or as it was before; only an artifact
or an empty folder is replaced; the same input gives the same bytes, whatever the umask, the clock or the place, but for
what was timed.
"""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.errors import ArtifactError, SmeltError
from smelt.base.version import __version__
from smelt.check import Findings, Verdict
from smelt.codegen import packed_names
from smelt.ir.backend import Generated
from smelt.ir.faults import Fault
from smelt.ir.records import Artifact, KernelInfo, Library, Plan
from smelt.ir.save import MIN_EXTERNAL_BYTES, Saved, save_model, weight_bytes
from smelt.ir.verbatim import Verbatim
from smelt.passes import spelled
from smelt.runtime import FORMAT, read_manifest

MIN_ORT: Final = "1.17"
MODEL: Final = "model.onnx"
DATA: Final = "model.data"
MANIFEST: Final = "manifest.json"
_MOST_INLINE: Final = 1 << 28  # bytes of weights that stay in the file of a model without kernels, as stock's are
_UNRECORDED: Final = frozenset(("dump", "feeds", "inputs", "strict", "min_coverage", "keep"))


def check_replaceable(directory: Path) -> None:
    """Refuse a place that holds anything but an earlier artifact."""
    if not directory.exists() and not directory.is_symlink():
        return
    if directory.is_dir() and not directory.is_symlink() and (_is_artifact(directory) or not any(directory.iterdir())):
        return
    raise ArtifactError("SM-ARTIFACT-004", f"{directory} exists and is no artifact, so it is not replaced")


def _is_artifact(directory: Path) -> bool:
    try:
        manifest = read_manifest(directory)
    except SmeltError:
        return False
    return isinstance(manifest.get("format"), int) and "smelt" in manifest


def save_artifact(
    model: ir.Model, directory: Path, generated: Generated | None, library: Library | None, plan: Plan, options: Any,
    findings: Findings | None, faults: Sequence[Fault] = (), frozen: Sequence[str] = (),
) -> Artifact:  # fmt: skip
    """Write everything beside the target, then move it into place. `options` is a dataclass of plain values; `frozen`
    are initializers that callers of stock may feed and callers of the artifact may not."""

    def write(staged: Path) -> dict[str, Any]:
        aside = MIN_EXTERNAL_BYTES if library is not None or weight_bytes(model) > _MOST_INLINE else _MOST_INLINE + 1
        saved = save_model(model, staged / MODEL, data_name=DATA, min_bytes=aside, read_whole=packed_names(model))
        if library is not None and generated is not None:
            shutil.copyfile(library.path, staged / library.path.name)
        inputs = [_interface(v) for v in model.graph.inputs if v.name not in model.graph.initializers]
        outputs = [_interface(v) for v in model.graph.outputs]
        content = _manifest((inputs, outputs), saved, generated, library, plan, options, findings, faults)
        return {**content, "frozen": list(frozen)} if frozen else content

    return _saved(directory, write)


def save_untouched(model: Verbatim, directory: Path, plan: Plan, options: Any) -> Artifact:
    """An artifact of the model as it was given."""

    def write(staged: Path) -> dict[str, Any]:
        saved = model.save(staged / MODEL, DATA)
        names = model.interface()
        interface = [[{"name": name, "type": None, "dims": None} for name in side] for side in names]
        return _manifest((interface[0], interface[1]), saved, None, None, plan, options, None, ())

    return _saved(directory, write)


def _saved(directory: Path, write: Callable[[Path], dict[str, Any]]) -> Artifact:
    """`write` fills a folder and gives the manifest."""
    directory = directory.absolute()
    check_replaceable(directory)
    with work_beside(directory) as work:
        try:
            staged = work / "new"
            staged.mkdir()
            manifest = write(staged)
            write_json(staged / MANIFEST, manifest)
            publish(staged, directory, work)
        except OSError as error:
            raise unwritable(directory, error) from error
    return Artifact(directory, manifest)


@contextmanager
def work_beside(directory: Path) -> Generator[Path]:
    """A folder on the file system of `directory`, whose parents are made; deleted at the end."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{directory.name[:100]}.", dir=directory.parent))
    except OSError as error:
        raise unwritable(directory, error) from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_writable(directory: Path, wanted_bytes: int = 0) -> None:
    """Refuse a place that cannot be written or has no room, before anything long begins."""
    try:
        place = directory.absolute().parent
        while not place.exists():
            place = place.parent
        Path(tempfile.mkdtemp(prefix=".smelt-", dir=place)).rmdir()
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise unwritable(directory, error) from error
    if free < wanted_bytes:
        room = OSError(errno.ENOSPC, f"{free / 1e6:.0f} MB are free, and its weights take {wanted_bytes / 1e6:.0f} MB")
        raise unwritable(directory, room)


def unwritable(directory: Path, error: OSError) -> ArtifactError:
    """The error for a failed file operation in or beside `directory`."""
    return ArtifactError("SM-ARTIFACT-005", f"{directory} cannot be written: {error.strerror or error}")


def replace_library(artifact: Path, library: Library, directory: Path) -> Artifact:
    """A copy of an artifact with another library for the same custom ops."""
    directory = directory.absolute()
    check_replaceable(directory)
    manifest = read_manifest(artifact)
    old = manifest.get("library")
    if not isinstance(old, dict):
        raise ArtifactError("SM-ARTIFACT-001", f"{artifact} has no library that could be replaced")
    with work_beside(directory) as work:
        staged = work / "new"
        shutil.copytree(artifact, staged, ignore=shutil.ignore_patterns(str(old.get("file"))))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        shutil.copyfile(library.path, staged / library.path.name)
        manifest["library"] = {**old, "file": library.path.name, "sha256": library.sha256}
        write_json(staged / MANIFEST, manifest)
        publish(staged, directory, work)
    return Artifact(directory, manifest)


def publish(staged: Path, directory: Path, work: Path) -> None:
    """Move a finished folder to its place. An old artifact there is moved aside first, and back if that fails."""
    for path in staged.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    staged.chmod(0o755)
    old = work / "old"
    if directory.exists():
        directory.rename(old)
    try:
        staged.rename(directory)
    except OSError:
        if old.exists():
            old.rename(directory)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True, default=str) + "\n", encoding="utf-8")


# What the manifest says


_Interface = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # of inputs and outputs


def _manifest(
    interface: _Interface, saved: Saved, generated: Generated | None, library: Library | None, plan: Plan, options: Any,
    findings: Findings | None, faults: Sequence[Fault],
) -> dict[str, Any]:  # fmt: skip
    taken = sum(len(region.nodes) for region in plan.regions)
    return {
        "format": FORMAT,
        "smelt": __version__,
        "made_with": {name: _version(name) for name in ("onnx", "onnx_ir", "onnxruntime")},
        "min_ort": MIN_ORT,
        "model": {"file": MODEL, "sha256": saved.model_sha256, "ir_version": saved.ir_version},
        "data": {"file": DATA, "sha256": saved.data_sha256} if saved.data_path is not None else None,
        "inputs": interface[0],
        "outputs": interface[1],
        "library": _library(generated, library),
        "nodes": {"in_kernels": taken, "all": taken + len(plan.fallbacks)},
        "regions": _regions(generated),
        "fallbacks": _fallbacks(plan),
        "verified": _verified(findings),
        "faults": [asdict(fault) for fault in faults],
        "settings": {} if findings is None else dict(findings.settings),
        "timed": _timed(findings),
        "options": _options(options),
    }


def _library(generated: Generated | None, library: Library | None) -> dict[str, Any] | None:
    if generated is None or library is None:
        return None
    return {
        "file": library.path.name,
        "sha256": library.sha256,
        "domain": generated.source.domain,
        "targets": list(library.targets),
        "compiler": library.compiler,
    }


def _regions(generated: Generated | None) -> list[dict[str, Any]]:
    if generated is None:
        return []
    entries = {entry.name: entry for entry in generated.source.entries}
    return [
        {
            "index": region.index,
            "entry": name,
            "backend": region.backend,
            "nodes": len(region.nodes),
            "kernels": [_kernel(kernel) for kernel in entries[name].kernels],
        }
        for region, name in zip(generated.regions, generated.entry_of, strict=True)
    ]


def _kernel(info: KernelInfo) -> dict[str, str]:
    form = {"form": info.form, "reason": info.reason} if info.form else {}
    micro = {"micro_kernels": info.micro_kernels} if info.micro_kernels else {}
    return {"name": info.name, "kind": info.kind, "summary": info.summary, **form, **micro}


def _fallbacks(plan: Plan) -> list[dict[str, Any]]:
    counted = Counter((fallback.reason, fallback.node.op_type) for fallback in plan.fallbacks)
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": reason, "op_type": op, "count": count} for (reason, op), count in ordered]


def _verified(findings: Findings | None) -> dict[str, Any] | None:
    """Errors with one digit: more would differ from machine to machine."""
    if findings is None or not findings.verdicts:
        return None
    errors = [v.error for v in findings.verdicts if v.error is not None and not v.rejected and v.region is not None]
    whole = next((v for v in findings.verdicts if v.region is None), None)
    return {
        "regions": len(errors),
        "largest_error": None if not errors else f"{max(errors):.0e}",
        "model_error": None if whole is None or whole.error is None else f"{whole.error:.0e}",
        "model": None if whole is None else _compared(whole),
        "by_region": {str(v.region): _compared(v) for v in findings.verdicts if v.region is not None and v.reference},
        "compared": dict(findings.compared),
        "rejected": [{"region": index, "reason": reason} for index, reason in sorted(findings.rejected.items())],
        "tuned": any(v.time_us is not None for v in findings.verdicts),
    }


def _timed(findings: Findings | None) -> list[dict[str, Any]]:
    """Stock's time over ours with its 95% interval, where it was measured; regions that fell back are not in it."""
    return (
        []
        if findings is None
        else [
            {
                "threads": one.threads,
                "ratio": round(one.ratio, 2),
                "interval": [round(one.low, 2), round(one.high, 2)],
                **({"sizes": one.sizes} if one.sizes else {}),
            }
            for one in findings.timed
        ]
    )


def _compared(verdict: Verdict) -> dict[str, Any]:
    """What decided, how far off the results were, and how far they might have been."""
    return {
        "reference": verdict.reference,
        "error": None if verdict.error is None else f"{verdict.error:.0e}",
        "tolerance": None if verdict.tolerance is None else f"{verdict.tolerance:.0e}",
    }


def _options(options: Any) -> dict[str, Any]:
    chosen = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in _UNRECORDED}
    chosen["patterns"] = spelled(chosen["patterns"])
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in chosen.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _interface(value: ir.Value) -> dict[str, Any]:
    shape = value.shape
    dims = None if shape is None else [d if isinstance(d, int) else d.value for d in shape]
    return {"name": value.name, "type": None if value.dtype is None else value.dtype.name.lower(), "dims": dims}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
