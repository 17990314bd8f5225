"""`smelt find`: nodes of a model by pattern.

Input: a model or an artifact folder, and glob patterns over names, op types and values. Output: the nodes that match.
Invariant: the same patterns select the same nodes in `--select` and `--exclude`; the exit code is 1 when nothing
matches.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smelt.cli import options as opt
from smelt.cli.output import failed, reporting

if TYPE_CHECKING:
    import onnx_ir as ir

Patterns = Annotated[
    list[str], typer.Argument(help="Globs over node names, op types and domain::op_type.", show_default=False)
]
Values = Annotated[bool, typer.Option("--values", help="Match the names of inputs and outputs too.")]


def register(app: typer.Typer) -> None:
    app.command("find")(find_command)


def find_command(
    subject: opt.Subject,
    patterns: Patterns,
    values: Values = False,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Find nodes by name or op type, as --select and --exclude would."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.ir.load import load_model
        from smelt.ir.printer import format_node
        from smelt.ir.walk import model_nodes
        from smelt.report import counted

        model = load_model(subject / "model.onnx" if subject.is_dir() else subject)
        found = [node for node in model_nodes(model, functions=True) if _matches(node, patterns, values)]
        for node in found:
            out.result(format_node(node))
        out.lines(counted(len(found), "node"))
        out.facts(count=len(found), nodes=[_facts(node) for node in found])
        if not found:
            failed(out)


def _matches(node: ir.Node, patterns: list[str], values: bool) -> bool:
    names = [node.name or "", node.op_type, f"{node.domain}::{node.op_type}"]
    if values:
        names += [v.name or "" for v in (*node.inputs, *node.outputs) if v is not None]
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _facts(node: ir.Node) -> dict[str, Any]:
    from smelt.report import op_name, readable, value_text

    return {
        "name": readable(node.name or ""),
        "op": op_name(node),
        "inputs": [value_text(v) for v in node.inputs],
        "outputs": [value_text(v) for v in node.outputs],
    }
