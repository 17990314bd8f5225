"""Folders of onnxruntime-genai: the model inside, and the same folder with a compiled one.

Input: a folder with genai_config.json. Output: the path of its decoder; a folder that stock onnxruntime-genai loads as
it is. Invariant: only the decoder, its external data and two entries of the configuration differ; the configuration
cannot name files outside of its folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from smelt.artifact import MANIFEST, MODEL
from smelt.base.errors import LoadError

CONFIG: Final = "genai_config.json"
TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_FILES: Final = ("filename", "config_filename", "adapter_filename", "custom_ops_library")


def is_genai_folder(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def decoder_of(folder: Path) -> Path:
    """The model that generates tokens."""
    name = _decoder(_read(folder), folder).get("filename")
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise LoadError("SM-LOAD-009", f"{folder / CONFIG} names no file of its folder in model.decoder.filename")
    if not (folder / name).is_file():
        raise LoadError("SM-LOAD-009", f"{folder / CONFIG} names {name}, and there is no such file")
    return folder / name


def check_folder(folder: Path) -> None:
    """Refuse a folder that onnxruntime-genai could not chat with, before anything long begins."""
    decoder_of(folder)
    _refuse_outside(_read(folder), folder)
    check_tokenizer(folder)


def check_tokenizer(folder: Path) -> None:
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise LoadError("SM-LOAD-009", f"{folder} holds no tokenizer", hint=f"One of {', '.join(TOKENIZERS)}.")


def _refuse_outside(found: object, folder: Path) -> None:
    """No file that the configuration names anywhere lies outside of the folder."""
    if isinstance(found, list):
        for item in cast("list[object]", found):
            _refuse_outside(item, folder)
    elif isinstance(found, dict):
        for key, item in cast("dict[str, object]", found).items():
            if isinstance(item, str) and key in _FILES and _leads_out(item, folder):
                raise LoadError("SM-LOAD-009", f"{folder / CONFIG} names {item!r} in {key}, outside of its folder")
            _refuse_outside(item, folder)


def _leads_out(name: str, folder: Path) -> bool:
    return "\\" in name or not (folder / name).resolve().is_relative_to(folder.resolve())


def fill_genai_folder(artifact: Path, source: Path, staged: Path) -> None:
    """Copy the folder with the artifact in the place of its decoder."""
    decoder = decoder_of(source)
    left_out = {decoder.name, CONFIG, MANIFEST, *_external_files(decoder)}
    for path in sorted(source.iterdir()):
        if path.name in left_out or path.name.startswith("."):
            continue
        if path.is_dir():
            shutil.copytree(path, staged / path.name)
        else:
            shutil.copyfile(path, staged / path.name)
    shutil.copytree(artifact, staged, dirs_exist_ok=True)
    config = _read(source)
    section = _decoder(config, source)
    section["filename"] = MODEL
    library = json.loads((artifact / MANIFEST).read_text(encoding="utf-8")).get("library")
    if library:
        options = section.setdefault("session_options", {})
        options["custom_ops_library"] = library["file"]
    (staged / CONFIG).write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")


def _read(folder: Path) -> dict[str, Any]:
    try:
        found: object = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LoadError("SM-LOAD-009", f"{folder / CONFIG} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise LoadError("SM-LOAD-009", f"{folder / CONFIG} holds no object")
    return cast("dict[str, Any]", found)


def _decoder(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    model = config.get("model")
    decoder = cast("Mapping[str, Any]", model).get("decoder") if isinstance(model, dict) else None
    if not isinstance(decoder, dict):
        raise LoadError("SM-LOAD-009", f"{folder / CONFIG} has no model.decoder")
    return cast("dict[str, Any]", decoder)


def _external_files(model: Path) -> set[str]:
    """Files beside the model that only its weights lie in."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    entries = (entry for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location")
    return {entry.value for entry in entries}
