"""The models that are built offline: what each is made of, and how users know it.

Input: a name, as the hub spells it or shorter. Output: a `ZooModel`. Invariant: a model is data here; torch and
`transformers` are imported only by those who build it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from smelt.base import ConfigError

Scale = Literal["full", "small", "tiny"]

_TEXT: Final = ("input_ids", "attention_mask")
_IMAGE: Final = ("pixel_values",)
_BERT_TINY: Final = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
}  # fmt: skip


@dataclass(frozen=True)
class Past:
    """The sizes of a decoder's keys and values: one pair per layer of (batch, heads, tokens, width)."""

    layers: int
    heads: int
    width: int

    def names(self, stem: str) -> tuple[str, ...]:
        return tuple(f"{stem}.{layer}.{part}" for layer in range(self.layers) for part in ("key", "value"))


@dataclass(frozen=True)
class ZooModel:
    """One architecture: its classes in `transformers`, its configuration, and what changes at smaller scales.

    `past` makes it a decoder with keys and values in and out; `outputs` counts the results that are kept. `lively`
    gives statistics and scales that start at 0 or 1 values of their own, since an error behind them would not show.
    """

    name: str
    model: str
    config: str
    full: Mapping[str, Any] = field(default_factory=dict[str, Any])
    small: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tiny: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: tuple[str, ...] = _TEXT
    fusion: str = "bert"
    outputs: int = 1
    past: Mapping[Scale, Past] = field(default_factory=dict[Scale, Past])
    lively: bool = False

    def settings(self, scale: Scale) -> dict[str, Any]:
        return {**self.full, **{"full": {}, "small": self.small, "tiny": self.tiny}[scale]}

    def input_names(self, scale: Scale) -> tuple[str, ...]:
        return (*self.inputs, *self.past[scale].names("past_key_values")) if self.past else self.inputs

    def output_names(self, scale: Scale) -> tuple[str, ...]:
        """Names that users know, where there are any."""
        return ("logits", *self.past[scale].names("present")) if self.past else ()

    @property
    def takes_tokens(self) -> bool:
        return "input_ids" in self.inputs


