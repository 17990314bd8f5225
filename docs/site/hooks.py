"""What mkdocs does not do by itself: reference pages from the code, the picture of the results, links out of docs/.

Input: the installed package and the pages. Output: generated pages under reference/, an SVG in place of
`<!-- results -->`. Invariant: nothing here is written by hand twice; a page that cannot be generated fails the build.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_LINE = 48  # letters of parameters that a line may have
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./((?:examples|packages|bench)/[^)]+)\)")


def on_config(config: Any) -> Any:
    """Pages that mkdocs.yml does not place yet are shown all the same."""
    listed = set(re.findall(r"[\w/]+\.md", str(config.nav)))
    pages = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
    if more := [page for page in pages if page not in listed]:
        config.nav.append({"More": more})
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    sys.path.insert(0, str(ROOT / "src"))
    for name, text in (
        ("reference/cli.md", command_page()),
        ("reference/python.md", python_page()),
        ("reference/environment.md", environment_page()),
    ):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files of the repository that are no pages are named, not linked; the README's place is the landing page."""
    markdown = _OUTSIDE.sub(_named_file, markdown).replace("](../README.md)", "](index.md)")
    return markdown.replace("<!-- results -->", results_picture()) if "<!-- results -->" in markdown else markdown


def _named_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}` of the repository" if text.strip("`") == path else f"{text} (`{path}` of the repository)"


# The picture


def results_picture() -> str:
    """Both panels, each for itself, so that a phone shows them one below the other."""
    from smelt.bench.front_page import drawn_panels, to_svg

    parts = [to_svg([panel]).strip() for panel in drawn_panels(ROOT)]
    return f'<div class="smelt-results">{"".join(parts)}</div>'


# The command line


def command_page() -> str:
    import typer.main

    from smelt.cli.app import make_app

    lines = ["# Every option", "", "Generated from the code; [the command line](../cli.md) explains.", ""]
    _commands(typer.main.get_command(make_app()), "smelt", lines)
    return "\n".join(lines)


def _commands(command: Any, name: str, lines: list[str]) -> None:
    nested = getattr(command, "commands", None)
    if nested is None:
        _command(command, name, lines)
        return
    for verb, inner in sorted(nested.items()):
        if not inner.hidden:
            _commands(inner, f"{name} {verb}", lines)


def _command(command: Any, name: str, lines: list[str]) -> None:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    shown = " ".join((p.metavar or p.name or "").upper() for p in arguments)
    lines += [f"## `{name}{' ' + shown if shown else ''}`", "", _plain(command.help or ""), ""]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    if options:
        lines += ["| option | | default |", "|---|---|---|", *map(_option_row, options), ""]


def _option_row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    default = option.default
    told = "" if default in (None, False, (), [], "") or callable(default) else f"`{_cell(str(default))}`"
    return f"| {names} | {_cell(_plain(option.help or ''))} | {told} |"


def _plain(text: str) -> str:
    return inspect.cleandoc(text).replace("\b", "").replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# Python


def python_page() -> str:
    import smelt

    lines = ["# Python", "", "What `import smelt` has, generated from the code.", ""]
    for name in sorted(smelt.__all__, key=str.lower):
        found = getattr(smelt, name)
        if callable(found) and not inspect.ismodule(found):
            lines += _entry(f"smelt.{name}", found, 2)
    return "\n".join(lines)


def _entry(name: str, found: Any, depth: int) -> list[str]:
    lines = [f"{'#' * depth} `{name}`", "", "```python", f"{name}{_signature(found)}", "```", "", _doc(found), ""]
    if inspect.isclass(found) and depth == 2:
        for method, inner in vars(found).items():
            if not method.startswith("_") and inspect.isfunction(inner) and inner.__doc__:
                lines += _entry(f"{name}.{method}", inner, 3)
    return lines


def _signature(found: Any) -> str:
    """Types as they are written in the code; a parameter a line where one line is too long for a phone."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return "(...)"
    bare = re.compile(r"((?:: |-> ))'([^']*)'")
    parts = [bare.sub(r"\1\2", str(one)) for one in signature.parameters.values()]
    kinds = [one.kind for one in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = bare.sub(r"\1\2", str(signature).rpartition(")")[2]).replace("typing.", "")
    whole = ", ".join(parts).replace("typing.", "")
    if len(whole) <= _LINE:
        return f"({whole}){returned}"
    return "(\n" + "".join(f"    {part},\n" for part in parts).replace("typing.", "") + f"){returned}"


def _doc(found: Any) -> str:
    return (inspect.getdoc(found) or "").replace("<", "&lt;")


# Environment


def environment_page() -> str:
    from smelt.base.config import KNOBS

    rows = [f"| `{knob.variable}` | {_cell(knob.about)} |" for knob in KNOBS]
    head = ["# Environment", "", "Every variable that is read, from the code.", "", "| variable | |", "|---|---|"]
    return "\n".join([*head, *rows, ""])
