"""Identifiers of `src/` use the field's words: `python tools/check_words.py [FOLDER]`, part of `make check`.

Input: Python, C and JavaScript sources. Output: one line for each identifier, or file, with a word of `BANNED` in it;
the exit code is 1 when there is one. Invariant: only identifiers and file names count. Comments, texts and names of
other projects (`EXCEPT`) do not.
"""

from __future__ import annotations

import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Banned:
    """`words` in a row within an identifier, what to say instead, and the paths that it holds for."""

    words: str
    instead: str
    where: str = ""


_KERNELS: Final = r"/(codegen|ir/kernel|ops)/"
_C: Final = r"\.(c|h)$"
BANNED: Final = (
    Banned("channelwise", "depthwise"),
    Banned("channels last", "nhwc"),
    Banned("planar", "nchw"),
    Banned("gathered", "im2col", _KERNELS),
    Banned("turn", "transpose", _KERNELS),
    Banned("turned", "transposed"),
    Banned("lying", "unpacked"),
    Banned("laid", "packed"),
    Banned("twin", "sibling or identical"),
    Banned("twins", "siblings or identical"),
    Banned("chain", "b2b_gemm", r"/codegen/"),
    Banned("chained", "b2b_gemm", r"/codegen/"),
    Banned("leader", "producer"),
    Banned("follower", "consumer"),
    Banned("followers", "consumers"),
    Banned("reach", "mask_bounds or extent", _KERNELS),
    Banned("shut", "masked", _KERNELS),
    Banned("vacant", "zero_padded"),
    Banned("few rows", "gemv"),
    Banned("finish", "register_epilogue", r"/codegen/"),
    Banned("finished", "register_epilogue", r"/codegen/"),
    Banned("wish", "prefetch"),
    Banned("ask", "prefetch", _C),
    Banned("then", "prefetch", _C),
    Banned("stream", "nontemporal", r"/include/smelt/(?!host/|device/)"),
    Banned("own rows", "row_affine"),
    Banned("far rows", "b_streaming"),
    Banned("in order", "row_fused", r"/codegen/"),
    Banned("bands", "spatial_tiles"),
    Banned("strips", "channel_tiles"),
    Banned("part of k", "k_block"),
    Banned("settle", "bisect_regions"),
    Banned("settled", "resolved"),
    Banned("peel", "trim"),
    Banned("peeled", "trimmed"),
    Banned("strangers", "unknown_settings"),
    Banned("left node", "fallback_node"),
    Banned("give back", "fall_back or free_scratch"),
    Banned("given back", "fallback"),
    Banned("meaning", "lowering"),
    Banned("refusal", "unsupported", _KERNELS),
    Banned("floating", "inlined", r"/codegen/"),
    Banned("sink", "materialize", r"/codegen/"),
    Banned("sinks", "materialized", r"/codegen/"),
)
# Names of others, such as torch's memory format.
EXCEPT: Final = frozenset({"channels_last", "channels_last_3d", "is_floating_point"})

_SUFFIXES: Final = (".py", ".c", ".h", ".js", ".j2")
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_C_NOISE: Final = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def words_of(identifier: str) -> list[str]:
    """`SMELT_GEMM_KC` -> smelt, gemm, kc; `FusedMlpWriter` -> fused, mlp, writer."""
    return [word.lower() for word in _WORD.findall(identifier)]


def banned_in(identifier: str, path: str) -> Banned | None:
    """The first entry of the list that the identifier breaks in a file of this path."""
    if identifier in EXCEPT:
        return None
    text = f" {' '.join(words_of(identifier))} "
    return next((b for b in BANNED if f" {b.words} " in text and re.search(b.where, path)), None)


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Names in a file with their lines, each once."""
    text = path.read_text(encoding="utf-8")
    found = _python_names(text) if path.suffix == ".py" else _other_names(text)
    seen: set[str] = set()
    for line, name in found:
        if name not in seen:
            seen.add(name)
            yield line, name


def _python_names(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


def _other_names(text: str) -> Iterator[tuple[int, str]]:
    code = _C_NOISE.sub(lambda m: "\n" * m[0].count("\n"), text)
    for number, line in enumerate(code.split("\n"), 1):
        for match in _NAME.finditer(line):
            yield number, match[0]


def complaints(folder: Path) -> Iterator[str]:
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in _SUFFIXES):
        where = f"/{path.relative_to(folder.parent).as_posix()}"
        for line, name in [(1, path.stem), *identifiers(path)]:
            broken = banned_in(name, where)
            if broken is not None:
                yield f"{path}:{line}: {name}: not {broken.words!r} but {broken.instead!r}"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "src"
    found = list(complaints(folder))
    print("\n".join(found) if found else "Identifiers use the field's words.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
