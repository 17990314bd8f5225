"""A GGUF file -> a folder of onnxruntime-genai: decoder, configuration and tokenizer.

Input: the file. Output: a folder with genai_config.json. Invariant: the blocks of the file are kept as they are; what
is refused is refused before anything is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from smelt.base.errors import ConfigError
from smelt.frontends.genai_folder import CONFIG
from smelt.frontends.gguf_decoder import MODEL, write_decoder
from smelt.frontends.gguf_file import GgufModel, read_gguf
from smelt.frontends.gguf_tokenizer import special_tokens, tokenizer_files

_LEVELS: Final = {"exact": 1, "fast": 4}  # MatMulNBits: float32 or 8-bit activations


def build_gguf_folder(path: Path, work: Path, precision: str, accuracy: str) -> Path:
    """The folder below `work`."""
    if precision:
        raise ConfigError("SM-CONFIG-001", f"--precision {precision}: the blocks of a GGUF file stay as they are")
    if accuracy not in _LEVELS:
        raise ConfigError("SM-CONFIG-001", f"--accuracy {accuracy!r} is not one of {', '.join(_LEVELS)}")
    model = read_gguf(path)
    files = tokenizer_files(model)
    made = work / "built"
    made.mkdir()
    write_decoder(model, made, _LEVELS[accuracy])
    for name, content in (*files.items(), (CONFIG, _config(model))):
        (made / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return made


def _config(model: GgufModel) -> dict[str, Any]:
    s = model.sizes
    decoder: dict[str, Any] = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": MODEL,
        "head_size": s.depth,
        "hidden_size": s.hidden,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": s.heads,
        "num_hidden_layers": s.layers,
        "num_key_value_heads": s.kv_heads,
    }
    ids = {f"{name}_token_id": place for name, place in special_tokens(model).items()}
    about: dict[str, Any] = {
        "context_length": s.context,
        "decoder": decoder,
        **ids,
        "type": s.architecture,
        "vocab_size": s.tokens,
    }
    search = {"do_sample": False, "max_length": s.context, "past_present_share_buffer": True}
    return {"model": about, "search": search}
