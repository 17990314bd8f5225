"""`smelt bench --llm`: language models in onnxruntime-genai, as given and compiled.

Input: a folder of onnxruntime-genai, a Hugging Face folder, a GGUF file, or the name of a configuration, which is built
with random weights. Output: a table, Markdown, JSON or a picture. Invariant: both folders are those that `smelt
compile` reads and writes; what has random weights is said to have them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from smelt.base.errors import ConfigError, LoadError
from smelt.cli.output import Output

ANSWER = 32
MOST_TOKENS = 4096  # of a text


def is_language_model(name: str) -> bool:
    from smelt.bench.llm_models import MODELS

    return name in MODELS


def run_llm(
    source: Path | None, name: str, prompts: Sequence[int], threads: Sequence[int], rounds: int, plot: Path | None,
    output: Output, form: str,
) -> None:  # fmt: skip
    """`form` is json, markdown or a table."""
    from smelt.base.config import Config
    from smelt.bench.llm import as_facts, measure, to_markdown, to_table, write_picture
    from smelt.bench.roofline import measure_limits

    if plot is not None and plot.suffix != ".png":
        raise ConfigError("SM-CONFIG-005", f"no plot of kind {plot.suffix!r}", hint="Use a name in .png.")
    with tempfile.TemporaryDirectory(prefix="smelt-") as place:
        folders = _folders(source, name, Path(place))
        rows = [
            row
            for count in threads
            for row in measure(
                folders, prompts, count, answer=ANSWER, rounds=rounds,
                read_rate=measure_limits(count, Config.from_env()).read,
            )
        ]  # fmt: skip
    output.facts(rows=as_facts(rows), random_weights=bool(name))
    if form != "json":
        said = (f"{name}: random weights",) if name else ()
        output.lines(*said, to_markdown(rows) if form == "markdown" else _aligned(to_table(rows)))
    if plot is not None:
        write_picture(rows, plot)


def run_quality(source: Path | None, text: Path, output: Output, form: str) -> None:
    """`form` is json, markdown or a table."""
    from smelt.bench.llm import as_markdown
    from smelt.bench.llm_quality import as_facts, measure_quality, to_table, tokens_of

    if source is None or not (source / "config.json").is_file():
        raise ConfigError("SM-CONFIG-005", "--quality compares with a Hugging Face folder", hint="Give it by --llm.")
    try:
        read = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("SM-CONFIG-005", f"{text} cannot be read: {error}") from error
    tokens = tokens_of(source, read, MOST_TOKENS)
    if len(tokens) < 2:
        raise ConfigError("SM-CONFIG-005", f"{text} has fewer than two tokens")
    with tempfile.TemporaryDirectory(prefix="smelt-") as place:
        rows = measure_quality(source, _folders(source, "", Path(place)), tokens)
    output.facts(rows=as_facts(rows))
    if form != "json":
        lines = to_table(rows)
        output.lines(as_markdown(lines) if form == "markdown" else _aligned(lines))


def _aligned(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _folders(source: Path | None, name: str, work: Path) -> dict[str, Path]:
    """Each folder as stock runs it, then compiled."""
    if source is None:
        from smelt.bench.llm_models import write_model

        source = work / "model"
        write_model(name, source)
    found: dict[str, Path] = {}
    for accuracy in ("exact", "fast"):
        place = work / accuracy
        place.mkdir()
        stock = _stock(source, place, accuracy)
        found |= {f"stock, {accuracy}": stock, f"smelt, {accuracy}": _compiled(stock, place / "compiled")}
        if stock == source:  # its own arithmetic
            return {"stock": stock, "smelt": found[f"smelt, {accuracy}"]}
    return found


def _stock(source: Path, place: Path, accuracy: str) -> Path:
    from smelt.frontends.genai_builder import build_folder
    from smelt.frontends.genai_folder import check_folder, is_genai_folder
    from smelt.frontends.gguf_file import is_gguf
    from smelt.frontends.gguf_folder import build_gguf_folder

    if is_gguf(source):
        return build_gguf_folder(source, place, "", accuracy)
    if is_genai_folder(source):
        check_folder(source)
        return source
    return build_folder(source, place, "w4", accuracy)


def _compiled(stock: Path, target: Path) -> Path:
    command = [sys.executable, "-P", "-m", "smelt", "compile", str(stock), "--no-timing", "--force", "-o", str(target)]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        raise LoadError("SM-LOAD-010", f"{stock} was not compiled: {last[:500]}")
    return target
