"""Every stage of a compilation as files that can be read, compared and edited.

Input: the stage records as they are made. Output: numbered files in one folder; without a folder, nothing. Invariant:
a file holds no large tensor, and only a folder that is empty or an earlier dump is written to.

    00-captured.txt .onnx   the model as loaded             40-build.json      library, compiler, CPU levels
    05-patterns/*.txt       what a pass or rule changed, place by place
    10-model.txt .onnx      after the passes                45-calls/*.call    inputs and outputs of distinct regions
    20-plan.json            regions, and why not the rest   50-artifact.json   the manifest
    30-sources/             C, schedules, source.json   60-findings.json   errors, times, rejections
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.errors import ArtifactError
from smelt.check.findings import Findings
from smelt.ir.backend import Generated
from smelt.ir.printer import format_model
from smelt.ir.proto import to_proto
from smelt.ir.records import Artifact, Entry, Library, Plan, Source, Unit
from smelt.ir.save import MIN_EXTERNAL_BYTES
from smelt.ir.walk import model_graphs

MARKER: Final = "dump.json"
SOURCES: Final = "30-sources"
CALLS: Final = "45-calls"
PATTERNS: Final = "05-patterns"
_ABSENT: Final = "weights-are-not-dumped"


class Dump:
    """Writes stages into a folder, or nothing when there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else folder.absolute()
        if self.folder is not None:
            _prepare(self.folder)

    @property
    def calls(self) -> Path | None:
        """Where calls of regions are kept."""
        return None if self.folder is None else self.folder / CALLS

    @property
    def patterns(self) -> Path | None:
        """Where the applications of passes and rules are kept."""
        return None if self.folder is None else self.folder / PATTERNS

    def model(self, stem: str, model: ir.Model) -> None:
        if self.folder is not None:
            (self.folder / f"{stem}.txt").write_text(format_model(model), encoding="utf-8")
            (self.folder / f"{stem}.onnx").write_bytes(without_weights(model))

    def plan(self, plan: Plan) -> None:
        regions = [
            {
                "region": region.index,
                "nodes": [_node(node) for node in region.nodes],
                "inputs": [value.name for value in region.inputs],
                "outputs": [value.name for value in region.outputs],
            }
            for region in plan.regions
        ]
        left = [{**_node(item.node), "reason": item.reason} for item in plan.fallbacks]
        self._json("20-plan.json", {"regions": regions, "fallbacks": left})

    def sources(self, generated: Generated, targets: tuple[str, ...]) -> None:
        if self.folder is None:
            return
        place = self.folder / SOURCES
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for unit in generated.source.units:
            (place / f"{unit.name}.c").write_text(unit.text, encoding="utf-8")
        for entry, code in dict(zip(generated.entry_of, generated.codes, strict=True)).items():
            for name, text in code.texts(entry).items():
                (place / name).write_text(text, encoding="utf-8")
        pairs = zip(generated.regions, generated.entry_of, strict=True)
        source = generated.source
        content = {
            "domain": source.domain,
            "targets": list(targets),
            "units": [{k: v for k, v in asdict(u).items() if k != "text"} for u in source.units],
            "entries": [asdict(entry) for entry in source.entries],
            "regions": {str(region.index): entry for region, entry in pairs},
        }
        self._json(f"{SOURCES}/source.json", content)

    def library(self, library: Library) -> None:
        content = {**asdict(library), "path": library.path.name}
        self._json("40-build.json", content)

    def artifact(self, artifact: Artifact) -> None:
        self._json("50-artifact.json", dict(artifact.manifest))

    def findings(self, findings: Findings | None) -> None:
        if findings is not None:
            content = asdict(findings)
            content["rejected"] = {str(index): reason for index, reason in findings.rejected.items()}
            self._json("60-findings.json", content)

    def _json(self, name: str, content: Mapping[str, Any]) -> None:
        if self.folder is not None:
            text = json.dumps(content, indent=1, default=str)
            (self.folder / name).write_text(text + "\n", encoding="utf-8")


def read_sources(dump: Path, include_dirs: tuple[Path, ...]) -> tuple[Source, tuple[str, ...], dict[int, str]]:
    """The source of a dump as it is now, its CPU levels, and the entry of each region."""
    place = dump / SOURCES
    try:
        content: dict[str, Any] = json.loads((place / "source.json").read_bytes())
        units = tuple(_unit(u, _text(place, u["name"])) for u in content["units"])
        entries = tuple(Entry(e["name"], tuple(e["in_types"]), tuple(e["out_types"])) for e in content["entries"])
        source = Source(units, entries, include_dirs, "", str(content["domain"]))
        return source, tuple(content["targets"]), {int(i): str(e) for i, e in content["regions"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            "SM-ARTIFACT-001", f"{dump} holds no dumped sources: {error}", hint="Make one with `smelt compile --dump`."
        ) from error


def _unit(told: Mapping[str, Any], text: str) -> Unit:
    named = {key: tuple(map(str, told.get(key, ()))) for key in ("entries", "kernels", "launches")}
    how = (bool(told["per_level"]), int(told.get("optimize", 2)), bool(told.get("rare", False)))
    return Unit(told["name"], text, *how, **named)


def _text(place: Path, unit: str) -> str:
    if not unit.isidentifier():
        raise ValueError(f"{unit!r} is not the name of a unit")
    return (place / f"{unit}.c").read_text(encoding="utf-8")


def _prepare(folder: Path) -> None:
    known = folder.is_dir() and not folder.is_symlink() and ((folder / MARKER).is_file() or not any(folder.iterdir()))
    if folder.exists() and not known:
        raise ArtifactError("SM-ARTIFACT-004", f"{folder} exists and is no dump, so nothing is written to it")
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        # A stage that is not reached this time must not show the last one's.
        if path.is_dir() and path.name in (SOURCES, CALLS, PATTERNS):
            shutil.rmtree(path)
        elif path.name[:2].isdigit() and path.suffix in (".txt", ".onnx", ".json"):
            path.unlink()
    (folder / MARKER).write_text('{"format": 1}\n', encoding="utf-8")


def _node(node: ir.Node) -> dict[str, Any]:
    return {"name": node.name, "op_type": node.op_type, "domain": node.domain}


def without_weights(model: ir.Model) -> bytes:
    """The model as a file, with references in place of large tensors."""
    originals: list[tuple[ir.Value, ir.TensorProtocol]] = []
    try:
        for graph in model_graphs(model):
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes >= MIN_EXTERNAL_BYTES:
                    originals.append((value, tensor))
                    shape = ir.Shape(tensor.shape.numpy())
                    value.const_value = ir.ExternalTensor(
                        _ABSENT, 0, tensor.nbytes, tensor.dtype, shape=shape, name=value.name or ""
                    )
        return to_proto(model).SerializeToString()
    finally:
        for value, tensor in originals:
            value.const_value = tensor
