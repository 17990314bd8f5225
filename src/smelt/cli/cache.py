"""`smelt cache`: compiled libraries kept for the next time.

Input: the cache folder of the configuration. Output: what it holds, or what was deleted. Invariant: builds under way
are not disturbed.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

if TYPE_CHECKING:
    from smelt.toolchain import Cache, CacheEntry

OlderThan = Annotated[
    str, typer.Option("--older-than", metavar="AGE", help="Only what was not used for so long: 7d, 12h, 30m.")
]
MaxSize = Annotated[
    str, typer.Option("--max-size", metavar="SIZE", help="Only until it is not larger than this: 500MB, 2GB.")
]
Installed = Annotated[
    bool, typer.Option("--installed", help="Into the installed package, for all its users, instead of the cache.")
]
Key = Annotated[str, typer.Argument(help="First digits of an entry's key.", metavar="[KEY]")]

_AGES: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZES: Final = {"B": 1, "kB": 1000, "MB": 10**6, "GB": 10**9}


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        name="cache",
        help="List, show, delete or prepare compiled libraries.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("ls")(list_command)
    group.command("info")(info_command)
    group.command("clear")(clear_command)
    group.command("warm")(warm_command)
    app.add_typer(group)


def _open() -> Cache:
    from smelt.base.config import Config
    from smelt.toolchain import Cache

    return Cache(Config.from_env().cache_dir)


def list_command(as_json: opt.Json = False, verbose: opt.Verbose = 0, quiet: opt.Quiet = False) -> None:
    """List what is kept, the last used first: libraries, findings of verification, chosen sizes."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.report import in_bytes, table

        entries = _open().entries()
        rows = [(e.key[:12], in_bytes(e.bytes), _age(e.used), _about(e)) for e in entries]
        out.lines(table(("key", "size", "used", "what"), rows) or ["the cache is empty"])
        out.facts(entries=[_entry_facts(e) for e in entries])


def info_command(key: Key = "", as_json: opt.Json = False, verbose: opt.Verbose = 0, quiet: opt.Quiet = False) -> None:
    """Show where the cache is and what it holds; with a key, one entry."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.report import in_bytes, table

        cache = _open()
        if key:
            facts = _entry_facts(cache.entry(key))
            out.lines(table(("fact", "value"), [(name, str(value)) for name, value in facts.items()]))
            out.facts(**facts)
            return
        usage = cache.usage()
        rows = [
            ("folder", str(cache.root)),
            ("libraries", f"{usage.entries}, {in_bytes(usage.library_bytes)}"),
            ("objects", in_bytes(usage.object_bytes)),
            ("other", in_bytes(usage.other_bytes)),
            ("total", in_bytes(usage.total_bytes)),
        ]
        out.lines(*(f"{name + ':':<11}{value}" for name, value in rows))
        out.facts(
            folder=str(cache.root),
            entries=usage.entries,
            library_bytes=usage.library_bytes,
            object_bytes=usage.object_bytes,
            other_bytes=usage.other_bytes,
            total_bytes=usage.total_bytes,
        )


def clear_command(
    older_than: OlderThan = "",
    max_size: MaxSize = "",
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Delete everything, or only what is old or too much."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.report import in_bytes

        age = _parsed(older_than, "--older-than", _AGES, "7d") if older_than else None
        size = _parsed(max_size, "--max-size", _SIZES, "500MB") if max_size else None
        freed = _open().clear(age, None if size is None else int(size))
        out.result(f"freed {in_bytes(freed)}")
        out.facts(freed_bytes=freed)


def warm_command(
    as_json: opt.Json = False, verbose: opt.Verbose = 0, quiet: opt.Quiet = False, installed: Installed = False
) -> None:
    """Compile the kernels that no model changes, so that the first compilation need not."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.base.config import Config
        from smelt.base.target import select_targets
        from smelt.codegen import library_source
        from smelt.toolchain import PREBUILT, Cache, find_compiler, prebuild_all, warm

        config = Config.from_env()
        source, cache, compiler = library_source(), Cache(config.cache_dir), find_compiler(config)
        targets = select_targets()
        if installed:
            held, new = prebuild_all(source, targets, compiler, cache, config, PREBUILT)
        else:
            held, new = warm(source, targets, compiler, cache, config)
        where = "the installation" if installed else "the cache"
        out.result(f"{held} objects of kernels in {where}, {new} of them new")
        out.facts(objects=held, new=new, folder=str(PREBUILT if installed else cache.root))


def _parsed(text: str, option: str, units: dict[str, Any], example: str) -> float:
    from smelt.base.errors import ConfigError

    by_case = {unit.lower(): factor for unit, factor in units.items()}
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]+)", text.strip())
    if match is None or match[2].lower() not in by_case:
        known = ", ".join(units)
        raise ConfigError(
            "SM-CONFIG-001", f"{option} {text!r} has no unit of {known}", hint=f"Write {option} {example}."
        )
    return float(match[1]) * by_case[match[2].lower()]


def _age(used: float) -> str:
    seconds = max(0.0, time.time() - used)
    for unit in ("w", "d", "h", "m"):
        if seconds >= _AGES[unit]:
            return f"{seconds / _AGES[unit]:.0f}{unit} ago"
    return "now"


_KINDS: Final = {"findings": "findings of verification", "settings": "sizes that tuning chose"}


def _about(entry: CacheEntry) -> str:
    compiler = str(entry.meta.get("compiler", ""))
    if not compiler:
        return _KINDS.get(str(entry.meta.get("kind")), "unknown")
    targets: object = entry.meta.get("targets") or ()
    levels = ", ".join(str(t) for t in targets) if isinstance(targets, (list, tuple)) else str(targets)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return f"library for {levels} by {' '.join(compiler.split()[:2])}"


def _entry_facts(entry: CacheEntry) -> dict[str, Any]:
    return {**entry.meta, "key": entry.key, "path": str(entry.path), "bytes": entry.bytes, "used": entry.used}
