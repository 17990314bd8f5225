"""Whether a node may leave torch.

Input: an FX node with the fake values of tracing, and the device that sessions run on. Output: None, or why it
stays. Invariant: what this accepts can be computed by ONNX Runtime from tensors that the binding passes, with the same
meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.fx import Node

from smelt.export import reason_against
from smelt.frontends.torch_compile._torch import is_mutable, is_random
from smelt.frontends.torch_compile.calls.on_device import tensors_of
from smelt.frontends.torch_compile.graph.random_nodes import STAYS
from smelt.frontends.torch_compile.graph.table_gradients import BETTER_IN_TORCH

_DTYPES: Final = frozenset(
    (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
    )
)  # fmt: skip

_CPU: Final = torch.device("cpu")
_aten: Final = torch.ops.aten
_PRODUCTS: Final = frozenset(
    (
        _aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot, _aten.addr, _aten.linear,
        _aten.convolution,
    )
)  # fmt: skip


def reason_to_stay(node: Node, device: torch.device = _CPU) -> str | None:
    """None when the node may run in ONNX Runtime, on this device."""
    target = node.target
    for mark in (STAYS, BETTER_IN_TORCH):
        if mark in node.meta:
            return str(node.meta[mark])
    if _is_size(node):
        return "a size that is known before the call"
    if is_random(node):
        return "draws from torch's random state"
    if is_mutable(target):
        return "writes to its arguments"
    if _mixes_types(node):
        return "a product of tensors of different types, which torch refuses"
    for value in _values(node):
        reason = _against_tensor(value, device)
        if reason is not None:
            return reason
    if device.type != "cpu" and _moves(node):
        return "moves a tensor to another device"
    try:
        return reason_against(node)
    except Exception as error:
        # A converter may be the user's own. Whatever it raises, the node can still run in torch.
        return f"its converter failed: {type(error).__name__}: {str(error)[:200]}"


def _mixes_types(node: Node) -> bool:
    """Tracing lets such products pass; torch refuses them when they run, and so must we."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in _PRODUCTS:
        return False
    values = [n.meta.get("val") for n in node.all_input_nodes]
    return len({value.dtype for value in values if isinstance(value, torch.Tensor)}) > 1


def _is_size(node: Node) -> bool:
    """An integer made of arguments alone: as a result of a session it would only hold torch up."""
    if not isinstance(node.meta.get("val"), (int, torch.SymInt)):
        return False
    return all(n.op == "placeholder" or _is_size(n) for n in node.all_input_nodes)


def _values(node: Node) -> Iterable[Any]:
    for one in (*node.all_input_nodes, node):
        value = one.meta.get("val")
        yield from value if isinstance(value, (tuple, list)) else (value,)


def _moves(node: Node) -> bool:
    """Whether no tensor that a node takes is where its result is."""
    taken = [v.device for n in node.all_input_nodes for v in tensors_of(n)]
    return bool(taken) and any(value.device not in taken for value in tensors_of(node))


def _against_tensor(value: Any, device: torch.device) -> str | None:
    if not isinstance(value, torch.Tensor):
        return None
    if value.device != device and (value.device.type != "cpu" or value.dim()):
        return f"a tensor on {value.device.type}" + (f", others are on {device}" if device.type != "cpu" else "")
    if value.layout is not torch.strided:
        return f"a tensor of layout {str(value.layout).removeprefix('torch.')}"
    if value.dtype not in _DTYPES:
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    return "a tensor with its sign pending" if value.is_neg() else None
