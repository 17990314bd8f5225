"""Units that are compiled before a build asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from smelt.base import Config, Target
from smelt.ir.records import Source
from smelt.toolchain import Cache, Compiler, EarlyObjects, build, find_compiler

Make = Callable[[str], Path]


def counting(make_compiler: Make, config: Config, log: Path, pause_s: float = 0.0) -> Compiler:
    """A compiler that writes down each compilation."""
    body = (
        f"if '-c' in sys.argv: open({str(log)!r}, 'a').write(sys.argv[sys.argv.index('-c') + 1] + '\\n')\n"
        f"if '-c' in sys.argv: time.sleep({pause_s})\n"
        "real(*sys.argv[1:])\n"
    )
    return find_compiler(config.with_(cc=str(make_compiler(body)), cc_from="SMELT_CC"))


def test_a_build_links_what_was_compiled_early_and_waits_for_what_is_under_way(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    compiler = counting(make_compiler, config, log, 0.2)
    early = EarlyObjects(source, targets, compiler, cache, config)
    while not log.exists():
        time.sleep(0.01)
    library = build(source, targets, compiler, cache, config, early=early)
    early.close()
    assert library.path.exists()
    per_level = sum(len(targets) if unit.per_level else 1 for unit in source.units)
    assert len(log.read_text().splitlines()) == per_level  # nothing was compiled twice


def test_closing_stops_the_compiler_and_leaves_no_work_behind(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    early = EarlyObjects(source, targets, counting(make_compiler, config, log, 60), cache, config)
    while not log.exists():
        time.sleep(0.01)
    started = time.monotonic()
    early.close()
    assert time.monotonic() - started < 20
    assert len(log.read_text().splitlines()) == 1
    assert not list((cache.root / "tmp").iterdir())


def test_a_failure_is_the_builds_to_report(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, compiler: Compiler
) -> None:
    early = EarlyObjects(source, targets, compiler, cache, config.with_(cflags="-include no-such-file.h"))
    early.wait("")
    assert build(source, targets, compiler, cache, config, early=early).path.exists()
    early.close()
