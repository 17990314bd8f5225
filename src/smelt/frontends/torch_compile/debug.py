"""Ways to look at compiled graphs: dumps, comparison with torch, interception.

Input: a graph, its compiled function and options. Output: the function with the wanted checks around it. Invariant:
without these options nothing is wrapped; a dump or a comparison never changes a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
import torch
from torch.fx import GraphModule

from smelt.base.errors import TorchError
from smelt.ir.save import save_model

_numbers: Final = itertools.count()
_DIGITS: Final = 4


def dump_part(folder: Path, module: GraphModule, model: ir.Model) -> Path:
    """Write a part's FX graph and its ONNX model, numbered in the order of compilation."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{next(_numbers):0{_DIGITS}d}"
    while stem.with_suffix(".onnx").exists():
        stem = folder / f"{next(_numbers):0{_DIGITS}d}"
    stem.with_suffix(".fx.txt").write_text(
        str(module.print_readable(print_output=False)) + "\n" + str(module.graph), encoding="utf-8"
    )
    save_model(model, stem.with_suffix(".onnx"), data_name=f"{stem.name}.data")
    return stem


def dumping(
    call: Callable[[Sequence[Any]], Sequence[Any]], stem: Path, fed: Callable[[Sequence[Any]], dict[str, Any]]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The call, whose first inputs (as the model takes them, by name) and results are kept beside the model."""
    done: list[bool] = []

    def run(args: Sequence[Any]) -> Sequence[Any]:
        results = call(args)
        if not done:
            done.append(True)
            torch.save({"inputs": fed(args), "outputs": list(results)}, stem.with_suffix(".pt"))
        return results

    return run


def checked(
    call: Callable[[Sequence[Any]], Sequence[Any]], eager: GraphModule, tolerance: float
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The call, every result of which is compared with torch's."""

    def run(args: Sequence[Any]) -> Sequence[Any]:
        results = call(args)
        for place, (found, wanted) in enumerate(zip(results, eager(*args), strict=True)):
            problem = difference(found, wanted, tolerance)
            if problem:
                raise TorchError("SM-TORCH-002", f"output {place} of a compiled graph {problem}")
        return results

    return run


def difference(found: Any, wanted: Any, tolerance: float) -> str:
    """What is wrong with a result, or nothing."""
    if not isinstance(wanted, torch.Tensor):
        return "" if found == wanted else f"is {found}, torch has {wanted}"
    if found.dtype != wanted.dtype or found.shape != wanted.shape or found.stride() != wanted.stride():
        return f"is {_kind(found)}, torch has {_kind(wanted)}"
    if not wanted.is_floating_point():
        return "" if torch.equal(found, wanted) else "differs from torch's"
    a, b = found.double(), wanted.double()
    finite = b.isfinite()
    if not torch.equal(finite, a.isfinite()) or not torch.equal(b.isnan(), a.isnan()):
        return "has other infinities or NaN than torch's"
    a, b = a[finite], b[finite]
    scale = float(b.square().mean().sqrt()) if b.numel() else 0.0
    error = float(((a - b).abs() / (b.abs() + scale + 1e-30)).max()) if b.numel() else 0.0
    return "" if error <= tolerance else f"differs from torch's by {error:.1e}, more than {tolerance:.1e}"


def _kind(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)} with strides {list(tensor.stride())}"


def intercepted(graph: GraphModule, callback: bool | Callable[..., None]) -> Callable[..., Any]:
    """The original graph, whose inputs are printed or handed over at each call."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]

    def run(*args: Any) -> Any:
        given = dict(zip(names, args, strict=True))
        if callable(callback):
            callback(given)
        else:
            print("smelt: call of a graph with " + ", ".join(f"{n}: {_text(v)}" for n, v in given.items()))
        return graph(*args)

    return run


def _text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind}{list(value.shape)} on {value.device.type}"
