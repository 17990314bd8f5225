"""Every kernel of the device: which op gets which.

Input: PyTorch's registry of ops, the exporter's table. Output: registered kernels. Invariant: an op that PyTorch itself
breaks into others (composite ops) is left to PyTorch, so that autograd sees the parts; each other op has exactly one
kernel here, or the general one, which asks the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from . import aliases, recurrent, sparse, special
from ._internals import torch_c
from .calls import InPlaceOp, NativeOp, OutOp, run_on_cpu

aten: Final[Any] = torch.ops.aten
_COMPOSITE: Final = "CompositeImplicitAutograd"
_NO_CONVERSION: Final = "it writes, makes views or asks for no tensor"
# PyTorch's own kernels for any device: they place, copy and wrap, or take lists apart, by way of other ops.
_PLACING: Final = frozenset((
    "_to_copy", "clone", "copy", "lift", "lift_fresh", "lift_fresh_copy", "detach", "detach_copy", "alias_copy",
    "contiguous", "empty_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full", "_unsafe_view",
    "_pin_memory", "_to_sparse", "to_mkldnn", "_to_dense", "_conj_physical", "_resize_output", "zero", "set", "resize",
))  # fmt: skip
native_ops: dict[str, NativeOp] = {}


def register_kernels(key: str) -> list[Any]:
    """All of them, for a dispatch key; the libraries must be kept alive."""
    general = torch.library.Library("_", "IMPL")
    general.fallback(_general, key)
    library = torch.library.Library("aten", "IMPL")
    taken: set[str] = set()

    def put(op: Any, kernel: Callable[..., Any]) -> None:
        name = op._schema.name + ("." + op._schema.overload_name if op._schema.overload_name else "")
        if name not in taken:
            taken.add(name)
            library.impl(name.removeprefix("aten::"), kernel, key)

    for op in aliases.METADATA_OPS:
        put(op, aliases.metadata_kernel(op))
    for op, kernel in special.KERNELS:
        put(op, kernel)
    for name, cell in recurrent.CELLS.items():
        put(getattr(aten, name).default, cell)
    taken.update(("aten::empty.memory_format", "aten::empty_strided"))
    for op in _functional_ops():
        _put_forms(op, put)
    others = [*special.register_lazy_copies(), *special.register_autocast(), *sparse.register_sparse()]
    return [general, library, *recurrent.register_cells(key), *others]


def _general(op: Any, *args: Any, **kwargs: Any) -> Any:
    return run_on_cpu(op, args, kwargs, _NO_CONVERSION)


def _functional_ops() -> Iterator[Any]:
    for name in torch_c._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        try:
            op = getattr(getattr(aten, packet), overload or "default")
        except (AttributeError, RuntimeError):
            continue
        if _is_functional(op) and not _is_composite(op):
            yield op


def _is_functional(op: Any) -> bool:
    """New results, nothing written, no views, no chance: what a program can compute."""
    schema = op._schema
    name = schema.name.partition("::")[2]
    if schema.is_mutable or any(r.alias_info is not None for r in schema.returns):
        return False
    if torch.Tag.nondeterministic_seeded in op.tags or name in _PLACING or name.startswith("_foreach"):
        return False
    tensors = [a for a in schema.arguments if "Tensor" in str(a.type)]
    return bool(tensors) and all("Tensor" in str(r.type) for r in schema.returns) and bool(schema.returns)


def _is_composite(op: Any) -> bool:
    return torch_c._dispatch_has_kernel_for_dispatch_key(op.name(), _COMPOSITE)


def _put_forms(op: Any, put: Callable[[Any, Callable[..., Any]], None]) -> None:
    """The functional op, and its forms `op_` and `out=`."""
    native = native_ops[str(op)] = NativeOp(op)
    put(op, native)
    in_place = _variant(op, op._schema.name.removeprefix("aten::") + "_", lambda o: not _outs(o))
    if in_place is not None and len(op._schema.returns) == 1:
        put(in_place, InPlaceOp(in_place, native))
    out = _variant(op, op._schema.name.removeprefix("aten::"), lambda o: bool(_outs(o)))
    if out is not None:
        put(out, OutOp(out, native))


def _outs(op: Any) -> list[Any]:
    return [a for a in op._schema.arguments if a.is_out]


def _variant(op: Any, packet: str, wanted: Callable[[Any], bool]) -> Any:
    """The overload of another form with the same arguments."""
    found = getattr(aten, packet, None)
    if found is None:
        return None
    for overload in found.overloads():
        variant = getattr(found, overload)
        if wanted(variant) and _signature(variant) == _signature(op):
            return variant
    return None


def _signature(op: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
