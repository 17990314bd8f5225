"""`smelt.compile` and `smelt.load`: one name for each way in.

Input: an ONNX model or a torch module; a folder that was saved. Output: a compiled model or module. Invariant: torch is
not imported for an ONNX model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from smelt.base.config import Config
from smelt.base.errors import TorchError
from smelt.base.progress import Progress

_OF_MODULES = ("dynamic", "kept")


def compile(
    model: Any, output: str | Path | None = None, *, config: Config | None = None, progress: Progress | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Compile an ONNX model (a path, bytes, a ModelProto, an onnx_ir Model) or a torch module, and load it.

        fast = smelt.compile("model.onnx")           # a CompiledModel: fast.run({"x": x})
        fast = smelt.compile(module)                 # a CompiledModule, called as the module is

    For an ONNX model `output` is the artifact folder to write (a temporary one without it) and `options` are the fields
    of `smelt.Options`. For a module they are those of `smelt.TorchOptions`, `dynamic` (sizes are free wherever the
    module leaves them free) and `kept` (programs that are kept).
    """
    if not _is_module(model):
        from smelt.frontends import onnx_file

        return onnx_file.compile(model, output, config=config, progress=progress, **options)
    from smelt.frontends.module import CompiledModule

    if output is not None:
        raise TorchError(
            "SM-TORCH-004", "a module has no program to write before its first call",
            hint="fast = smelt.compile(module); fast(x); fast.save(folder)",
        )  # fmt: skip
    own = {name: options.pop(name) for name in _OF_MODULES if name in options}
    return CompiledModule(model, options=options, **own)


def load(directory: str | Path, *, threads: int = 0) -> Any:
    """Open a folder: a module that `CompiledModule.save` wrote, or any artifact as an `Executable`."""
    folder = Path(directory)
    if (folder / "torch.json").is_file():
        from smelt.frontends.module import load_module

        return load_module(folder, threads=threads)
    from smelt.runtime import Executable, SessionSettings

    return Executable.open(folder, SessionSettings(threads=threads))


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)
