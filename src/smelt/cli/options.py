"""Options that several verbs have, and how their text is read.

Input: text as users write it, in the ways that they know from other tools. Output: typer annotations and parsed
values. Invariant: text that cannot be read is a ConfigError that shows how it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from smelt.base.errors import ConfigError

ModelPath = Annotated[Path, typer.Argument(help="An ONNX model.", show_default=False, metavar="MODEL.onnx")]
Subject = Annotated[
    Path, typer.Argument(help="An ONNX model, or an artifact folder.", show_default=False, metavar="MODEL|ARTIFACT")
]
OutputModel = Annotated[
    Path, typer.Option("-o", "--output", metavar="OUT.onnx", help="File to write.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on stdout.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more; -vv also shows tracebacks.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print results only: no tables, no progress.")]
Threads = Annotated[int, typer.Option("--threads", min=0, help="Threads of a session; 0: as ONNX Runtime chooses.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of generated inputs.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shapes", metavar="NAME:DIMS", help="Shape of an input, e.g. x:1,128 or x:1x128. May be repeated."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE", help="Content of an input from a .npy file. May be repeated."),
]
InputData = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="DATA", help="Contents of inputs: a .npz by name, a .npy, or a folder of calls."),
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="GLOB", help="Take only nodes whose name or op type matches. May be repeated."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help="Leave nodes whose name or op type matches. May be repeated."),
]
Force = Annotated[bool, typer.Option("--force", help="Take every node that has a kernel, paying or not.")]
Dims = Annotated[
    list[str] | None, typer.Option("--dims", metavar="NAME=SIZE", help="Fix named sizes, e.g. batch=1,seq=128.")
]
TargetArch = Annotated[str | None, typer.Option("--target", metavar="ARCH", help="Architecture: x86-64 or aarch64.")]
BackendNames = Annotated[
    str, typer.Option("--backend", metavar="NAMES", help="Code generators, the preferred one first; default: c.")
]
Kernels = Annotated[
    list[Path] | None,
    typer.Option("--kernels", metavar="FILE.py", help="Python file that registers kernels of your own. Repeatable."),
]
CustomOps = Annotated[
    list[Path] | None,
    typer.Option("--custom-ops", metavar="LIB.so", help="Custom-op library that the model needs. Repeatable."),
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="What kernels run on beside the CPU: cuda or rocm.")
]
Levels = Annotated[str, typer.Option("--levels", metavar="NAMES", help="CPU levels to build, e.g. v2,v3.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not compare results with the reference.")]
Tune = Annotated[
    bool,
    typer.Option("--tune", help="Choose sizes by timing, and leave regions that do not pay to ONNX Runtime."),
]
NoTiming = Annotated[
    bool,
    typer.Option("--no-timing", help="Do not time the artifact against stock ONNX Runtime, and keep it if slower."),
]
TuneSeconds = Annotated[float, typer.Option("--tune-seconds", min=0, help="Time that the choice of sizes may take.")]
Settings = Annotated[
    Path | None,
    typer.Option("--settings", metavar="ARTIFACT", help="Use the sizes that an artifact was tuned to; time nothing."),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail on any fault of smelt and any region that could not be verified.")
]
MinCoverage = Annotated[
    float,
    typer.Option("--min-coverage", metavar="SHARE", help="Exit code 3 if a smaller share of the nodes is in kernels."),
]
Keep = Annotated[bool, typer.Option("--keep", help="Write the artifact even if --strict or --min-coverage is not met.")]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="w8|w4|int8-dynamic|int8|bf16|fp16",
        help="Weights in 8 or 4 bits in blocks, bfloat16 or float16; int8-dynamic: 8-bit weights and activations.",
    ),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        "--calibrate",
        metavar="FILE|FOLDER",
        help="Calls that a lower precision is measured on: as --inputs takes them.",
    ),
]
Budget = Annotated[
    str,
    typer.Option("--budget", metavar="DECIBELS", help="Signal to noise that every output keeps, such as 40dB."),
]
Accuracy = Annotated[
    str,
    typer.Option("--accuracy", metavar="exact|fast", help="fast: 8-bit activations in products with such weights."),
]
Preoptimize = Annotated[bool, typer.Option("--preoptimize", help="Let ONNX Runtime's own optimizer go first.")]
SkipPass = Annotated[
    list[str] | None, typer.Option("--skip-pass", metavar="PASS", help="A pass to leave out. May be repeated.")
]

Patterns = Annotated[
    str | None,
    typer.Option("--patterns", metavar="SELECTOR", help="Passes and rules, e.g. default+ort or default-fold-weights."),
]


def read_budget(text: str, precision: str) -> float:
    """Decibels; 0 where there is no budget."""
    from smelt.passes import read_budget as read

    return read(text, precision)


def refuse_same_file(model: Path, output: Path) -> None:
    """A verb that writes a model does not overwrite the one that it reads."""
    if output.exists() and model.exists() and output.samefile(model):
        raise ConfigError("SM-CONFIG-001", "the output is the model itself", hint="Write to another file.")


def read_settings(artifact: Path | None, tune: bool) -> dict[str, int]:
    """The sizes in an artifact's manifest."""
    if artifact is None:
        return {}
    if tune:
        raise ConfigError("SM-CONFIG-001", "--tune and --settings", hint="Sizes are either chosen or given.")
    from smelt.runtime import read_manifest

    found: object = read_manifest(artifact).get("settings", {})
    sizes = cast("dict[str, object]", found) if isinstance(found, dict) else {"": None}
    if not all(type(value) is int for value in sizes.values()):
        raise ConfigError("SM-CONFIG-001", f"the settings of {artifact}", hint="They are whole numbers.")
    return cast("dict[str, int]", sizes)


def parse_dims(texts: Iterable[str] | None) -> dict[str, int]:
    """`batch=1,seq=128` -> sizes by name."""
    sizes: dict[str, int] = {}
    for part in (part for text in texts or () for part in text.split(",") if part.strip()):
        name, equals, size = part.rpartition("=")
        if not equals or not name.strip() or not _is_size(size):
            raise ConfigError(
                "SM-CONFIG-001", f"--dims {part!r} is not NAME=SIZE", hint="Write --dims batch=1,seq=128."
            )
        sizes[name.strip()] = int(size)
    return sizes


def parse_shapes(texts: Iterable[str] | None) -> dict[str, tuple[int, ...]]:
    """`x:1,128` or `x:1x128` -> shapes by input; an empty list of sizes is a scalar. The last colon counts."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, colon, sizes = text.strip().rpartition(":")
        parts = sizes.replace("x", ",").split(",") if sizes.strip() else []
        if not colon or not name or not all(_is_size(part) for part in parts):
            raise ConfigError("SM-CONFIG-001", f"--shapes {text!r} is not NAME:DIMS", hint="Write --shapes x:1,128.")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def parse_files(texts: Iterable[str] | None) -> dict[str, Path]:
    """`name=file.npy` -> files by input."""
    files: dict[str, Path] = {}
    for text in texts or ():
        name, equals, file = text.partition("=")
        if not equals or not name or not file:
            raise ConfigError("SM-CONFIG-001", f"--input {text!r} is not NAME=FILE", hint="Write --input x=x.npy.")
        files[name] = Path(file)
    return files


def parse_names(text: str) -> tuple[str, ...]:
    """`v2,v3` -> names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def shape_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """`x:1,128 y:1`, as `--shapes` takes it."""
    return " ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())


def _is_size(text: str) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) < 19
