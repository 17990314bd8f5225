"""Sparse tensors of the device: the CPU computes with them over the same memory.

Input: calls with COO or compressed tensors of `ort`. Output: their results on `ort`. Invariant: indices and values are
tensors of `ort`; a mirror on the CPU shares their memory, and what the CPU put in place of them comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from . import tally
from ._internals import torch_c
from .memory import on_cpu, on_ort
from .programs import map_tensors, tensors_of

aten: Final[Any] = torch.ops.aten
_KEYS: Final = {"SparsePrivateUse1": "SparseCPU", "SparseCsrPrivateUse1": "SparseCsrCPU"}
_REASON: Final = "a sparse tensor"
# These read or set what a tensor is made of, whatever its device.
_PARTS: Final = frozenset((
    "_indices", "_values", "indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices", "_nnz",
    "sparse_dim", "dense_dim", "_dimI", "_dimV", "is_coalesced", "_coalesced_", "sparse_resize_",
    "sparse_resize_and_clear_",
))  # fmt: skip
_COMPRESSED: Final = {
    torch.sparse_csr: ("crow_indices", "col_indices"), torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"), torch.sparse_bsc: ("ccol_indices", "row_indices"),
}  # fmt: skip
_LAYOUTS: Final = frozenset((torch.strided, torch.sparse_coo, *_COMPRESSED))


def register_sparse() -> list[Any]:
    """Kernels for every op that the CPU has for sparse tensors, and for what PyTorch composes of others."""
    library = torch.library.Library("aten", "IMPL")
    for key, host in _KEYS.items():
        for name in torch_c._dispatch_get_all_op_names():
            if name.startswith("aten::") and torch_c._dispatch_has_kernel_for_dispatch_key(name, host):
                packet, _, overload = name.removeprefix("aten::").partition(".")
                op = getattr(getattr(aten, packet), overload or "default")
                library.impl(name.removeprefix("aten::"), _kernel(op, packet, getattr(torch_c.DispatchKey, host)), key)
    general = torch.library.Library("_", "IMPL")
    for key in _KEYS:
        general.fallback(run_sparse, key)
    return [library, general]


def _kernel(op: Any, name: str, host: Any) -> Callable[..., Any]:
    call = op._op_dk

    def part(*args: Any, **kwargs: Any) -> Any:
        return call(host, *args, **kwargs)

    def computed(*args: Any, **kwargs: Any) -> Any:
        return run_sparse(op, *args, **kwargs)

    return part if name in _PARTS else computed


def is_sparse(tensor: torch.Tensor) -> bool:
    return tensor.layout != torch.strided


def run_sparse(op: Any, *args: Any, **kwargs: Any) -> Any:
    """A call with sparse arguments or results, on the CPU."""
    index = next((t.device.index or 0 for t in tensors_of((args, kwargs)) if t.device.type == "ort"), 0)
    if kwargs.get("device") is not None:
        if kwargs["device"].type == "ort":
            index = kwargs["device"].index or index
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain, named = map_tensors(mirror, args), map_tensors(mirror, kwargs)
    if op is aten._sparse_mm_reduce_impl.default:  # notes where a maximum came from only if a gradient is wanted
        plain = tuple(
            p.requires_grad_(a.requires_grad) if a is not args[2] else p for p, a in zip(plain, args, strict=True)
        )
        with torch.enable_grad():
            result = map_tensors(torch.Tensor.detach, op(*plain))
    else:
        result = op(*plain, **named)
    tally.note_fallback(str(op), _REASON)
    _write_back(op, args, plain, kwargs, named)
    return _returned(op, args, kwargs, result, index)


def mirror(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor of the CPU, over the same indices and values."""
    if tensor.device.type != "ort":
        return tensor
    if not is_sparse(tensor):
        return on_cpu(tensor)
    shape = tensor.shape
    if tensor.layout == torch.sparse_coo:
        parts = on_cpu(tensor._indices()), on_cpu(tensor._values())
        return aten._sparse_coo_tensor_unsafe(*parts, shape, is_coalesced=tensor.is_coalesced())
    outer, inner = (on_cpu(getattr(tensor, name)()) for name in _COMPRESSED[tensor.layout])
    return aten._sparse_compressed_tensor_unsafe(outer, inner, on_cpu(tensor.values()), shape, layout=tensor.layout)


def placed(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """A tensor of the CPU on the device, over the same memory."""
    if tensor.is_quantized or tensor.is_nested or tensor.layout not in _LAYOUTS:
        kind = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout)
        raise NotImplementedError(f"the device ort has no {kind} tensors")
    if not is_sparse(tensor):
        return on_ort(tensor, index)
    device = torch.device("ort", index)
    if tensor.layout == torch.sparse_coo:
        return aten._sparse_coo_tensor_with_dims_and_tensors.default._op_dk(
            torch_c.DispatchKey.SparseCPU, tensor.sparse_dim(), tensor.dense_dim(), tensor.shape,
            on_ort(tensor._indices(), index), on_ort(tensor._values(), index), dtype=tensor.dtype,
            layout=torch.sparse_coo, device=device, is_coalesced=tensor.is_coalesced(),
        )  # fmt: skip
    outer, inner = (on_ort(getattr(tensor, name)(), index) for name in _COMPRESSED[tensor.layout])
    values = on_ort(tensor.values(), index)
    return aten._sparse_compressed_tensor_unsafe(
        outer, inner, values, tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=device
    )


def _write_back(op: Any, args: Sequence[Any], plain: Sequence[Any], kwargs: Any, named: Any) -> None:
    """A sparse tensor that was written may have other indices and values now."""
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        ours, theirs = (kwargs, named) if argument.name in kwargs else (args, plain)
        at = argument.name if argument.name in kwargs else place
        target, source = ours[at], theirs[at]
        if isinstance(target, torch.Tensor) and target.layout == torch.sparse_coo and target.device.type == "ort":
            moved = placed(source, target.device.index or 0)
            aten.copy_sparse_to_sparse_.default._op_dk(torch_c.DispatchKey.SparseCPU, target, moved)
            aten._coalesced_.default._op_dk(torch_c.DispatchKey.SparseCPU, target, source.is_coalesced())


def _returned(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, index: int) -> Any:
    """What was written is the argument itself, the rest is new."""
    for declared in op._schema.returns:
        alias = declared.alias_info
        if alias is None or not alias.is_write:
            continue
        for place, argument in enumerate(op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.before_set & alias.before_set:
                return kwargs[argument.name] if argument.name in kwargs else args[place]
    return map_tensors(lambda t: placed(t, index), result)
