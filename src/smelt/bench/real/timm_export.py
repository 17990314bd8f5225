"""A process that builds architectures of timm and writes them as ONNX files.

Input: on stdin a JSON list of [name, side, exporter, path]. Output: the files, and on stdout one JSON line for each,
[name, problem]. Invariant: a file is moved into place whole; one that fails does not keep others from being written.
"""

# timm is not annotated, and is not there when types are checked.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

_OPSET: Final = 17


def main() -> None:
    import torch

    _declare_operators(torch)
    timm = importlib.import_module("timm")
    answers, sys.stdout = sys.stdout, sys.stderr  # exporters print
    for name, side, exporter, path in json.load(sys.stdin):
        try:
            _write(timm, str(name), int(side), str(exporter), Path(path))
            problem = ""
        except Exception as error:  # a line that says so
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(json.dumps([name, problem]), file=answers, flush=True)


def _declare_operators(torch: Any) -> None:
    """torchvision's own library does not load beside a torch that was built otherwise; timm needs none of its kernels,
    but importing it asks for the declarations."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch._smelt_torchvision = library  # it lives as long as its declarations


def _write(timm: Any, name: str, side: int, exporter: str, path: Path) -> None:
    import torch

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, exportable=True).eval()
    _disturb(torch, module)
    side = side or int(module.default_cfg["input_size"][-1])
    image = torch.randn(2, 3, side, side)
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".export-", dir=path.parent.parent))
    try:
        with torch.no_grad():
            _export(torch, module, image, exporter, work / path.name)
        work.rename(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _export(torch: Any, module: Any, image: Any, exporter: str, path: Path) -> None:
    if exporter == "smelt":
        smelt = importlib.import_module("smelt")
        names = {"input_names": ["image"], "output_names": ["scores"]}
        smelt.export(module, (image,), dynamic_shapes=({0: "batch"},), **names).save(path)
        return
    torch.onnx.export(
        module, (image,), str(path), dynamo=False, opset_version=_OPSET, input_names=["image"],
        output_names=["scores"], dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
    )  # fmt: skip


def _disturb(torch: Any, module: Any) -> None:
    """Statistics and gains as training leaves them: nothing is 0 or 1 that a wrong graph could leave out unnoticed."""
    maker = torch.Generator().manual_seed(1)

    def noise(like: Any) -> Any:
        return torch.randn(like.shape, generator=maker)

    with torch.no_grad():
        for buffer_name, buffer in module.named_buffers():
            if buffer_name.endswith("running_mean"):
                buffer.copy_(0.2 * noise(buffer))
            elif buffer_name.endswith("running_var"):
                buffer.copy_(1.0 + 0.3 * noise(buffer).tanh())
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.1 * noise(parameter))
            elif parameter.ndim <= 1 or float(parameter.std()) == 0:
                start = float(parameter.abs().mean())
                parameter.copy_((start if start > 0.1 else 0.3) + 0.1 * noise(parameter))


if __name__ == "__main__":
    main()
