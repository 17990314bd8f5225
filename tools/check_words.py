"""Names use the field's words: `python tools/check_words.py [FOLDER]`, part of `make check`.

Input: a tree with `src/` and pages. Output: one line for each place that breaks a rule; the exit code is 1 when there
is one. Four rules: identifiers, files, settings and options of `src/` have no word of `BANNED`, nor has generated C;
pages have no phrase of `PROSE`; what is computed says nothing of how it is laid out: the folders of `LOWERING` have
no word of `LAYOUT`, not even in a comment; and tests ask records, they do not search generated text (`SEARCH`).
Invariant: names of other projects (`EXCEPT`) pass.
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
    Banned("planes", "nchw", _KERNELS),
    Banned("gathered", "im2col", _KERNELS),
    Banned("gathered windows", "im2col"),
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
    Banned("open mask", "unmasked"),
    Banned("vacant", "zero_padded"),
    Banned("operand parts", "kv_segments"),
    Banned("parts of operand", "kv_segments"),
    Banned("few rows", "gemv"),
    Banned("finish", "register_epilogue", r"/codegen/"),
    Banned("finished", "register_epilogue", r"/codegen/"),
    Banned("chain blocks", "online_softmax"),
    Banned("two layers", "fused_mlp"),
    Banned("ask for", "prefetch", r"/codegen/"),
    Banned("wish", "prefetch"),
    Banned("wished", "prefetched"),
    Banned("ask", "prefetch", _C),
    Banned("then", "prefetch", _C),
    Banned("stream", "nontemporal", r"/include/smelt/(?!host/|device/)"),
    Banned("past caches", "nontemporal"),
    Banned("keep to rows", "row_affine"),
    Banned("own rows", "row_affine"),
    Banned("far rows", "b_streaming"),
    Banned("in order", "row_fused", r"/codegen/"),
    Banned("bands", "spatial_tiles"),
    Banned("strips", "channel_tiles"),
    Banned("strip", "channel_tile", _C),
    Banned("part of k", "k_block"),
    Banned("settle", "bisect_regions"),
    Banned("settled", "resolved"),
    Banned("peel", "trim"),
    Banned("peeled", "trimmed"),
    Banned("stranger", "unknown_setting"),
    Banned("strangers", "unknown_settings"),
    Banned("left node", "fallback_node"),
    Banned("give back", "fall_back or free_scratch"),
    Banned("given back", "fallback"),
    Banned("meaning", "lowering"),
    Banned("refusal", "unsupported"),
    Banned("refusals", "unsupported"),
    Banned("floating", "inlined", r"/codegen/"),
    # Attention has sinks of its own: keys that take a share of the softmax and have no value.
    Banned("sink", "materialize", r"/codegen/(?!.*(attention|grouped_queries))"),
    Banned("sinks", "materialized", r"/codegen/(?!.*(attention|grouped_queries))"),
    Banned("as lies", "contiguous, strided or in_place"),
    Banned("it lies", "contiguous, strided or in_place"),
)
# Names of others, such as torch's memory format.
EXCEPT: Final = frozenset({"channels_last", "channels_last_3d", "is_floating_point"})

# Phrases of the pages, as regular expressions, where the homemade sense is the only one.
PROSE: Final = (
    ("channel-?wise", "depthwise"), ("channels last", "NHWC"), ("planar", "NCHW"), ("gathered windows?", "im2col"),
    ("turned", "transposed"), ("lying", "unpacked or strided"), ("laid out", "packed"), ("lays out", "packs"),
    ("twins?", "siblings or identical"), ("leaders?", "producer"), ("followers?", "consumer"),
    ("two layers in one task", "fused MLP"), ("chain blocks?", "online softmax"), ("shut", "masked"),
    ("vacant", "zero-padded"), ("parts of an operand", "KV-cache segments"), ("(?<!a )few rows", "GEMV, small M"),
    ("wish(?:es|ed)?", "prefetch"), ("past the caches", "non-temporal"), ("own rows", "row-affine"),
    ("far rows", "B-streaming"), ("keeps? to (?:its|their) rows", "row-affine"),
    ("launch(?:es)? in order", "barrier-free"), ("left to ORT", "fallback"),
    ("bands?", "spatial tiles"), ("strips", "channel tiles"), ("part of k", "K block"), ("settle[sd]?", "bisect"),
    ("peel(?:s|ed)?", "bisect"), ("strangers?", "unknown settings"), ("given back", "falls back"),
    ("refusals?", "unsupported"), ("as (?:it|they) lies?", "contiguous, strided, in place"),
)  # fmt: skip

# What is computed is told by these, and how it is laid out, blocked and vectorized in `codegen/`.
LOWERING: Final = re.compile(r"/smelt/(ops|ir)/")
LAYOUT: Final = re.compile(
    r"(?<![a-z0-9])(panel|winograd|nchw|interleave|micro[_ -]?kernel|l1|l2|l3|cache[_ -]?line|page[_ -]?cache"
    r"|cache[_ -]?(?:block|level|size)|(?<!accuracy[_ -])level|simd|sse|avx|avx2|avx512|vnni|amx|neon|dotprod|i8mm"
    r")s?(?![a-z0-9])",  # an attribute of MatMulNBits is called accuracy_level
    re.IGNORECASE,
)
# What the toolchain is handed: a file of C is compiled once for each CPU level.
EXCEPT_LAYOUT: Final = ("/smelt/ir/records.py",)

# A test that looks for a name of generated C in the text of units or kernels, or in what it is printed as.
SEARCH: Final = re.compile(
    r"""(?P<quote>["'])(?:SMELT|smelt)_\w+(?P=quote) (?:not )?in \w*(?:(?:\w|\.)*\.text|source|sources|generated)\b"""
    r"|\brepr\([\w.]*\.generated\.source\)"
)

_SUFFIXES: Final = (".py", ".c", ".h", ".js", ".j2")
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_C_NOISE: Final = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
# In texts of Python: names of generated C, and options or settings that are spelled with hyphens.
_C_NAME: Final = re.compile(r"\b(?:SMELT|smelt)_\w+")
_SETTING: Final = re.compile(r"""(?<=["'])(?:--)?[a-z]\w*(?:-\w+)+(?=["'])""")


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
        elif token.type != tokenize.COMMENT:  # texts, which are several tokens from Python 3.12 on
            for match in (*_C_NAME.finditer(token.string), *_SETTING.finditer(token.string)):
                yield token.start[0] + token.string.count("\n", 0, match.start()), match[0]


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


def prose_complaints(tree: Path) -> Iterator[str]:
    """Phrases of the pages that newcomers would not find."""
    rules = [(re.compile(rf"(?<![\w-]){phrase}(?![\w-])", re.IGNORECASE), instead) for phrase, instead in PROSE]
    for path in sorted((*tree.glob("*.md"), *(tree / "docs").rglob("*.md"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for rule, instead in rules:
                for match in rule.finditer(line):
                    yield f"{path}:{number}: {match[0]!r}: say {instead!r}"


def layout_complaints(folder: Path) -> Iterator[str]:
    """Words of layouts, caches and CPU features where only what is computed is told."""
    for path in sorted(folder.rglob("*.py")):
        where = f"/{path.relative_to(folder).as_posix()}"
        if LOWERING.match(where) and where not in EXCEPT_LAYOUT:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for match in LAYOUT.finditer(line):
                    yield f"{path}:{number}: {match[0]!r}: how it is laid out is decided in codegen/"


def search_complaints(tree: Path) -> Iterator[str]:
    """Tests that search generated text: what they are about has a record."""
    for path in sorted((tree / "tests").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in SEARCH.finditer(line):
                yield f"{path}:{number}: {match[0]!r}: ask the kernels' records, not their text"


def main(arguments: list[str]) -> int:
    tree = Path(arguments[0]) if arguments else Path(__file__).parents[1]
    found = [
        *complaints(tree / "src"), *prose_complaints(tree), *layout_complaints(tree / "src"), *search_complaints(tree),
    ]  # fmt: skip
    print("\n".join(found) if found else "Names use the field's words; ops/ and ir/ know no layout.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
