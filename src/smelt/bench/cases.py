"""What is timed: a model file with feeds.

Input: a micro model's name, a zoo model's name with sizes, or a file. Output: a `Case`. Invariant: a case's file lies
on disk before anything is timed, and every peer reads the same file and the same feeds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np

from smelt.base import Config, ConfigError
from smelt.bench import zoo
from smelt.bench.micro import MICRO, MicroModel, find_micro
from smelt.bench.products import PRODUCTS
from smelt.bench.quantized import BFLOAT16, QUANTIZED, quantized

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """`module` names the torch module behind the file; `fusion` the kind of model for ONNX Runtime's own optimizer;
    `tokens` are made by one run; `artifact` is what it was compiled to before; `wide` is the float32 file that a
    quantized one was made from; `precision` is what smelt compiles it in. A case that could not be made has
    a `problem`."""

    name: str
    about: str
    model: Path
    feeds: Mapping[str, Array]
    module: str = ""
    fusion: str = ""
    tokens: int = 0
    problem: str = ""
    artifact: Path | None = None
    wide: Path | None = None
    precision: str = ""


@dataclass(frozen=True)
class Size:
    """A batch, and tokens of a sequence (for decoders, those that lie behind)."""

    batch: int = 1
    length: int = 128


USUAL: Final = Size()


def micro_case(name: str, config: Config) -> Case:
    return _written(find_micro(name), "micro", config)


def micro_cases(config: Config) -> list[Case]:
    return [micro_case(name, config) for name in MICRO]


def product_cases(config: Config, only: Collection[str] = ()) -> list[Case]:
    return [_written(entry, "gemm", config) for name, entry in PRODUCTS.items() if not only or name in only]


def _written(entry: MicroModel, kind: str, config: Config) -> Case:
    """The model in the cache's folder."""
    model, feeds = entry.build()
    content = model.SerializeToString()
    path = config.cache_dir / "bench" / f"{kind}-{entry.name}-{hashlib.sha256(content).hexdigest()[:12]}.onnx"
    if not path.is_file():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.replace(path)
    return Case(entry.name, entry.about, path, feeds, module="micro")


def zoo_case(name: str, config: Config, size: Size = USUAL, scale: zoo.Scale = "full") -> Case:
    entry = zoo.find_model(name)
    path = zoo.export(name, config, scale)
    feeds = zoo.feeds(name, size.batch, size.length, scale)
    return Case(
        _label(entry, size, scale),
        _about(entry, size, scale),
        path,
        feeds,
        module=f"zoo:{entry.name}:{scale}",
        fusion=entry.fusion,
        tokens=size.batch if entry.past else 0,
    )


def zoo_cases(names: Sequence[str], config: Config, sizes: Sequence[Size], scale: zoo.Scale) -> list[Case]:
    """Every model at every size that makes a difference to it; a model that cannot be built is a case that says so."""
    cases: dict[str, Case] = {}
    for name in names:
        entry = zoo.find_model(name)
        for size in sizes:
            label = _label(entry, size, scale)
            if label not in cases:
                cases[label] = _zoo_case_or_problem(name, config, size, scale)
    return list(cases.values())


def _zoo_case_or_problem(name: str, config: Config, size: Size, scale: zoo.Scale) -> Case:
    try:
        return zoo_case(name, config, size, scale)
    except Exception as error:  # the other models of a suite are timed all the same
        entry = zoo.find_model(name)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Case(_label(entry, size, scale), _about(entry, size, scale), Path(), {}, problem=lines[0][:200])


def quantized_cases(
    config: Config, scale: zoo.Scale = "full", only: Collection[str] = (), *, blocks: bool = False
) -> list[Case]:
    """Quantized models, batch 1, as integers or in blocks; `only` names them, or the models they were made from."""
    every = [one for one in QUANTIZED.values() if (one.form == "w4") == blocks]
    wanted = [one for one in every if not only or one.name in only or one.model in only]
    return [_quantized_case_or_problem(one.name, config, scale) for one in wanted]


def _quantized_case_or_problem(name: str, config: Config, scale: zoo.Scale) -> Case:
    entry = QUANTIZED[name]
    about = f"{_about(zoo.find_model(entry.model), USUAL, scale)}, {entry.about}"
    try:
        path, wide = quantized(entry, config, scale), zoo.export(entry.model, config, scale)
    except Exception as error:  # the other models of the suite are timed all the same
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Case(name, about, Path(), {}, problem=lines[0][:200])
    return Case(name, about, path, zoo.feeds(entry.model, 1, USUAL.length, scale), wide=wide)


def narrow_cases(config: Config, scale: zoo.Scale = "full", only: Collection[str] = ()) -> list[Case]:
    """float32 files that are run in bfloat16 by whoever can."""
    names = [name for name in BFLOAT16 if not only or name in only]
    return [
        case if case.problem else replace(case, name=f"{case.name} bf16", wide=case.model, precision="bf16")
        for case in zoo_cases(names, config, [USUAL], scale)
    ]


def _label(entry: zoo.ZooModel, size: Size, scale: zoo.Scale) -> str:
    """The name, with what is not as usual: `bert-base`, `bert-base b8 s37`."""
    batch = "" if size.batch == 1 else f" b{size.batch}"
    length = f" s{size.length}" if entry.takes_tokens and size.length != USUAL.length else ""
    return f"{entry.name}{batch}{length}" + ("" if scale == "full" else f" ({scale})")


def _about(entry: zoo.ZooModel, size: Size, scale: zoo.Scale) -> str:
    tokens = f", {size.length} tokens" if entry.takes_tokens else ""
    tokens = f", 1 token after {size.length}" if entry.past else tokens
    return f"batch {size.batch}{tokens}, random weights" + ("" if scale == "full" else f", {scale} configuration")


def suite_cases(
    suite: str,
    config: Config,
    sizes: Sequence[Size] = (USUAL,),
    scale: zoo.Scale = "full",
    only: Collection[str] = (),
) -> list[Case]:
    """A suite's cases, or those of some of its models."""
    if suite == "micro":
        return micro_cases(config)
    if suite == "gemm":
        return product_cases(config, only)
    if suite in ("int8", "int4"):
        return quantized_cases(config, scale, only, blocks=suite == "int4")
    if suite == "bf16":
        return narrow_cases(config, scale, only)
    if suite in zoo.SUITES:
        names = [name for name in zoo.SUITES[suite] if not only or name in only]
        return zoo_cases(names, config, sizes, scale)
    known = ", ".join(("micro", "gemm", "int8", "int4", "bf16", *zoo.SUITES))
    raise ConfigError("SM-CONFIG-005", f"there is no suite {suite!r}", hint=f"Known are {known}.")


def parse_sizes(batches: str, lengths: str) -> list[Size]:
    """`1,8` and `37,512` -> every pair."""
    return [Size(batch, length) for batch in _counts(batches, 512) for length in _counts(lengths, 512)]


def _counts(text: str, most: int) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and 1 <= int(part) <= most for part in parts):
        raise ConfigError("SM-CONFIG-001", f"{text!r} are not counts from 1 to {most}, such as 1,8")
    return [int(part) for part in parts]


def find_scale(name: str) -> zoo.Scale:
    if name not in get_args(zoo.Scale):
        raise ConfigError("SM-CONFIG-005", f"there is no scale {name!r}", hint="Known are full, small and tiny.")
    return cast("zoo.Scale", name)


def file_case(path: Path, feeds: Mapping[str, Array]) -> Case:
    shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" for name, array in feeds.items())
    return Case(path.name, shapes, path, feeds)
