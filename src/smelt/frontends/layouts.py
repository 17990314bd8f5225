"""An artifact in the folder that another program expects.

Input: an artifact folder, the kind of folder, the Hugging Face folder that the model came from. Output: a folder for
sentence-transformers, Optimum, Triton Inference Server or onnxruntime-genai. Invariant: it appears whole; only an empty
folder or one that was written so before is replaced; the artifact's files stay together, so that its library is found
and checked.

    sentence-transformers   OUT/onnx/<artifact>, OUT/{modules.json, config.json, tokenizer, ...}
    optimum                 OUT/<artifact>, OUT/{config.json, tokenizer, ...}
    triton                  OUT/<name>/1/<artifact>, OUT/<name>/config.pbtxt
    genai                   OUT/<artifact>, OUT/{genai_config.json, tokenizer, ...} of a folder of onnxruntime-genai
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from smelt.artifact import MANIFEST, MODEL, check_replaceable, publish, unwritable, work_beside
from smelt.base.errors import ArtifactError, ConfigError
from smelt.frontends.genai_folder import fill_genai_folder

LAYOUTS: Final = ("sentence-transformers", "optimum", "triton", "genai")
_INSIDE: Final = {"sentence-transformers": "onnx", "optimum": ".", "genai": "."}
_WEIGHTS: Final = (".onnx", ".onnx_data", ".data", ".safetensors", ".bin", ".h5", ".msgpack", ".pt", ".ot", ".so")
_MOST_BYTES: Final = 64 << 20  # vocabularies are smaller, weights of other programs are not
_TYPES: Final = {
    "float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16", "int64": "INT64", "int32": "INT32",
    "int16": "INT16", "int8": "INT8", "uint64": "UINT64", "uint32": "UINT32", "uint16": "UINT16", "uint8": "UINT8",
    "bool": "BOOL", "string": "STRING", "float": "FP32", "double": "FP64",
}  # fmt: skip


def check_layout(layout: str, output: Path) -> None:
    """Refuse what cannot be written, before anything long begins."""
    if layout not in LAYOUTS:
        raise ConfigError("SM-CONFIG-001", f"--layout {layout!r} is not one of {', '.join(LAYOUTS)}")
    if not _is_layout(output):
        check_replaceable(output)


def _is_layout(output: Path) -> bool:
    """Written by `write_layout` before."""
    places = [output / inside / MANIFEST for inside in _INSIDE.values()]
    return any(place.is_file() for place in places) or any(output.glob(f"*/1/{MANIFEST}"))


def companion_folder(model: Path) -> Path | None:
    """The Hugging Face folder that a model lies in: its own, or the one above `onnx/`."""
    near = (model.parent, model.parent.parent) if model.parent.name == "onnx" else (model.parent,)
    return next((folder for folder in near if (folder / "config.json").is_file()), None)


def write_layout(artifact: Path, layout: str, output: Path, companion: Path | None, name: str) -> Path:
    """Arrange the artifact for `layout`. `name` is what a server calls the model."""
    output = output.absolute()
    check_layout(layout, output)
    if layout != "triton" and companion is None:
        raise ArtifactError(
            "SM-ARTIFACT-001", f"the folder for {layout} needs config.json and the tokenizer beside the model",
            hint="Compile the model where it lies in its Hugging Face folder, or name that folder by --from.",
        )  # fmt: skip
    with work_beside(output) as work:
        staged = work / "new"
        try:
            staged.mkdir()
            if layout == "triton":
                _fill_triton(artifact, staged, output, name)
            elif layout == "genai":
                assert companion is not None
                fill_genai_folder(artifact, companion, staged)
            else:
                assert companion is not None
                _copy_companion(companion, staged)
                shutil.copytree(artifact, staged / _INSIDE[layout], dirs_exist_ok=True)
            publish(staged, output, work)
        except OSError as error:
            raise unwritable(output, error) from error
    return output


def _copy_companion(folder: Path, staged: Path) -> None:
    """Configuration and tokenizer, with folders of modules; no weights, which the artifact has."""
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inner.parts)
        if hidden or inner.parts[0] in ("onnx", "openvino") or not path.is_file():
            continue
        if path.suffix not in _WEIGHTS and path.name != MANIFEST and path.stat().st_size <= _MOST_BYTES:
            (staged / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, staged / inner)


def _fill_triton(artifact: Path, staged: Path, output: Path, name: str) -> None:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "model"
    place = staged / name / "1"
    shutil.copytree(artifact, place)
    manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
    (staged / name / "config.pbtxt").write_text(triton_config(name, manifest, output / name / "1"), encoding="utf-8")


def triton_config(name: str, manifest: Mapping[str, Any], folder: Path) -> str:
    """config.pbtxt. The server wants the library by an absolute path: the folder is the one it will lie in."""
    lines = [f"name: {_quoted(name)}", 'backend: "onnxruntime"', f'default_model_filename: "{MODEL}"']
    lines.append("max_batch_size: 0")
    for side in ("inputs", "outputs"):
        for value in manifest.get(side) or ():
            dims = ", ".join(str(dim) if isinstance(dim, int) else "-1" for dim in value.get("dims") or ())
            kind = _TYPES.get(str(value.get("type")).lower(), "INVALID")
            entry = f"name: {_quoted(value['name'])} data_type: TYPE_{kind} dims: [ {dims} ]"
            lines.append(f"{side[:-1]} {{ {entry} }}")
    library = manifest.get("library")
    if library:
        path = str(folder / library["file"])
        lines.append(f"model_operations {{ op_library_filename: [ {_quoted(path)} ] }}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A string of protobuf's text format, for any name."""
    return '"' + "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else _escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
