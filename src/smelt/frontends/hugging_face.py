"""A Hugging Face folder -> a module and what it is called with.

Input: a folder with config.json, weights and, for text, a tokenizer. Output: `Loaded`: the module in evaluation mode,
example keyword arguments, and names of the sizes that vary. Invariant: nothing is downloaded, and no code from the
folder is run.
"""

# Neither transformers nor what it gives is annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from smelt.base.errors import ExportError

_TEXT: Final = {0: "batch", 1: "sequence"}
_BATCH: Final = {0: "batch"}
_LENGTH: Final = 8


@dataclass(frozen=True)
class Loaded:
    module: Any
    kwargs: Mapping[str, Any]
    dynamic_shapes: Mapping[str, Any]


def is_hugging_face(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def load_folder(folder: Path, task: str = "") -> Loaded:
    """The model of a folder. `task` names a class of transformers, say AutoModelForSequenceClassification; without it,
    it is the one that the folder was saved from."""
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = _class_of(transformers, config, task)
        module = kind.from_pretrained(folder, local_files_only=True).eval()
    except ExportError:
        raise
    except Exception as error:  # transformers raises many kinds
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError("SM-EXPORT-004", f"{folder} cannot be loaded: {first}") from error
    if getattr(module.config, "use_cache", None):
        module.config.use_cache = False  # a cache is an object, which no graph returns
    kwargs = _example(module, folder, transformers)
    return Loaded(module, kwargs, {name: _sizes(value) for name, value in kwargs.items()})


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ExportError(
            "SM-EXPORT-004", "a Hugging Face folder needs the package transformers", hint="pip install transformers"
        ) from error
    return cast("Any", transformers)


def _class_of(transformers: Any, config: Any, task: str) -> Any:
    names: Iterable[str] = (task,) if task else (*(config.architectures or ()), "AutoModel")
    for name in names:
        kind = getattr(transformers, name, None)
        if kind is not None and hasattr(kind, "from_pretrained"):
            return kind
    raise ExportError("SM-EXPORT-004", f"transformers has no class {task!r}", hint="AutoModel takes most folders.")


def _example(module: Any, folder: Path, transformers: Any) -> dict[str, Any]:
    """Arguments as the folder's own tokenizer makes them, else of the kind that the model's main input is."""
    import torch

    main = str(getattr(module, "main_input_name", "input_ids"))
    generator = torch.Generator().manual_seed(0)
    if main == "pixel_values":
        size, channels = _image_size(module.config), int(getattr(module.config, "num_channels", 3))
        return {main: torch.rand(2, channels, size, size, generator=generator)}
    if main != "input_ids":
        raise ExportError(
            "SM-EXPORT-004", f"inputs cannot be made up for a model of {main!r}",
            hint="Export it in Python: smelt.export(model, (), {...}).",
        )  # fmt: skip
    names = _tokenized(folder, transformers)
    top = int(getattr(module.config, "vocab_size", 100))
    made = {"input_ids": torch.randint(min(top, 1000), (2, _LENGTH), generator=generator)}
    if "attention_mask" in names:
        made["attention_mask"] = torch.ones(2, _LENGTH, dtype=torch.int64)
    if "token_type_ids" in names:
        made["token_type_ids"] = torch.zeros(2, _LENGTH, dtype=torch.int64)
    return made


def _tokenized(folder: Path, transformers: Any) -> list[str]:
    """What the folder's tokenizer gives; ids and a mask where there is none."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return [str(name) for name in tokenizer.model_input_names]
    except Exception:  # none, or one of a kind that is not installed
        return ["input_ids", "attention_mask"]


def _image_size(config: Any) -> int:
    size = getattr(config, "image_size", 224)
    return int(size[0] if isinstance(size, (list, tuple)) else size)


def _sizes(value: Any) -> dict[int, str]:
    return dict(_TEXT if value.dim() == 2 else _BATCH)