_MODELS: Final = (
    ZooModel(
        "distilbert", "DistilBertModel", "DistilBertConfig", small={"n_layers": 2},
        tiny={"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
    ),
    ZooModel("bert-base", "BertModel", "BertConfig", small={"num_hidden_layers": 2}, tiny=_BERT_TINY),
    ZooModel(
        "mobilebert", "MobileBertModel", "MobileBertConfig", small={"num_hidden_layers": 4},
        tiny={"num_hidden_layers": 2, "vocab_size": 99},
    ),
    ZooModel(
        "xlm-roberta", "XLMRobertaModel", "XLMRobertaConfig",
        full={"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
        small={"num_hidden_layers": 2, "vocab_size": 30000}, tiny=_BERT_TINY,
    ),
    ZooModel(
        "gpt2", "GPT2LMHeadModel", "GPT2Config", full={"use_cache": False}, small={"n_layer": 2, "vocab_size": 8000},
        tiny={"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": 99, "bos_token_id": 1,
              "eos_token_id": 2},
        fusion="gpt2",
    ),
    ZooModel(
        "deberta", "DebertaV2Model", "DebertaV2Config",
        full={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
              "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 256,
              "norm_rel_ebd": "layer_norm", "share_att_key": True, "max_relative_positions": -1,
              "position_biased_input": False, "type_vocab_size": 0},
        small={"num_hidden_layers": 2, "vocab_size": 30000}, tiny=_BERT_TINY,
    ),
    ZooModel(
        "bart", "BartModel", "BartConfig",
        full={"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
              "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "use_cache": False},
        small={"encoder_layers": 1, "decoder_layers": 1},
        tiny={"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
              "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
              "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
        inputs=(*_TEXT, "decoder_input_ids"), fusion="bart",
    ),
    ZooModel(
        "squeezebert", "SqueezeBertModel", "SqueezeBertConfig", small={"num_hidden_layers": 2},
        tiny={**_BERT_TINY, "embedding_size": 32},
    ),
    ZooModel("ernie", "ErnieModel", "ErnieConfig", small={"num_hidden_layers": 2}, tiny=_BERT_TINY),
    ZooModel(
        "vit", "ViTModel", "ViTConfig", small={"num_hidden_layers": 2},
        tiny={"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
              "image_size": 32, "patch_size": 8},
        inputs=("pixel_values",), fusion="vit",
    ),
    ZooModel(
        "llama", "LlamaForCausalLM", "LlamaConfig",
        full={"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
              "intermediate_size": 2816, "vocab_size": 32000, "max_position_embeddings": 2048, "use_cache": False},
        small={"num_hidden_layers": 2, "vocab_size": 4000},
        tiny={"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 1024},
        fusion="gpt2",
    ),
    ZooModel(
        "resnet-50", "ResNetForImageClassification", "ResNetConfig", full={"image_size": 224, "num_labels": 1000},
        small={"depths": [1, 1, 1, 1]},
        tiny={"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [2, 1], "image_size": 40, "num_labels": 10},
        inputs=_IMAGE, fusion="", lively=True,
    ),
    ZooModel(
        "mobilenet-v2", "MobileNetV2ForImageClassification", "MobileNetV2Config",
        full={"image_size": 224, "num_labels": 1001}, small={"depth_multiplier": 0.35},
        tiny={"depth_multiplier": 0.25, "image_size": 40, "num_labels": 10}, inputs=_IMAGE, fusion="", lively=True,
    ),
    ZooModel(
        "convnext-tiny", "ConvNextForImageClassification", "ConvNextConfig",
        full={"image_size": 224, "num_labels": 1000}, small={"depths": [1, 1, 1, 1]},
        tiny={"hidden_sizes": [16, 32], "depths": [1, 2], "num_stages": 2, "image_size": 32, "num_labels": 10},
        inputs=_IMAGE, fusion="", lively=True,
    ),
    ZooModel(
        "unet-block", "", "", full={"channels": 320, "embedding": 1280, "heads": 8, "groups": 32, "image_size": 32},
        small={"channels": 128, "embedding": 256},
        tiny={"channels": 16, "embedding": 24, "heads": 2, "groups": 4, "image_size": 10},
        inputs=("sample", "time"), fusion="unet",
    ),
    ZooModel(
        "mobilebert-squad", "MobileBertForQuestionAnswering", "MobileBertConfig", small={"num_hidden_layers": 4},
        tiny={"num_hidden_layers": 2, "vocab_size": 99}, outputs=2,
    ),
    ZooModel(
        "mobilebert-emo", "MobileBertForSequenceClassification", "MobileBertConfig", full={"num_labels": 4},
        small={"num_hidden_layers": 4}, tiny={"num_hidden_layers": 2, "vocab_size": 99},
    ),
)  # fmt: skip


def _decoder(name: str, full: Past, small: Past, tiny: Past) -> ZooModel:
    """The same model with its past as inputs and outputs: one file for prompts and for single tokens."""
    entry = next(model for model in _MODELS if model.name == name)
    past: dict[Scale, Past] = {"full": full, "small": small, "tiny": tiny}
    return replace(entry, name=f"{name}-decode", full={**entry.full, "use_cache": True}, past=past)


_DECODERS: Final = (
    _decoder("gpt2", Past(12, 12, 64), Past(2, 12, 64), Past(2, 4, 8)),
    _decoder("llama", Past(8, 4, 64), Past(2, 4, 64), Past(2, 2, 8)),
)


ZOO: Final[dict[str, ZooModel]] = {entry.name: entry for entry in (*_MODELS, *_DECODERS)}
_ALIASES: Final = {
    "distilbert-base-uncased": "distilbert",
    "distilbert-base-cased": "distilbert",
    "bert": "bert-base",
    "bert-base-uncased": "bert-base",
    "bert-base-cased": "bert-base",
    "mobilebert-uncased": "mobilebert",
    "mobilebert-uncased-squad-v2": "mobilebert-squad",
    "emo-mobilebert": "mobilebert-emo",
    "xlm-roberta-base": "xlm-roberta",
    "deberta-v3-base": "deberta",
    "bart-base": "bart",
    "squeezebert-uncased": "squeezebert",
    "ernie-2.0-base-en": "ernie",
    "vit-base": "vit",
    "vit-base-patch16-224": "vit",
    "resnet50": "resnet-50",
    "mobilenet_v2_1.0_224": "mobilenet-v2",
    "convnext-tiny-224": "convnext-tiny",
    "unet": "unet-block",
}

# The models of the project's speed goals; those that the first of its kind was timed on; decoding.
SUITES: Final[dict[str, tuple[str, ...]]] = {
    "models": (
        "distilbert", "bert-base", "mobilebert", "xlm-roberta", "gpt2", "llama", "vit", "resnet-50", "mobilenet-v2",
        "convnext-tiny", "unet-block",
    ),
    "igniter": (
        "mobilebert", "mobilebert-squad", "mobilebert-emo", "xlm-roberta", "distilbert", "bert-base", "deberta", "gpt2",
        "bart", "ernie", "squeezebert",
    ),
    "decode": ("gpt2-decode", "llama-decode"),
}  # fmt: skip


def find_model(name: str) -> ZooModel:
    short = name.rsplit("/", 1)[-1].lower()
    found = ZOO.get(_ALIASES.get(short, short))
    if found is None:
        raise ConfigError("SM-CONFIG-005", f"there is no model {name!r}", hint=f"Known are {', '.join(ZOO)}.")
    return found
