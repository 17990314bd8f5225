"""Verbs -> the application.

Input: the verbs' modules, each with `register(app)`. Output: a typer application. Invariant: a verb's module imports
only typer at its top, so that `smelt --help` starts fast; what is heavy is imported when a verb runs.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from smelt.base.version import __version__

VERBS: Final = (
    "compile",
    "export",
    "run",
    "batch",
    "verify",
    "explain",
    "bench",
    "inspect",
    "print",
    "find",
    "optimize",
    "reduce",
    "replay",
    "lighten",
    "cache",
    "doctor",
    "bugreport",
    "exec",
    "explain_error",
)


def make_app() -> typer.Typer:
    """The application with every verb that is there."""
    app = typer.Typer(
        name="smelt",
        help="Native kernels for ONNX models, run by stock ONNX Runtime.",
        epilog="Exit codes: 0 done, 1 failed (a mismatch, a broken setup), 2 wrong usage or bad input, "
        "3 less in kernels than --min-coverage asks for.",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_root)
    for verb in VERBS:
        name = f"smelt.cli.{verb}"
        if find_spec(name) is not None:
            import_module(name).register(app)
    _keep_whole(app)
    return app


def _keep_whole(app: typer.Typer) -> None:
    """Lists of verbs show the whole first paragraph of each: what is left to itself is cut after some words."""
    for command in app.registered_commands:
        command.short_help = command.short_help or _first_paragraph(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _keep_whole(group.typer_instance)


def _first_paragraph(callback: object) -> str:
    return " ".join((inspect.getdoc(callback) or "").partition("\n\n")[0].split())


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"smelt {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Native kernels for ONNX models, run by stock ONNX Runtime."""
    del version
