"""Links and commands of the documentation work: `python tools/check_docs.py`, what `make docs-check` runs.

Input: the Markdown files of the repository. Output: one line for each link without a target and each command that would
not start; the exit code is 1 when there is one. Invariant: nothing is fetched. A `smelt` command is parsed by the real
command line, and its verb's help is shown; a `make` target, a script and a module must exist.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
# Pages that the site makes from the code.
_MADE: Final = frozenset({"reference/cli.md", "reference/python.md", "reference/environment.md"})
_LINK: Final = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_INLINE: Final = re.compile(r"`((?:smelt|make) [^`\n]+)`")


@dataclass(frozen=True)
class Command:
    """`named`: mentioned in a sentence, where the value of its last option may be missing."""

    page: Path
    line: int
    text: str
    named: bool = False


def pages() -> list[Path]:
    """Every Markdown file that readers see."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted({*found, *(ROOT / "packages").rglob("README.md")})


def plain(text: str) -> str:
    """A page without its code, so that only what is shown as a link counts."""
    text = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "``", text)


def anchor(heading: str) -> str:
    """As GitHub and the site spell it."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", shown).strip())


@cache
def anchors(page: Path) -> frozenset[str]:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text) + re.findall(r"\{#([\w-]+)\}", text)
    shown = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return frozenset([*(anchor(heading) for heading in _HEADING.findall(shown)), *named])


def broken_link(page: Path, target: str) -> str | None:
    """Why a link leads nowhere; links to other sites are not followed."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, place = target.partition("#")
    to = (page.parent / path).resolve() if path else page
    if to.is_relative_to(ROOT / "docs") and to.relative_to(ROOT / "docs").as_posix() in _MADE:
        return None
    if not to.exists():
        return f"there is no {path}"
    if place and to.suffix == ".md" and place not in anchors(to):
        return f"{path or page.name} has no heading #{place}"
    return None


def links(page: Path) -> Iterator[str]:
    for number, line in enumerate(plain(page.read_text(encoding="utf-8")).split("\n"), 1):
        for target in _LINK.findall(line):
            why = broken_link(page, target)
            if why is not None:
                yield f"{page.relative_to(ROOT)}:{number}: link {target}: {why}"


def commands(page: Path) -> Iterator[Command]:
    """Lines of code blocks, indented or fenced, that begin as a command does; inline `smelt` and `make` commands."""
    fenced = False
    kind = ""
    kept = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        mark = re.match(r"^\s*(```|~~~)\s*(\w*)", line)
        if mark is not None:
            fenced, kind = not fenced, mark[2]
            continue
        if not fenced or kind in ("", "sh", "bash", "console", "shell", "text"):
            body = line.strip() if fenced else line[4:] if line.startswith("    ") else ""
            kept = kept + body.removeprefix("$ ")
            if kept.endswith("\\"):
                kept = kept[:-1]
                continue
            if re.match(r"(smelt|make|python|python3) \S", kept):
                yield Command(page, number, kept)
            kept = ""
        if not fenced:
            yield from (Command(page, number, text, named=True) for text in _INLINE.findall(line))


def broken_command(text: str) -> str | None:
    """Why a command would not start."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        return f"is not a command: {error}"
    words = words[: min([words.index(w) for w in ("|", "&&", ">", "&", ";", "2>") if w in words], default=len(words))]
    if words[0] == "make":
        return _broken_make(words[1:])
    if words[0] == "smelt":
        return _broken_smelt(words[1:])
    return _broken_python(words[1:])


def _broken_make(words: list[str]) -> str | None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    unknown = [word for word in words if "=" not in word and word not in known]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else None


def _broken_python(words: list[str]) -> str | None:
    rest = [word for word in words if word not in ("-W", "ignore")]
    if rest[:1] == ["-m"] and rest[1].startswith("smelt"):
        return None if find_spec(rest[1]) is not None else f"there is no module {rest[1]}"
    known = rest[:1] and rest[0].startswith(("bench/", "examples/", "tests/", "tools/", "docs/"))
    return f"there is no {rest[0]}" if known and not (ROOT / rest[0]).exists() else None


@cache
def _application() -> Any:
    import typer.main

    from smelt.cli.app import make_app

    return typer.main.get_command(make_app())


def _broken_smelt(words: list[str]) -> str | None:
    """Parsed by the real command line, from the application down to the verb."""
    command, context, rest = _application(), None, list(words)
    if "..." in rest or "…" in rest:
        rest = [word for word in rest if word not in ("...", "…")]
    while True:
        context = command.context_class(command, parent=context, info_name=command.name)
        if "--" in rest[:1] or not hasattr(command, "commands"):
            break
        while rest and rest[0].startswith("-"):
            rest = rest[1:]
        if not rest:
            return None
        if rest[0] == "VERB":
            return None
        if rest[0] not in command.commands:
            return f"there is no verb {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    try:
        command.make_parser(context).parse_args(args=rest)
        command.get_help(context)
    except Exception as error:  # click's own errors, of whichever click typer brings
        return str(getattr(error, "message", error)) or type(error).__name__
    return None


def complaints() -> Iterator[str]:
    for page in pages():
        yield from links(page)
        for command in commands(page):
            why = broken_command(command.text)
            if why is not None and not (command.named and "requires an argument" in why):
                yield f"{page.relative_to(ROOT)}:{command.line}: {command.text}: {why}"


def main() -> int:
    found = list(complaints())
    count = sum(len(list(commands(page))) for page in pages())
    print("\n".join(found) if found else f"{len(pages())} pages: links lead somewhere, {count} commands parse.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
