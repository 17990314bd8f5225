"""What is timed: a model file with feeds.

Input: a micro model's name, a zoo model's name with sizes, or a file. Output: a `Case`. Invariant: a case's file lies
on disk before anything is timed, and every peer reads the same file and the same feeds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from smelt.base import Config, ConfigError
from smelt.bench import zoo
from smelt.bench.micro import MICRO, find_micro

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """`module` names the torch module behind the file; `fusion` the kind of model for ONNX Runtime's own optimizer."""

    name: str
    about: str
    model: Path
    feeds: Mapping[str, Array]
    module: str = ""
    fusion: str = ""


def micro_case(name: str, config: Config) -> Case:
    entry = find_micro(name)
    model, feeds = entry.build()
    content = model.SerializeToString()
    path = config.cache_dir / "bench" / f"micro-{name}-{hashlib.sha256(content).hexdigest()[:12]}.onnx"
    if not path.is_file():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.replace(path)
    return Case(name, entry.about, path, feeds, module="micro")


def micro_cases(config: Config) -> list[Case]:
    return [micro_case(name, config) for name in MICRO]


def zoo_case(name: str, config: Config, batch: int = 1, length: int = 128, scale: zoo.Scale = "full") -> Case:
    entry = zoo.find_model(name)
    path = zoo.export(name, config, scale)
    feeds = zoo.feeds(name, batch, length, scale)
    tokens = f", 1 token after {length}" if entry.past else f", {length} tokens" if entry.takes_tokens else ""
    size = f"batch {batch}{tokens}"
    about = f"{size}, random weights" + ("" if scale == "full" else f", {scale} configuration")
    label = entry.name if scale == "full" else f"{entry.name} ({scale})"
    return Case(label, about, path, feeds, module=f"zoo:{entry.name}:{scale}", fusion=entry.fusion)


def suite_cases(suite: str, config: Config, batch: int = 1, length: int = 128, scale: zoo.Scale = "full") -> list[Case]:
    if suite == "micro":
        return micro_cases(config)
    if suite in zoo.SUITES:
        return [zoo_case(name, config, batch, length, scale) for name in zoo.SUITES[suite]]
    known = ", ".join(("micro", *zoo.SUITES))
    raise ConfigError("SM-CONFIG-005", f"there is no suite {suite!r}", hint=f"Known are {known}.")


def find_scale(name: str) -> zoo.Scale:
    if name not in get_args(zoo.Scale):
        raise ConfigError("SM-CONFIG-005", f"there is no scale {name!r}", hint="Known are full, small and tiny.")
    return cast("zoo.Scale", name)


def file_case(path: Path, feeds: Mapping[str, Array]) -> Case:
    shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" for name, array in feeds.items())
    return Case(path.name, shapes, path, feeds)
