"""The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.

Input: the file's facts. Output: the contents of both files. Invariant: numbers of tokens are those of the file; pieces
of SentencePiece become byte-pair merges in the order of their scores, as it joins them itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from smelt.base.errors import LoadError
from smelt.frontends.gguf_file import GgufModel

_KEY: Final = "tokenizer.ggml."
_CONTROL, _USER, _NORMAL = 3, 4, 1
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS: Final = {"qwen2": _WORDS % r"\p{N}", "llama-bpe": _WORDS % r"\p{N}{1,3}", "llama3": _WORDS % r"\p{N}{1,3}"}
_CLASSES: Final = {"gpt2": "PreTrainedTokenizerFast", "llama": "LlamaTokenizer"}


def tokenizer_files(model: GgufModel) -> dict[str, Any]:
    """By name."""
    kind = model.facts.get(f"{_KEY}model")
    if kind not in _CLASSES:
        raise LoadError("SM-LOAD-010", f"{model.path}: tokenizer {kind!r} is not one of {', '.join(_CLASSES)}")
    tokens = _texts(model, "tokens")
    if len(tokens) != model.sizes.tokens:
        raise LoadError("SM-LOAD-009", f"{model.path} has {len(tokens)} tokens, and {model.sizes.tokens} embeddings")
    made = _bytes_tokenizer(model, tokens) if kind == "gpt2" else _pieces_tokenizer(model, tokens)
    made |= {"version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(model, tokens)}
    return {"tokenizer.json": made, "tokenizer_config.json": _tokenizer_config(model, tokens, _CLASSES[str(kind)])}


def special_tokens(model: GgufModel) -> dict[str, int]:
    """bos, eos and pad, as far as the file names any; padding is done with the end where it names none."""
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
    found = {name: model.facts.get(_KEY + key) for name, key in names.items()}
    known = {name: place for name, place in found.items() if isinstance(place, int)}
    outside = [name for name, place in known.items() if not 0 <= place < model.sizes.tokens]
    if outside or "eos" not in known:
        raise LoadError("SM-LOAD-009", f"{model.path} names no token that ends a text, or one that it does not have")
    return {"bos": known.get("bos", known["eos"]), "eos": known["eos"], "pad": known.get("pad", known["eos"])}


def _texts(model: GgufModel, name: str) -> list[str]:
    found = model.facts.get(_KEY + name)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in cast("list[object]", found)):
        raise LoadError("SM-LOAD-009", f"{model.path} has no list of texts {_KEY}{name}")
    return cast("list[str]", found)


def _types(model: GgufModel, count: int) -> Sequence[int]:
    found = model.facts.get(f"{_KEY}token_type")
    return cast("list[int]", found) if isinstance(found, list) and len(cast("list[int]", found)) == count else []


def _added(model: GgufModel, tokens: Sequence[str]) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    kinds = {_CONTROL: True, _USER: False}
    return [
        {"id": place, "content": tokens[place], **flags, "special": kinds[kind]}
        for place, kind in enumerate(_types(model, len(tokens)))
        if kind in kinds
    ]


def _byte_pairs(tokens: Sequence[str], merges: Sequence[Sequence[str]], **more: Any) -> dict[str, Any]:
    vocabulary = {text: place for place, text in enumerate(tokens)}
    return {"type": "BPE", "vocab": vocabulary, "merges": [list(pair) for pair in merges], **more}


def _bytes_tokenizer(model: GgufModel, tokens: Sequence[str]) -> dict[str, Any]:
    """Words by a regular expression, then byte-pair merges of bytes written as letters."""
    merges = [tuple(line.split(" ", 1)) for line in _texts(model, "merges")] if f"{_KEY}merges" in model.facts else []
    if any(len(pair) != 2 for pair in merges):
        raise LoadError("SM-LOAD-009", f"{model.path} has a merge that is no pair")
    split = _SPLITS.get(str(model.facts.get(f"{_KEY}pre")))
    letters: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    cut = {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
    words = [cut, {**letters, "use_regex": False}] if split else [{**letters, "use_regex": True}]
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": words},
        "post_processor": None,
        "decoder": {**letters, "use_regex": True},
        "model": _byte_pairs(tokens, merges),
    }


def _pieces_tokenizer(model: GgufModel, tokens: Sequence[str]) -> dict[str, Any]:
    """SentencePiece's byte-pair pieces, with bytes for what has none."""
    scores = model.facts.get(f"{_KEY}scores")
    if not isinstance(scores, list) or len(cast("list[float]", scores)) != len(tokens):
        raise LoadError("SM-LOAD-009", f"{model.path} has no score for each token")
    space = "\u2581"
    unknown = "<unk>" if "<unk>" in tokens else None
    before = [{"type": "Prepend", "prepend": space}, {"type": "Replace", "pattern": {"String": " "}, "content": space}]
    after = [
        {"type": "Replace", "pattern": {"String": space}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]  # fmt: skip
    merges = _merges(tokens, cast("list[float]", scores), _types(model, len(tokens)))
    return {
        "normalizer": {"type": "Sequence", "normalizers": before},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": after},
        "model": _byte_pairs(tokens, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown),
    }


def _merges(tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]) -> list[tuple[str, str]]:
    """All pairs that make a piece, the best piece first."""
    known = {text for place, text in enumerate(tokens) if not types or types[place] in (_NORMAL, _USER)}
    ranked = sorted(range(len(tokens)), key=lambda place: -scores[place])
    return [
        (tokens[place][:cut], tokens[place][cut:])
        for place in ranked
        if tokens[place] in known
        for cut in range(1, len(tokens[place]))
        if tokens[place][:cut] in known and tokens[place][cut:] in known
    ]


def _tokenizer_config(model: GgufModel, tokens: Sequence[str], kind: str) -> dict[str, Any]:
    names = {f"{name}_token": tokens[place] for name, place in special_tokens(model).items()}
    made: dict[str, Any] = {"tokenizer_class": kind, **names, "model_max_length": model.sizes.context}
    template: object = model.facts.get("tokenizer.chat_template")
    first: Mapping[str, Any] = {"chat_template": template} if isinstance(template, str) else {}
    adds = model.facts.get(f"{_KEY}add_bos_token", kind == "LlamaTokenizer")
    return {**made, **first, "add_bos_token": bool(adds), "add_eos_token": False}
