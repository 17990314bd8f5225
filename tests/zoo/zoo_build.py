"""Architectures of `transformers`, shrunk until they run in milliseconds, and inputs at two sizes.

Input: the name of a configuration type. Output: a model with seeded weights, and keyword arguments for its forward.
Invariant: the architecture is what it was: only sizes change; weights are scaled and varied so that errors in any of
them show.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import transformers

# What may be smaller, and how small. A size is taken only where the configuration has an integer of that name.
SIZES: Mapping[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "emb_dim", "embedding_size", "width"), 32),
    **dict.fromkeys(("projection_dim", "hidden_dim", "decoder_hidden_size", "rotary_emb_base_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "decoder_num_hidden_layers", "num_blocks"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "decoder_num_attention_heads", "mamba_n_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "decoder_intermediate_size"), 32),
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size", "vocab_size_or_config_json_file"), 99),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions"), 128),
    "num_key_value_heads": 2, "num_experts_per_tok": 2, "image_size": 32, "patch_size": 8, "state_size": 8,
    "relative_attention_num_buckets": 8, "num_mel_bins": 16, "type_vocab_size": 2,
}  # fmt: skip
LISTS: Mapping[str, Any] = {
    "hidden_sizes": lambda old: [16 * 2**i for i in range(len(old))],
    "depths": lambda old: [1] * len(old),
    "conv_dim": lambda old: type(old)([16] * len(old)),
}
# What the rules above do not know.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "albert": {"embedding_size": 16},
    "bloom": {"hidden_size": 32},
    "mobilebert": {"hidden_size": 64, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "reformer": {"axial_pos_shape": [8, 16], "axial_pos_embds_dim": [16, 16], "attention_head_size": 8},
    "funnel": {"block_sizes": [1, 1], "d_model": 32, "d_head": 8, "d_inner": 64},
    "xlnet": {"d_head": 8, "d_inner": 64},
    "ctrl": {"dff": 64},
    "levit": {"image_size": 64},
    "rwkv": {"attention_hidden_size": 32},
    "swin": {"embed_dim": 16, "window_size": 2, "num_heads": [2, 2], "depths": [1, 1], "patch_size": 4},
    "swinv2": {"embed_dim": 16, "window_size": 2, "num_heads": [2, 2], "depths": [1, 1], "patch_size": 4},
    "convnext": {"image_size": 64},
    "wav2vec2": {"conv_stride": [4, 2], "conv_kernel": [8, 3], "conv_dim": [16, 16], "num_feat_extract_layers": 2},
}  # fmt: skip
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id", "cls_token_id")
SIZES_OF_INPUTS = ((2, 16), (3, 24))


def kinds() -> list[str]:
    """Every type that AutoModel knows."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return [name for name in MODEL_MAPPING_NAMES if name in CONFIG_MAPPING_NAMES]


def shrink(kind: type[Any], special: Mapping[str, Any]) -> Any:
    """The same configuration with small sizes, parts included."""
    default = kind()
    changes: dict[str, Any] = {}
    heads = getattr(default, "num_attention_heads", None)
    for name in _names(default):
        old = getattr(default, name, None)
        if isinstance(old, transformers.PretrainedConfig):
            changes[name] = shrink(type(old), special).to_dict()
        elif name in LISTS and isinstance(old, (list, tuple)) and old:
            changes[name] = LISTS[name](old)
        elif name in TOKENS and isinstance(old, int) and old > 90:
            changes[name] = 1 + TOKENS.index(name)
        elif name in SIZES and isinstance(old, int) and not isinstance(old, bool) and old > 0:
            changes[name] = min(SIZES[name], old)
    if changes.get("num_key_value_heads") and getattr(default, "num_key_value_heads", 0) == heads:
        changes["num_key_value_heads"] = SIZES["num_attention_heads"]
    if hasattr(default, "use_cache"):
        changes["use_cache"] = False
    known = {name: value for name, value in special.items() if hasattr(default, name)}
    return kind(**{**changes, **known})


def _names(config: Any) -> list[str]:
    """Fields by the names that the constructor takes."""
    mapped = set(getattr(config, "attribute_map", {}))
    return [name for name in {**config.to_dict(), **vars(config)} if not name.startswith("_") and name not in mapped]


def build(name: str) -> tuple[torch.nn.Module, Any]:
    """A model in evaluation mode, and its configuration."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    kind = transformers.AutoConfig.for_model(name).__class__
    config = shrink(kind, SPECIAL.get(name, {}))
    config._attn_implementation = "sdpa"
    try:
        model = transformers.AutoModel.from_config(config)
    except ValueError:  # no such attention in this architecture
        config._attn_implementation = "eager"
        model = transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            _enliven(parameter)
    return model.eval(), config


def exact(name: str) -> torch.nn.Module:
    """The same model in float64. Grouped matrix products, of which torch has none there, are a loop over experts."""
    model, _ = build(name)
    if getattr(model.config, "_experts_implementation", None) == "grouped_mm":
        model.set_experts_implementation("eager")
    return model.double()


def _enliven(parameter: torch.nn.Parameter) -> None:
    """Weights in which an error shows: none starts at one number (experts of one score are all alike), none small."""
    if parameter.is_floating_point() and parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
        parameter.add_(torch.randn_like(parameter), alpha=0.1)
    if parameter.dim() == 2:
        parameter.mul_(5.0)


def inputs(model: torch.nn.Module, config: Any, batch: int, length: int, draw: int = 0) -> dict[str, torch.Tensor]:
    """What the forward wants, by its name for the main input. Another `draw` gives other values of the same sizes."""
    random = torch.Generator().manual_seed(draw * 1_000_000 + batch * 1000 + length)
    main = getattr(model, "main_input_name", "input_ids")
    taken = inspect.signature(model.forward).parameters

    def tokens(of: Any) -> torch.Tensor:
        most = min(99, int(getattr(of, "vocab_size", 99) or 99))
        return torch.randint(5, most, (batch, length), generator=random)

    given: dict[str, torch.Tensor] = {}
    if "pixel_values" in taken:
        given["pixel_values"] = _image(config, batch, random)
    if main in ("input_values", "input_features"):
        given[main] = _sound(config, main, batch, length, random)
    if "input_ids" in taken and (main == "input_ids" or "pixel_values" in given):
        given["input_ids"] = tokens(_text(config))
        if "attention_mask" in taken:
            given["attention_mask"] = _mask(batch, length)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in taken:
        given["decoder_input_ids"] = tokens(_text(config))
    if not given:
        raise ValueError(f"no rule for inputs {list(taken)[:4]}")
    return given


def _mask(batch: int, length: int) -> torch.Tensor:
    """One row is shorter: eager models drop a mask of ones by a look at its values, which no traced one can."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, -3:] = 0
    return mask


def _text(config: Any) -> Any:
    return getattr(config, "text_config", None) or config


def _image(config: Any, batch: int, random: torch.Generator) -> torch.Tensor:
    of = getattr(config, "vision_config", None) or config
    side = getattr(of, "image_size", 32) or 32
    high, wide = side if isinstance(side, (list, tuple)) else (side, side)
    return torch.randn(batch, int(getattr(of, "num_channels", 3) or 3), high, wide, generator=random)


def _sound(config: Any, main: str, batch: int, length: int, random: torch.Generator) -> torch.Tensor:
    if main == "input_values":
        return torch.randn(batch, 100 * length, generator=random)
    bins = int(getattr(config, "num_mel_bins", 0) or getattr(config, "feature_size", 16) or 16)
    frames = 2 * int(getattr(config, "max_source_positions", 64))
    return torch.randn(batch, bins, frames, generator=random)
