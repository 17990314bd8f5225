"""Graphs of tensors on the device `ort`: the same as graphs of the CPU, over the same memory.

Input: a graph whose tensors all lie on one `ort` device. Output: the graph as it is on the CPU, and its function under
the device's names again. Invariant: no element is copied on the way in or out; a tensor that did not change since the
last call has the same mirror as then, so that whatever is kept for weights stays valid, and only then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

DEVICE = "ort"


def device_index(graph: GraphModule) -> int | None:
    """The index of the one `ort` device that all tensors of a graph lie on, numbers apart; else None."""
    devices = {v.device for node in graph.graph.nodes for v in tensors_of(node) if v.dim() or v.device.type != "cpu"}
    if len(devices) != 1:
        return None
    (device,) = devices
    lazy = any(v.is_conj() or v.is_neg() or v.layout != torch.strided for n in graph.graph.nodes for v in tensors_of(n))
    return (device.index or 0) if device.type == DEVICE and not lazy else None


def tensors_of(node: Node) -> list[torch.Tensor]:
    """What tracing knows of a node's values."""
    value: Any = node.meta.get("val")
    values = cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else (value,)
    return [one for one in values if isinstance(one, torch.Tensor)]


def to_host(graph: GraphModule, device: str = DEVICE) -> None:
    """Change a graph of the device into one of the CPU."""
    for node in graph.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = _hosted(node.meta["val"], device)
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
        node.args = tuple(torch.device("cpu") if isinstance(a, torch.device) else a for a in node.args)
    graph.recompile()


def _hosted(value: Any, device: str) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_hosted(v, device) for v in value)  # pyright: ignore
    if not isinstance(value, torch.Tensor) or value.device.type != device:
        return value
    fake: Any = value
    with fake.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")


@dataclass
class _Mirror:
    source: weakref.ref[torch.Tensor]
    pointer: int
    version: int
    tensor: torch.Tensor


class OnDevice:
    """A boxed function of the CPU as one of `ort:index`."""

    def __init__(self, inner: Callable[[list[Any]], Sequence[Any]], index: int, places: Sequence[bool]) -> None:
        from smelt.frontends.eager.memory import on_cpu, on_ort

        self._inner, self._index, self._places = inner, index, tuple(places)
        self._to_cpu, self._to_ort = on_cpu, on_ort
        self._kept: dict[int, _Mirror] = {}
        self._boxed_call = True  # on the instance: wrappers take over its dictionary

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        mirrors = [self._mirror(place, arg) for place, arg in enumerate(given)]
        owners = {id(m): arg for m, arg in zip(mirrors, given, strict=True) if isinstance(m, torch.Tensor)}
        results = self._inner([*mirrors])
        pairs = zip(results, self._places, strict=True)
        return [owners[id(r)] if id(r) in owners else self._to_ort(r, self._index) if here else r for r, here in pairs]

    def _mirror(self, place: int, arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor) or arg.device.type != DEVICE:
            return arg
        plain = arg.detach()
        if arg.is_inference():
            return self._to_cpu(plain)
        kept, version = self._kept.get(place), arg._version
        if kept is None or kept.source() is not arg or (kept.version, kept.pointer) != (version, arg.data_ptr()):
            kept = self._kept[place] = _Mirror(weakref.ref(arg), arg.data_ptr(), version, self._to_cpu(plain))
        return kept.tensor


def results_on_device(graph: GraphModule) -> list[bool]:
    """Which results of a graph are tensors of the device."""
    results: Sequence[Any] = next(node for node in graph.graph.nodes if node.op == "output").args[0]  # pyright: ignore
    return [isinstance(r, Node) and any(v.device.type == DEVICE for v in tensors_of(r)) for r in results]
