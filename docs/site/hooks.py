"""What mkdocs does not do by itself: reference pages from the code, the picture of the results, links out of docs/.

Input: the installed package, README.md, the pages. Output: generated pages under reference/, an SVG in place of
`<!-- results -->`. Invariant: nothing here is written by hand twice; a page that cannot be generated fails the build.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| \*{0,2}([0-9.]+)\*{0,2} \[([0-9.]+), ([0-9.]+)\] \|", re.MULTILINE)
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
    markdown = _OUTSIDE.sub(r"\1 (`\2` of the repository)", markdown).replace("](../README.md)", "](index.md)")
    return markdown.replace("<!-- results -->", results_picture()) if "<!-- results -->" in markdown else markdown


# The picture


def results_picture() -> str:
    """Speed on two threads against stock, from the table of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- bench:models -->") : text.index("<!-- /bench:models -->")]
    found = [(name, *(float(number) for number in numbers)) for name, *numbers in _ROW.findall(table)]
    assert found, "README.md has no table of models"
    left, line, width = 150, 26, 480
    scale = (width - left - 48) / max(high for *_, high in found)
    bottom = line * len(found) + 10
    parts = [_bar(i * line + 4, left, scale, *row) for i, row in enumerate(found)]
    one = left + scale
    parts.append(f'<line class="stock" x1="{one:.1f}" y1="0" x2="{one:.1f}" y2="{bottom}"/>')
    parts.append(f'<text x="{one:.1f}" y="{bottom + 16}" text-anchor="middle">stock ONNX Runtime = 1</text>')
    title = "Speed of compiled models on two threads, stock ONNX Runtime is 1"
    return (
        f'<svg class="smelt-results" viewBox="0 0 {width} {bottom + 24}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )


def _bar(top: int, left: int, scale: float, name: str, middle: float, low: float, high: float) -> str:
    end, center, first, last = left + scale * middle, top + 9, left + scale * low, left + scale * high
    return (
        f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{name.strip()}</text>'
        f'<rect class="bar" x="{left}" y="{top}" width="{scale * middle:.1f}" height="18" rx="2"/>'
        f'<line class="range" x1="{first:.1f}" y1="{center}" x2="{last:.1f}" y2="{center}"/>'
        f'<text x="{max(end, last) + 6:.1f}" y="{top + 14}">{middle:.2f}</text>'
    )


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
    try:
        return str(inspect.signature(found)).replace("typing.", "")
    except (TypeError, ValueError):
        return "(...)"


def _doc(found: Any) -> str:
    return (inspect.getdoc(found) or "").replace("<", "&lt;")


# Environment


def environment_page() -> str:
    from smelt.base.config import KNOBS

    rows = [f"| `{knob.variable}` | {_cell(knob.meaning)} |" for knob in KNOBS]
    head = ["# Environment", "", "Every variable that is read, from the code.", "", "| variable | |", "|---|---|"]
    return "\n".join([*head, *rows, ""])
