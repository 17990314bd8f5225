"""Language models with random weights: Hugging Face folders of known configurations, for where no weights are at hand.

Input: a name of `MODELS` and a folder. Output: config.json, safetensors and a tokenizer in it. Invariant: the same name
and seed give the same weights; nothing is downloaded; torch and transformers are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SPECIAL: Final = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_TOKENS: Final = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MODELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "qwen2-0.5b": {
        "architecture": "Qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "rope_theta": 1e6,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "llama-1b": {
        "architecture": "Llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 5e5,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    },
    "qwen2-10m": {
        "architecture": "Qwen2", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 1024,
        "num_hidden_layers": 9, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e4,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "tiny-qwen2": {
        "architecture": "Qwen2", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e4,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "tiny-llama": {
        "architecture": "Llama", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e4,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    },
}  # fmt: skip


def write_model(name: str, folder: Path, seed: int = 0) -> None:
    """The folder of one of `MODELS`, weights in bfloat16."""
    import torch
    import transformers

    sizes = dict(MODELS[name])
    architecture = str(sizes.pop("architecture"))
    config = getattr(transformers, f"{architecture}Config")(**sizes, **_TOKENS)
    torch.manual_seed(seed)
    model = getattr(transformers, f"{architecture}ForCausalLM")(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    write_tokenizer(folder, int(sizes["vocab_size"]))


def write_tokenizer(folder: Path, tokens: int) -> None:
    """A token for each byte, one for a pair, and names without a meaning for the others."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = token_names(tokens)
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)


def token_names(count: int) -> list[str]:
    """Special tokens, a letter for each byte as byte-pair tokenizers write them, one pair, then names."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    names = [*SPECIAL.values(), *letters, "th"]
    return [*names, *(f"<{i}>" for i in range(len(names), count))][:count]
