"""GGUF files of the configurations of `llm_models`, with random blocks.

Input: a name, a path and the type of the blocks. Output: the file. Invariant: weights have the spread of a model that
was initialized and not trained; embedding and norms are those of the blocks' type and float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.bench.llm_models import MODELS, SPECIAL, token_names

Array = np.ndarray[Any, Any]
_SPREAD: Final = 0.02
# Weights and bytes of a block, where its halves are, and the spread of its numbers for a scale of 1.
_BLOCKS: Final[dict[str, tuple[int, int, tuple[int, ...], float]]] = {
    "Q4_0": (32, 18, (0,), 4.6),
    "Q8_0": (32, 34, (0,), 74.0),
    "Q4_K": (256, 144, (0, 2), 300.0),
    "Q6_K": (256, 210, (208,), 1400.0),
}


def write_gguf(name: str, path: Path, kind: str, seed: int = 0, mixed: str = "") -> None:
    """`mixed` is the type of values, the last product of each layer and the table, as files of K types have it."""
    import gguf

    sizes = MODELS[name]
    architecture = str(sizes["architecture"]).lower()
    writer = gguf.GGUFWriter(path, architecture)
    depth = sizes["hidden_size"] // sizes["num_attention_heads"]
    writer.add_context_length(sizes["max_position_embeddings"])
    writer.add_embedding_length(sizes["hidden_size"])
    writer.add_block_count(sizes["num_hidden_layers"])
    writer.add_feed_forward_length(sizes["intermediate_size"])
    writer.add_head_count(sizes["num_attention_heads"])
    writer.add_head_count_kv(sizes["num_key_value_heads"])
    writer.add_rope_freq_base(sizes["rope_theta"])
    writer.add_rope_dimension_count(depth)
    writer.add_layer_norm_rms_eps(sizes["rms_norm_eps"])
    _add_tokenizer(writer, int(sizes["vocab_size"]))
    rng = np.random.default_rng(seed)
    for tensor, shape in _tensors(name):
        if len(shape) == 1:
            writer.add_tensor(tensor, rng.uniform(0.9, 1.1, shape).astype(np.float32))
            continue
        wide = mixed and any(part in tensor for part in ("attn_v", "ffn_down", "token_embd", "output.weight"))
        chosen = mixed if wide else kind
        writer.add_tensor(tensor, random_blocks(rng, chosen, shape), raw_dtype=gguf.GGMLQuantizationType[chosen])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_blocks(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """The bytes of each row."""
    each, size, halves, spread = _BLOCKS[kind]
    made = rng.integers(0, 256, (shape[0], shape[1] // each, size), np.uint8)
    for at in halves:
        scales = rng.uniform(0.8, 1.2, made.shape[:2]) * (_SPREAD / spread)
        made[..., at : at + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    return made.reshape(shape[0], -1)


def _tensors(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    sizes = MODELS[name]
    hidden, inner = int(sizes["hidden_size"]), int(sizes["intermediate_size"])
    keys = hidden // int(sizes["num_attention_heads"]) * int(sizes["num_key_value_heads"])
    biased = sizes["architecture"] == "Qwen2"
    yield "token_embd.weight", (int(sizes["vocab_size"]), hidden)
    for layer in range(int(sizes["num_hidden_layers"])):
        at = f"blk.{layer}"
        yield f"{at}.attn_norm.weight", (hidden,)
        for part, width in (("q", hidden), ("k", keys), ("v", keys)):
            yield f"{at}.attn_{part}.weight", (width, hidden)
            if biased:
                yield f"{at}.attn_{part}.bias", (width,)
        yield f"{at}.attn_output.weight", (hidden, hidden)
        yield f"{at}.ffn_norm.weight", (hidden,)
        yield f"{at}.ffn_gate.weight", (inner, hidden)
        yield f"{at}.ffn_up.weight", (inner, hidden)
        yield f"{at}.ffn_down.weight", (hidden, inner)
    yield "output_norm.weight", (hidden,)
    if not sizes["tie_word_embeddings"]:
        yield "output.weight", (int(sizes["vocab_size"]), hidden)


def _add_tokenizer(writer: Any, count: int) -> None:
    import gguf

    tokens = token_names(count)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    special = set(SPECIAL.values())
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    writer.add_token_types([kinds[token in special] for token in tokens])
    writer.add_token_merges(["t h"])
    for name, place in (("pad", 0), ("bos", 1), ("eos", 2)):
        getattr(writer, f"add_{name}_token_id")(place)
