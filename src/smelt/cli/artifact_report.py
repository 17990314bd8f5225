"""An artifact folder -> Report, from its manifest and its own graph.

Input: a folder that `smelt compile` wrote. Output: a `Report`. Invariant: the folder is checked as for loading, but
no code of it is loaded; the manifest is not trusted to have the right form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir

from smelt.ir.faults import Fault
from smelt.ir.load import load_model
from smelt.ir.records import Fallback, Plan, Region
from smelt.ir.walk import model_nodes
from smelt.report import (
    Check,
    KernelRow,
    OpRow,
    ReasonRow,
    RegionRow,
    Report,
    Times,
    count_ops,
    draw,
    op_name,
    readable,
    readable_fault,
)
from smelt.runtime import open_artifact


def report_of_artifact(folder: Path, times: Times | None = None) -> Report:
    """What the manifest says, with the artifact's graph."""
    opened = open_artifact(folder)
    manifest = opened.manifest
    model = load_model(opened.model)
    domain = domain_of(manifest)
    plan = _plan(model, domain)
    left = _fallbacks(manifest)
    return Report(
        title=readable(folder.resolve().name),
        ops=_ops(model, domain, manifest),
        regions=_regions(model, domain, manifest, times),
        reasons=left,
        picture=draw(model, plan, count_ops(model)),
        library=_library(manifest, opened.library),
        check=_check(manifest),
        times=times,
        version=readable(str(manifest.get("smelt", "?"))),
        faults=tuple(_fault(item) for item in _items(manifest.get("faults"))),
    )


def domain_of(manifest: Mapping[str, Any]) -> str:
    """The domain of the artifact's custom ops; empty where it has none."""
    return str(_mapping(manifest.get("library")).get("domain", ""))


def regions_by_node(model: ir.Model, domain: str) -> dict[str, int]:
    """Custom-op nodes by name, numbered in the order of the graph."""
    return {node.name or "": place for place, node in enumerate(_custom(model, domain))}


def _custom(model: ir.Model, domain: str) -> list[ir.Node]:
    return [node for node in model_nodes(model) if domain and node.domain == domain]


def _plan(model: ir.Model, domain: str) -> Plan:
    """Each custom op as a region of one node; the rest is left."""
    regions = [
        Region(place, (node,), tuple(v for v in node.inputs if v is not None), tuple(node.outputs))
        for place, node in enumerate(_custom(model, domain))
    ]
    fallbacks = [
        Fallback(node, "falling back to ONNX Runtime")
        for node in model_nodes(model)
        if not domain or node.domain != domain
    ]
    return Plan(tuple(regions), tuple(fallbacks))


def _regions(model: ir.Model, domain: str, manifest: Mapping[str, Any], times: Times | None) -> tuple[RegionRow, ...]:
    recorded = {str(item.get("entry")): item for item in _items(manifest.get("regions"))}
    rows: list[RegionRow] = []
    for place, node in enumerate(_custom(model, domain)):
        item = recorded.get(node.op_type, {})
        kernels = tuple(_kernel(kernel) for kernel in _items(item.get("kernels")))
        rows.append(
            RegionRow(
                place,
                readable(node.op_type),
                _whole(item.get("nodes"), 1),
                ((f"node {readable(node.name or '')}", 1),),
                kernels,
                len(node.inputs),
                len(node.outputs),
                time_us=times.regions.get(place) if times else None,
            )
        )
    return tuple(rows)


def _kernel(item: Mapping[str, Any]) -> KernelRow:
    text = {key: readable(str(item.get(key, "")), 200) for key in ("name", "kind", "summary")}
    form, reason, micro = (readable(str(item.get(key, "")), 200) for key in ("form", "reason", "micro_kernels"))
    units = text["summary"].removesuffix(" units")
    return KernelRow(text["name"], text["kind"], (), units, "", "", None, None, form, reason, micro)


def _ops(model: ir.Model, domain: str, manifest: Mapping[str, Any]) -> tuple[OpRow, ...]:
    """What is left, by op; nodes in kernels are only known in number."""
    left = Counter(op_name(node) for node in model_nodes(model) if not domain or node.domain != domain)
    rows = [OpRow(name, count, 0, count) for name, count in left.most_common()]
    inside = _whole(_mapping(manifest.get("nodes")).get("in_kernels"), 0)
    return (OpRow("(in kernels)", inside, inside, 0), *rows) if inside else tuple(rows)


def _fallbacks(manifest: Mapping[str, Any]) -> tuple[ReasonRow, ...]:
    groups: dict[str, Counter[str]] = {}
    for item in _items(manifest.get("fallbacks", manifest.get("left"))):
        reason = readable(str(item.get("reason", "")), 400)
        groups.setdefault(reason, Counter())[readable(str(item.get("op_type", "")))] += _whole(item.get("count"), 1)
    rows = [ReasonRow(reason, ops.total(), tuple(ops.most_common()), ()) for reason, ops in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.reason)))


def _library(manifest: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    entry = _mapping(manifest.get("library"))
    if path is None:
        return {}
    targets = entry.get("targets")
    levels = [readable(str(name)) for name in cast("list[object]", targets)] if isinstance(targets, list) else []
    compiler = " ".join(readable(str(entry.get("compiler", "?"))).split()[:2])
    return {"compiler": compiler, "levels": levels, "bytes": path.stat().st_size, "cached": False, "seconds": 0.0}


def _check(manifest: Mapping[str, Any]) -> Check:
    verified = manifest.get("verified")
    if not isinstance(verified, dict):
        return Check(False)
    facts = _mapping(cast("object", verified))
    rejected = tuple(
        (_whole(i.get("region"), -1), readable(str(i.get("reason")))) for i in _items(facts.get("rejected"))
    )
    errors = [_number(facts.get(key)) for key in ("model_error", "largest_error")]
    worst = next((error for error in errors if error is not None), None)
    return Check(worst is not None, _whole(facts.get("regions"), 0), worst, None, rejected)


def _fault(item: Mapping[str, Any]) -> Fault:
    texts = {key: str(item.get(key, "")) for key in ("stage", "error", "where", "repro")}
    nodes = item.get("nodes")
    names = tuple(str(name) for name in cast("list[object]", nodes)) if isinstance(nodes, list) else ()
    return readable_fault(Fault(**texts, nodes=names))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (str, int, float)) else None
    except ValueError:
        return None
