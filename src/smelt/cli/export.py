"""`smelt export`: a PyTorch model -> ONNX.

Input: a Hugging Face folder, or MODULE:ATTRIBUTE with inputs to trace it with. Output: an ONNX file. Invariant: sizes
are free wherever the model leaves them free, unless told otherwise; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

if TYPE_CHECKING:
    from smelt.frontends.export_module import Exported

What = Annotated[
    str, typer.Argument(metavar="FOLDER|MODULE:ATTRIBUTE", help="A Hugging Face folder, or a torch module to import.")
]
Types = Annotated[
    list[str] | None,
    typer.Option("--types", metavar="NAME:DTYPE", help="Type of an input given by --shapes; float32 otherwise."),
]
Static = Annotated[bool, typer.Option("--static", help="Fix all sizes to those of the example.")]
Task = Annotated[str, typer.Option("--class", metavar="NAME", help="Class of transformers to load the folder with.")]
Opset = Annotated[int, typer.Option("--opset", help="Opset of the model.")]


def register(app: typer.Typer) -> None:
    app.command("export")(export_command)


def export_command(
    what: What,
    output: opt.OutputModel,
    task: Task = "",
    shapes: opt.Shapes = None,
    types: Types = None,
    inputs: opt.Inputs = None,
    static: Static = False,
    opset: Opset = 20,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Export a Hugging Face folder or a torch module to ONNX."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.report import counted

        _need_torch()
        if Path(what).is_dir():
            exported = export_folder(Path(what), task, static, opset)
        else:
            arrays = _arrays(opt.parse_shapes(shapes), _types(types), opt.parse_files(inputs), seed)
            exported = _export_attribute(what, arrays, static, opset)
        output.parent.mkdir(parents=True, exist_ok=True)
        saved = exported.save(output)
        out.lines(str(exported.report) if verbose else counted(len(exported.model.graph), "node"))
        out.lines(f"inputs: {', '.join(exported.input_names)}", f"outputs: {', '.join(exported.output_names)}")
        out.result(str(saved.model_path))
        out.facts(output=str(saved.model_path), inputs=exported.input_names, outputs=exported.output_names)


def _need_torch() -> None:
    from importlib.util import find_spec

    from smelt.base.errors import ExportError

    if find_spec("torch") is None:
        raise ExportError("SM-EXPORT-004", "exporting needs PyTorch", hint="pip install 'onnx-smelt[torch]'")


def export_folder(folder: Path, task: str, static: bool, opset: int) -> Exported:
    from smelt.base.errors import ExportError
    from smelt.frontends.export_module import export_module
    from smelt.frontends.hugging_face import is_hugging_face, load_folder

    if not is_hugging_face(folder):
        raise ExportError("SM-EXPORT-004", f"{folder} has no config.json, so it is no Hugging Face folder")
    loaded = load_folder(folder, task)
    named = None if static else loaded.dynamic_shapes
    try:
        return export_module(loaded.module, (), loaded.kwargs, dynamic_shapes=named, opset=opset)
    except ExportError as error:
        if static or error.code != "SM-EXPORT-003":
            raise
    return export_module(loaded.module, (), loaded.kwargs, dynamic_shapes="auto", opset=opset)  # it fixes one of them


def _export_attribute(what: str, arrays: Mapping[str, Any], static: bool, opset: int) -> Exported:
    import torch

    from smelt.base.errors import ExportError
    from smelt.frontends.export_module import export_module

    module = _imported(what)
    given: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    args: tuple[Any, ...] = ()
    if not given:
        example = getattr(module, "example_inputs", None)
        if example is None:
            raise ExportError(
                "SM-EXPORT-004", f"{what} needs inputs to be traced with",
                hint="--shapes NAME:DIMS (and --types), --input NAME=FILE.npy, or an attribute example_inputs.",
            )  # fmt: skip
        example = cast("Any", example() if callable(example) else example)
        by_name = isinstance(example, Mapping)
        args, given = ((), dict(cast("Any", example))) if by_name else (tuple(example), {})
    return export_module(module, args, given, dynamic_shapes=None if static else "auto", opset=opset)


def _imported(what: str) -> Any:
    """The attribute of a module that can be imported from here; a class or function is called for it."""
    import sys
    from importlib import import_module

    import torch

    from smelt.base.errors import ExportError

    name, colon, attribute = what.partition(":")
    if not colon or not name or not attribute:
        raise ExportError(
            "SM-EXPORT-004", f"{what!r} is neither a folder nor MODULE:ATTRIBUTE", hint="Write package.models:make_net."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ExportError("SM-EXPORT-004", f"{what} cannot be imported: {error}") from error
    module = found if isinstance(found, torch.nn.Module) else found()
    if not isinstance(module, torch.nn.Module):
        raise ExportError("SM-EXPORT-004", f"{what} gives a {type(module).__name__}, not a torch module")
    return module.eval()


def _types(texts: list[str] | None) -> dict[str, str]:
    from smelt.base.errors import ConfigError

    types: dict[str, str] = {}
    for text in texts or ():
        name, colon, dtype = text.rpartition(":")
        if (
            not colon
            or not name
            or dtype not in ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
        ):
            raise ConfigError("SM-CONFIG-001", f"--types {text!r} is not NAME:DTYPE", hint="Write --types ids:int64.")
        types[name] = dtype
    return types


def _arrays(
    shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, str], files: Mapping[str, Path], seed: int
) -> dict[str, Any]:
    """Example inputs: files as they are, others drawn; integers are small, as indices into tables are."""
    import numpy as np

    random = np.random.default_rng(seed)
    made: dict[str, Any] = {name: np.load(path, allow_pickle=False) for name, path in files.items()}
    for name, shape in shapes.items():
        dtype = np.dtype(types.get(name, "float32"))
        drawn = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        made[name] = drawn.astype(dtype)
    return made
