"""Models built offline from their configurations, as files and as torch modules.

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
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base import Config
from smelt.bench.architectures import SUITES, ZOO, Scale, ZooModel, find_model

__all__ = ["SUITES", "ZOO", "Scale", "ZooModel", "attention_sizes", "export", "feeds", "find_model", "module"]

Array = np.ndarray[Any, Any]

_FORMAT: Final = 2  # changes when what is written for one configuration changes


def export(name: str, config: Config, scale: Scale = "full") -> Path:
    """The model's ONNX file: from the cache folder, or exported now. Needs torch and transformers only then."""
    entry = find_model(name)
    folder = config.cache_dir / "bench" / f"{entry.name}-{scale}-{_digest(entry, scale)}"
    path = folder / "model.onnx"
    if not path.is_file():
        from smelt.bench.torch_models import write

        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".export-", dir=folder.parent))
        try:
            write(entry, scale, feeds(entry.name, 2, 24, scale, new=3), work / "model.onnx")
            place_folder(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return path


def place_folder(work: Path, folder: Path) -> None:
    """Where another process was faster, its own stays."""
    try:
        work.rename(folder)
    except OSError:
        if not (folder / "model.onnx").is_file():
            raise


def _digest(entry: ZooModel, scale: Scale) -> str:
    versions = [importlib.metadata.version(package) for package in ("torch", "transformers", "onnxscript")]
    facts = [_FORMAT, entry.model, entry.settings(scale), entry.inputs, versions]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def feeds(
    name: str, batch: int = 1, length: int = 128, scale: Scale = "full", seed: int = 0, new: int = 1
) -> dict[str, Array]:
    """Inputs such as a user would give: a full attention mask, tokens of the vocabulary, an image.

    A decoder has `length` tokens behind it and gets `new` ones.
    """
    entry = find_model(name)
    rng = np.random.default_rng(seed)
    fresh = new if entry.past else length
    given = {key: _feed(entry, key, batch, fresh, scale, rng) for key in entry.inputs}
    if entry.past:
        past = entry.past[scale]
        shape = (batch, past.heads, length, past.width)
        given["attention_mask"] = np.ones((batch, length + new), np.int64)
        given |= {key: rng.standard_normal(shape, np.float32) for key in past.names("past_key_values")}
    return given


def _feed(entry: ZooModel, key: str, batch: int, length: int, scale: Scale, rng: np.random.Generator) -> Array:
    settings = entry.settings(scale)
    side = int(settings.get("image_size", 224))
    if key == "pixel_values":
        return rng.standard_normal((batch, 3, side, side), np.float32)
    if key == "sample":
        return rng.standard_normal((batch, settings["channels"], side, side), np.float32)
    if key == "time":
        return rng.standard_normal((batch, settings["embedding"]), np.float32)
    if key == "attention_mask":
        return np.ones((batch, length), np.int64)
    # Special tokens come first in every vocabulary here: ids from 5 on are plain ones.
    return rng.integers(5, int(settings.get("vocab_size", 30000)), (batch, length))


def module(name: str, scale: Scale = "full") -> Any:
    """The torch module whose positional arguments are the model's inputs, in evaluation mode."""
    from smelt.bench.torch_models import build

    return build(find_model(name), scale)


def attention_sizes(name: str, scale: Scale) -> tuple[int, int]:
    """Heads and width, for optimizers that cannot find them in the graph."""
    from smelt.bench.torch_models import attention_sizes_of

    return attention_sizes_of(find_model(name), scale)
