"""Transformers built offline from their configurations.

Input: a model's name and a scale (full, or tiny for tests). Output: an ONNX file in the cache folder with free batch
and length, and feeds for it. Invariant: weights are random but seeded, so the torch module and the file of one name
and scale hold the same numbers; a file is complete or absent, and its name carries a digest of all that made it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np

from smelt.base import Config, ConfigError

Array = np.ndarray[Any, Any]
Scale = Literal["full", "small", "tiny"]

_FORMAT: Final = 2  # changes when what is written for one configuration changes
_TEXT: Final = ("input_ids", "attention_mask")
_BERT_TINY: Final = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
}  # fmt: skip


@dataclass(frozen=True)
class ZooModel:
    """One architecture: its classes in `transformers`, its configuration, and what changes at smaller scales."""

    name: str
    model: str
    config: str
    full: Mapping[str, Any] = field(default_factory=dict[str, Any])
    small: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tiny: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: tuple[str, ...] = _TEXT
    fusion: str = "bert"

    def settings(self, scale: Scale) -> dict[str, Any]:
        return {**self.full, **{"full": {}, "small": self.small, "tiny": self.tiny}[scale]}


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
        tiny={"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 99, "bos_token_id": 1,
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
              "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 128},
        fusion="gpt2",
    ),
)  # fmt: skip

ZOO: Final[dict[str, ZooModel]] = {entry.name: entry for entry in _MODELS}
_ALIASES: Final = {
    "distilbert-base-uncased": "distilbert",
    "bert": "bert-base",
    "bert-base-uncased": "bert-base",
    "mobilebert-uncased": "mobilebert",
    "xlm-roberta-base": "xlm-roberta",
    "deberta-v3-base": "deberta",
    "bart-base": "bart",
    "vit-base": "vit",
}


def find_model(name: str) -> ZooModel:
    short = name.rsplit("/", 1)[-1].lower()
    found = ZOO.get(_ALIASES.get(short, short))
    if found is None:
        raise ConfigError("SM-CONFIG-005", f"there is no model {name!r}", hint=f"Known are {', '.join(ZOO)}.")
    return found


def export(name: str, config: Config, scale: Scale = "full") -> Path:
    """The model's ONNX file: from the cache folder, or exported now. Needs torch and transformers only then."""
    entry = find_model(name)
    folder = config.cache_dir / "bench" / f"{entry.name}-{scale}-{_digest(entry, scale)}"
    path = folder / "model.onnx"
    if not path.is_file():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".export-", dir=folder.parent))
        try:
            _write(entry, scale, work / "model.onnx")
            _place(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return path


def _place(work: Path, folder: Path) -> None:
    try:
        work.rename(folder)
    except OSError:
        if not (folder / "model.onnx").is_file():
            raise


def _digest(entry: ZooModel, scale: Scale) -> str:
    versions = [importlib.metadata.version(package) for package in ("torch", "transformers", "onnxscript")]
    facts = [_FORMAT, entry.model, entry.settings(scale), entry.inputs, versions]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def feeds(name: str, batch: int = 1, length: int = 128, scale: Scale = "full", seed: int = 0) -> dict[str, Array]:
    """Inputs such as a user would give: a full attention mask, tokens of the vocabulary, an image."""
    entry = find_model(name)
    rng = np.random.default_rng(seed)
    return {key: _feed(entry, key, batch, length, scale, rng) for key in entry.inputs}


def _feed(entry: ZooModel, key: str, batch: int, length: int, scale: Scale, rng: np.random.Generator) -> Array:
    settings = entry.settings(scale)
    if key == "pixel_values":
        side = int(settings.get("image_size", 224))
        return rng.standard_normal((batch, 3, side, side), np.float32)
    if key == "attention_mask":
        return np.ones((batch, length), np.int64)
    # Special tokens come first in every vocabulary here: ids from 5 on are plain ones.
    return rng.integers(5, int(settings.get("vocab_size", 30000)), (batch, length))


# torch from here on


def module(name: str, scale: Scale = "full") -> Any:
    """The torch module whose positional arguments are the model's inputs, in evaluation mode."""
    import torch
    import transformers

    entry = find_model(name)
    library, random = cast("Any", transformers), cast("Any", torch)
    library.logging.set_verbosity_error()
    random.manual_seed(0)
    settings = getattr(library, entry.config)(**entry.settings(scale))
    return _positional(getattr(library, entry.model)(settings), entry.inputs).eval()


def attention_sizes(name: str, scale: Scale) -> tuple[int, int]:
    """Heads and width, for optimizers that cannot find them in the graph."""
    import transformers

    entry = find_model(name)
    settings = getattr(cast("Any", transformers), entry.config)(**entry.settings(scale))
    return int(settings.num_attention_heads), int(settings.hidden_size)


def _positional(model: Any, names: tuple[str, ...]) -> Any:
    import torch

    class Positional(torch.nn.Module):
        """Fixes the order of the inputs and keeps the first output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(names, values, strict=True)), return_dict=False)[0]

    return Positional()


def _write(entry: ZooModel, scale: Scale, path: Path) -> None:
    import torch

    library = cast("Any", torch)
    shown = feeds(entry.name, 2, 24, scale)
    arguments = tuple(library.from_numpy(array) for array in shown.values())
    batch, length = library.export.Dim("batch", min=1, max=512), library.export.Dim("seq", min=2, max=512)
    free = [{0: batch} if key == "pixel_values" else {0: batch, 1: length} for key in entry.inputs]
    with warnings.catch_warnings(), library.no_grad():
        warnings.simplefilter("ignore")
        library.onnx.export(
            module(entry.name, scale), arguments, str(path), input_names=list(entry.inputs), dynamo=True,
            dynamic_shapes=(tuple(free),), external_data=True, verbose=False,
        )  # fmt: skip
