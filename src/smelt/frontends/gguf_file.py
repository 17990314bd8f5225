"""A GGUF file as its sizes, its tensors and its tokenizer's facts.

Input: a path. Output: `GgufModel`. Invariant: the file is untrusted: an architecture, a block type, a size or a tensor
that a decoder cannot be made of is refused with its name; tensors are views of the mapped file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base.errors import LoadError
from smelt.frontends.gguf_blocks import KINDS, Blocks, blocks_of

Array = np.ndarray[Any, Any]
_PLAIN: Final = ("F32", "F16", "BF16")
_INTERLEAVED: Final = {"llama": True, "qwen2": False}  # whether rotary pairs are neighbours, by architecture
_MOST: Final = 1 << 24  # of any size


@dataclass(frozen=True)
class Sizes:
    architecture: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    depth: int  # of a head
    tokens: int
    context: int
    rope_base: float
    rope_scale: float  # of positions
    epsilon: float

    @property
    def interleaved(self) -> bool:
        return _INTERLEAVED[self.architecture]


@dataclass(frozen=True)
class GgufTensor:
    name: str
    kind: str
    shape: tuple[int, ...]  # the row-major one: (N, K) for a matrix
    data: Array

    def blocks(self) -> Blocks | None:
        return blocks_of(self.kind, self.data.reshape(self.shape[0], -1)) if self.kind in KINDS else None

    def floats(self) -> Array:
        from gguf.quants import dequantize

        kind = self.data.dtype
        made = self.data if kind in (np.float32, np.float16) else dequantize(self.data, _type_named(self.kind))
        return np.ascontiguousarray(made, np.float32).reshape(self.shape)


@dataclass(frozen=True)
class GgufModel:
    path: Path
    sizes: Sizes
    tensors: Mapping[str, GgufTensor]
    facts: Mapping[str, Any]

    def tensor(self, name: str, *shape: int) -> GgufTensor:
        """One that must be there, of this shape."""
        found = self.tensors.get(name)
        if found is None:
            raise LoadError("SM-LOAD-009", f"{self.path} has no tensor {name}")
        if found.shape != shape:
            raise LoadError("SM-LOAD-009", f"{self.path}: {name} is {list(found.shape)}, not {list(shape)}")
        return found


def is_gguf(path: Path) -> bool:
    return path.suffix.lower() == ".gguf" and path.is_file()


def read_gguf(path: Path) -> GgufModel:
    if find_spec("gguf") is None:
        raise LoadError("SM-LOAD-011", "a GGUF file is read by the package gguf, which is missing")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        facts = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {one.name: _tensor(path, one) for one in reader.tensors}
    except LoadError:
        raise
    except Exception as error:  # whatever the reader meets in bytes that are no GGUF
        raise LoadError("SM-LOAD-009", f"{path} cannot be read as GGUF: {_short(error)}") from error
    return GgufModel(path, _sizes(path, facts, tensors), tensors, facts)


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _type_named(kind: str) -> Any:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType[kind]


def _tensor(path: Path, one: Any) -> GgufTensor:
    kind = str(one.tensor_type.name)
    if kind not in KINDS and kind not in _PLAIN:
        known = ", ".join((*sorted(KINDS), *_PLAIN))
        raise LoadError("SM-LOAD-010", f"{path}: {one.name} has blocks of type {kind}, not one of {known}")
    shape = tuple(int(size) for size in reversed(one.shape))
    return GgufTensor(str(one.name), kind, shape, one.data)


def _sizes(path: Path, facts: Mapping[str, Any], tensors: Mapping[str, GgufTensor]) -> Sizes:
    architecture = facts.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _INTERLEAVED:
        known = ", ".join(_INTERLEAVED)
        raise LoadError("SM-LOAD-010", f"{path}: architecture {architecture!r} is not one of {known}")

    def number(name: str, default: float | None = None) -> float:
        found = facts.get(f"{architecture}.{name}", default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < float("inf"):
            raise LoadError("SM-LOAD-009", f"{path}: {architecture}.{name} is {found!r}, no positive number")
        return found

    def size(name: str, default: int | None = None) -> int:
        found = number(name, default)
        if found != int(found) or found > _MOST:
            raise LoadError("SM-LOAD-009", f"{path}: {architecture}.{name} is {found!r}, no possible size")
        return int(found)

    hidden, heads = size("embedding_length"), size("attention.head_count")
    depth = size("attention.key_length", hidden // heads)
    if depth % 2 or size("attention.value_length", depth) != depth or size("rope.dimension_count", depth) != depth:
        raise LoadError("SM-LOAD-010", f"{path}: heads of {depth} whose values or rotary positions have another length")
    kv_heads = size("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise LoadError("SM-LOAD-009", f"{path}: {heads} heads do not share {kv_heads} of keys")
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise LoadError("SM-LOAD-009", f"{path} has no tensor token_embd.weight with two axes")
    scaling = facts.get(f"{architecture}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise LoadError("SM-LOAD-010", f"{path}: rotary positions scaled by {scaling!r}")
    factor = number("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0
    return Sizes(
        architecture, size("block_count"), hidden, size("feed_forward_length"), heads, kv_heads, depth, table.shape[0],
        size("context_length"), float(number("rope.freq_base", 10000.0)), 1 / factor,
        float(number("attention.layer_norm_rms_epsilon")),
    )  # fmt: skip
