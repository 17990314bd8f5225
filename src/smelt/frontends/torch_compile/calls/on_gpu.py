"""Graphs of tensors on a GPU: which one its sessions run on.

Input: a graph, and settings. Output: the settings with the GPU; as they were where nothing here runs on it. Invariant:
what cannot run there stays in torch, on the GPU, and a warning says why; numbers and scalars may lie on the CPU.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch.fx import GraphModule

from smelt.base.errors import TorchError
from smelt.frontends.torch_compile.calls.on_device import tensors_of
from smelt.frontends.torch_compile.parts.sessions import Settings
from smelt.runtime import gpu_of


def on_gpu(graph: GraphModule, settings: Settings) -> Settings:
    device = _gpu_device(graph)
    gpu = None if device is None else gpu_of(device, settings.config)
    if gpu is None:
        return settings
    given = tuple(settings.options.providers or ())
    missing = gpu.missing() or ("" if gpu.takes(given) else "the option providers names none for it")
    if not missing:
        return replace(settings, gpu=gpu)
    if settings.options.strict:
        raise TorchError("SM-TORCH-001", f"tensors on {device} stay in torch: {missing}")
    warnings.warn(f"smelt: tensors on {device} stay in torch: {missing}", stacklevel=2)
    return settings


def _gpu_device(graph: GraphModule) -> torch.device | None:
    """The first one that a tensor of the graph is on. A graph of several runs on one, and the rest stays in torch."""
    for node in graph.graph.nodes:
        for value in tensors_of(node):
            if value.device.type == "cuda":
                return value.device
    return None
