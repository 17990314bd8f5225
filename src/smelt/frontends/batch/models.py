"""MODEL, as users name it -> a `ModelRef` that workers open.

Input: an ONNX file, an artifact, a saved module, a SentenceTransformer or its folder. Output: a `ModelRef`, and the
tokenizer that comes with it. Invariant: an ONNX file is compiled once for an output folder: a rerun finds the artifact
of the first run, so that its parts have the same bits.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from smelt.base.config import Config
from smelt.base.errors import InputError, LoadError
from smelt.base.progress import Progress
from smelt.frontends.batch.digests import folder_digest
from smelt.frontends.batch.output_folder import OutputFolder
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.records import ModelRef
from smelt.frontends.session.identity import digest_of
from smelt.runtime import MANIFEST, InputSpec, declared_inputs

_SENTENCES: Final = "modules.json"


@dataclass(frozen=True)
class Named:
    """What the user named. `digest` is known before anything is compiled."""

    source: str
    digest: str
    kind: str  # onnx, artifact, sentences
    path: Path | None = None
    module: Any = None

    @property
    def tokenizer(self) -> Path | None:
        """A tokenizer that lies with the model."""
        if self.path is None:
            return None
        folder = self.path if self.path.is_dir() else self.path.parent
        return folder if (folder / "tokenizer.json").is_file() else None


def named(model: Any) -> Named:
    """What it is, without compiling it."""
    if not isinstance(model, (str, Path)):
        return _object(model)
    path = Path(model).expanduser().absolute()
    if path.is_dir():
        if (path / MANIFEST).is_file():
            return Named(str(path), folder_digest(path), "artifact", path)
        if (path / _SENTENCES).is_file():
            return Named(str(path), folder_digest(path), "sentences", path)
        raise InputError("SM-BATCH-011", f"{path} is neither an artifact nor a SentenceTransformer")
    if not path.is_file():
        raise InputError("SM-LOAD-001", f"there is no model {path}")
    try:
        with tempfile.TemporaryDirectory() as memo:
            return Named(str(path), digest_of(path, Path(memo)), "onnx", path)
    except DecodeError as error:
        raise LoadError("SM-LOAD-002", f"{path} is no ONNX model: {error}") from error
    except OSError as error:
        raise LoadError("SM-LOAD-001", f"{path} cannot be read: {error.strerror}") from error


def _object(model: Any) -> Named:
    """A SentenceTransformer in memory; its weights are its digest."""
    if not hasattr(model, "tokenize") or not hasattr(model, "state_dict"):
        kind = type(model).__name__
        raise InputError(
            "SM-LOAD-008", f"a {kind} cannot run over a data set",
            hint="Give an ONNX file, an artifact, a saved module (CompiledModule.save) or a SentenceTransformer.",
        )  # fmt: skip
    import hashlib

    digest = hashlib.sha256(repr(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return Named(type(model).__name__, digest.hexdigest(), "sentences", None, model)


def inputs_to_compile(what: Named, folder: OutputFolder, stock: bool) -> tuple[InputSpec, ...]:
    """Inputs of a model that takes a while until it can be opened, as its file declares them; nothing for others."""
    if what.kind == "sentences":
        made = folder.own / "stock" / "model.onnx" if stock else folder.model / MANIFEST
        kind = np.dtype(np.int64)
        names = () if made.is_file() else ("input_ids", "attention_mask")
        return tuple(InputSpec(name, "tensor(int64)", kind, ("rows", "tokens")) for name in names)
    if what.kind != "onnx" or stock or what.path is None or (folder.model / MANIFEST).is_file():
        return ()
    return declared_inputs(what.path)


def opened(
    what: Named, folder: OutputFolder, config: Config, progress: Progress | None, stock: bool, options: dict[str, Any]
) -> ModelRef:
    """Compile where that is needed and was not done by an earlier run."""
    if what.kind == "artifact":
        if stock:
            raise InputError("SM-CONFIG-001", "--stock runs an ONNX file, not an artifact")
        return ModelRef(what.source, what.digest, what.source)
    if stock:
        plain = what.source if what.kind == "onnx" else str(_exported(what, folder))
        return ModelRef(what.source, f"stock {what.digest}", plain, stock=True)
    if not (folder.model / MANIFEST).is_file():
        shutil.rmtree(folder.model, ignore_errors=True)
        source = _sentences(what, folder).model if what.kind == "sentences" else what.path
        _compile(source, folder.model, config, progress, options)
    return ModelRef(what.source, what.digest, str(folder.model))


def _compile(source: Any, target: Path, config: Config, progress: Progress | None, options: dict[str, Any]) -> None:
    from smelt.frontends.onnx_file import compile

    compile(source, target, config=config, progress=progress, **options).close()


def _exported(what: Named, folder: OutputFolder) -> Path:
    """A SentenceTransformer as a plain ONNX file, written once for an output folder."""
    place = folder.own / "stock" / "model.onnx"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        _sentences(what, folder).save(place)
    return place


def _sentences(what: Named, folder: OutputFolder) -> Any:
    """A SentenceTransformer as ONNX: tokens and mask in, `sentence_embedding` out. Its tokenizer is kept beside."""
    import torch

    from smelt.frontends.export_module import export_module

    model = what.module
    if model is None:
        model = package("sentence_transformers").SentenceTransformer(str(what.path), device="cpu")
    if what.module is not None:
        model.tokenizer.backend_tokenizer.save(str(folder.own / "tokenizer.json"))

    class Sentences(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model({"input_ids": input_ids, "attention_mask": attention_mask})["sentence_embedding"]

    ids = torch.ones(2, 7, dtype=torch.int64)
    free = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    return export_module(
        Sentences().eval(), (ids, torch.ones_like(ids)), dynamic_shapes=(free, free),
        input_names=["input_ids", "attention_mask"], output_names=["sentence_embedding"],
    )  # fmt: skip
