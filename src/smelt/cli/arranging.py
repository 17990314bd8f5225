"""`smelt compile --layout`: a compilation whose artifact goes into the folder of another program.

Input: a model or a Hugging Face folder, and the kind of folder. Output: the model to compile and where to, then the
folder. Invariant: what cannot be written is refused first; a folder without an ONNX model is exported on the way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from smelt.base.errors import LoadError
from smelt.frontends.genai_builder import build_folder
from smelt.frontends.genai_folder import check_folder, decoder_of, is_genai_folder
from smelt.frontends.gguf_file import is_gguf
from smelt.frontends.gguf_folder import build_gguf_folder
from smelt.frontends.layouts import check_layout, companion_folder, write_layout
from smelt.pipeline import Options


@contextmanager
def placed(
    model: Path, output: Path, layout: str, companion: Path | None, options: Options
) -> Generator[tuple[Path, Path, Options]]:
    """The model to compile, the folder for its artifact and the options that are left to apply."""
    with ExitStack() as places:
        if not layout and is_gguf(model):
            check_layout("genai", output)
            work = Path(places.enter_context(tempfile.TemporaryDirectory(prefix="smelt-")))
            model = build_gguf_folder(model, work, options.precision, options.accuracy)
        elif not layout and options.precision and model.is_dir() and not is_genai_folder(model):
            check_layout("genai", output)
            work = Path(places.enter_context(tempfile.TemporaryDirectory(prefix="smelt-")))
            model = build_folder(model, work, options.precision, options.accuracy)
            options = replace(options, precision="")  # the builder has stored them so
        layout = layout or ("genai" if is_genai_folder(model) else "")
        place = arranged(model, output, layout, companion) if layout else nullcontext((model, output))
        yield *places.enter_context(place), options


@contextmanager
def arranged(model: Path, output: Path, layout: str, companion: Path | None) -> Generator[tuple[Path, Path]]:
    """The model to compile and the folder for its artifact, which becomes a part of `output` at the end."""
    check_layout(layout, output)
    if layout == "genai" and model.is_dir():
        check_folder(model)
    with tempfile.TemporaryDirectory(prefix="smelt-") as folder:
        work = Path(folder)
        source = _model_of(model, work) if model.is_dir() else model
        yield source, work / "artifact"
        near = companion or (model if model.is_dir() else companion_folder(model))
        write_layout(work / "artifact", layout, output, near, model.name if model.is_dir() else model.stem)


def _model_of(folder: Path, work: Path) -> Path:
    """The ONNX model of a Hugging Face folder; else its weights, exported."""
    if is_genai_folder(folder):
        return decoder_of(folder)
    known = next((path for path in (folder / "onnx/model.onnx", folder / "model.onnx") if path.is_file()), None)
    if known is not None:
        return known
    if not (folder / "config.json").is_file():
        raise LoadError("SM-LOAD-001", f"{folder} holds neither an ONNX model nor config.json")
    from smelt.cli.export import export_folder

    return export_folder(folder, "", False, 20).save(work / "model.onnx").model_path
