"""`smelt inspect`: what a model or an artifact is, without running it.

Input: a model or an artifact folder. Output: interface, ops, versions, sizes. Invariant: no code of the artifact is
loaded, and no tensor's content is shown.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from smelt.cli import options as opt
from smelt.cli.output import Output, reporting

if TYPE_CHECKING:
    import onnx_ir as ir


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect_command)


def inspect_command(
    subject: opt.Subject, as_json: opt.Json = False, verbose: opt.Verbose = 0, quiet: opt.Quiet = False
) -> None:
    """Show inputs, outputs, ops, versions and sizes of a model; an artifact's manifest too."""
    with reporting(as_json, verbose, quiet) as out:
        if subject.is_dir():
            _inspect_artifact(subject, out)
        else:
            _inspect_model(subject, out)


def _inspect_model(path: Path, out: Output) -> None:
    from smelt.ir.load import load_model
    from smelt.report import counted, in_bytes, readable

    model = load_model(path)
    graph = model.graph
    opsets = {readable(domain) or "ai.onnx": version for domain, version in model.opset_imports.items()}
    parameters = _parameters(model)
    held = sum(size for _, _, size in parameters)
    producer = readable(" ".join(filter(None, (model.producer_name, model.producer_version))))
    out.lines(
        f"{path.name}: {in_bytes(path.stat().st_size)}, IR version {model.ir_version}, opset "
        + ", ".join(f"{domain} {version}" for domain, version in opsets.items()),
        f"graph {readable(graph.name or '')!r}" + (f" by {producer}" if producer else ""),
        f"{counted(sum(c for _, c, _ in parameters), 'parameter')}, {in_bytes(held)}: "
        + ", ".join(f"{dtype} {in_bytes(size)}" for dtype, _, size in parameters),
    )
    _show_graph(model, out)
    out.facts(
        path=str(path),
        bytes=path.stat().st_size,
        ir_version=model.ir_version,
        opsets=opsets,
        producer=producer,
        functions=len(model.functions),
        parameters=[{"dtype": d, "count": c, "bytes": s} for d, c, s in parameters],
        metadata={readable(k): readable(v, 400) for k, v in model.metadata_props.items()},
    )


def _show_graph(model: ir.Model, out: Output) -> None:
    from smelt.ir.walk import model_nodes
    from smelt.report import count_ops, table, value_text

    inputs = [value_text(v) for v in model.graph.inputs]
    outputs = [value_text(v) for v in model.graph.outputs]
    ops = sorted(count_ops(model).items(), key=lambda item: (-item[1], item[0]))
    shown = ops if out.verbose else ops[:20]
    out.lines("inputs:", [f"  {text}" for text in inputs], "outputs:", [f"  {text}" for text in outputs])
    out.lines("", table(("op", "count"), shown))
    if len(ops) > len(shown):
        out.lines(f"  … {len(ops) - len(shown)} more")
    nodes = sum(1 for _ in model_nodes(model))
    out.lines(f"  {nodes:,} nodes of {len(ops)} kinds")
    out.facts(inputs=inputs, outputs=outputs, ops=dict(ops), nodes=nodes)


def _parameters(model: ir.Model) -> list[tuple[str, int, int]]:
    """(dtype, elements, bytes) of initializers and of Constant nodes' tensors, the largest first."""
    from smelt.ir.walk import model_graphs

    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for graph in model_graphs(model):
        held = [value.const_value for value in graph.initializers.values()]
        held += [node.attributes["value"].as_tensor() for node in graph if _holds_tensor(node)]
        for tensor in held:
            if tensor is not None:
                count[tensor.dtype.name.lower()] += tensor.size
                size[tensor.dtype.name.lower()] += tensor.nbytes
    return [(dtype, count[dtype], held) for dtype, held in size.most_common()]


def _holds_tensor(node: ir.Node) -> bool:
    return node.op_type == "Constant" and node.domain == "" and "value" in node.attributes


def _inspect_artifact(folder: Path, out: Output) -> None:
    from smelt.ir.load import load_model
    from smelt.report import in_bytes, readable
    from smelt.runtime import open_artifact

    opened = open_artifact(folder)
    manifest = opened.manifest
    files = {path.name: path.stat().st_size for path in sorted(opened.directory.iterdir()) if path.is_file()}
    out.lines(
        f"{folder}: artifact of smelt {readable(str(manifest.get('smelt', '?')))}, "
        f"{in_bytes(sum(files.values()))}, for ONNX Runtime {readable(str(manifest.get('min_ort', '?')))} or later",
        [f"  {readable(name)}: {in_bytes(size)}" for name, size in files.items()],
    )
    out.lines(_manifest_lines(manifest))
    _show_graph(load_model(opened.model), out)
    out.facts(path=str(folder), files=files, manifest=dict(manifest))


def _manifest_lines(manifest: Any) -> list[str]:
    from smelt.report import readable

    lines: list[str] = []
    library, nodes, verified = (_mapping(manifest.get(key)) for key in ("library", "nodes", "verified"))
    if library:
        targets = ", ".join(readable(str(t)) for t in library.get("targets") or ())
        compiler = readable(str(library.get("compiler", "?")))
        lines.append(f"library: levels {targets or '?'}, compiler {compiler}, digest right")
    else:
        lines.append("library: none; ONNX Runtime runs the whole model")
    if nodes:
        regions = len(manifest.get("regions") or ())
        lines.append(f"nodes: {nodes.get('in_kernels')} of {nodes.get('all')} in kernels, {regions} regions")
    if verified:
        lines.append(f"verified: {verified.get('regions')} regions, model error {verified.get('model_error')}")
    else:
        lines.append("not verified")
    settings = _mapping(manifest.get("settings"))
    if settings:
        lines.append("tuned: " + ", ".join(readable(f"{name} {value}") for name, value in sorted(settings.items())))
    return lines


def _mapping(value: object) -> dict[str, Any]:
    """Every form is possible in a manifest that somebody else wrote."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
