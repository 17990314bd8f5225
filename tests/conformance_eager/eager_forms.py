"""The forms in which torch offers an op, each run on one device.

Input: an entry of PyTorch's operator database, a call, a device. Output: everything that the call returned or wrote,
on the CPU, or the error that it raised. Invariant: arguments are made anew for each run with the same strides, and the
generator starts from one seed, so that both devices see the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from opinfo_samples import SEED, Sample
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Run:
    """What came of a call: `value` is nothing when there is an `error`."""

    value: Any = None
    error: Exception | None = None


def run(form: str, entry: Any, sample: Sample, device: str) -> Run:
    """One form of a call on a device."""
    try:
        return Run(to_cpu(_FORMS[form](entry, sample, device)))
    except Exception as error:
        return Run(error=error)


def forms_of(entry: Any, dtype: str) -> list[str]:
    """The forms that torch has of an entry."""
    forms = ["function"]
    for name, variant in (("method", entry.method_variant), ("in-place", entry.inplace_variant)):
        if variant is not None:
            forms.append(name)
    if entry.operator_variant is not None:
        forms.append("operator")
    if entry.inplace_operator_variant is not None:
        forms.append("in-place operator")
    if entry.supports_out:
        forms += ["out", "empty out"]
    if entry.supports_autograd and dtype == "float32":
        forms.append("backward")
    return forms


def moved(sample: Sample, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Fresh arguments on a device, with the strides of the sample's."""
    arguments, keywords = _map_tensors(lambda t: _copied(t, device), (sample.arguments, sample.keywords))
    if sample.function is torch.tensor_split:  # wants its indices on the CPU, whatever the device
        arguments = (arguments[0], *_map_tensors(lambda t: t.cpu(), arguments[1:]))
    return arguments, keywords


def _copied(tensor: torch.Tensor, device: str) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized:
        return tensor.detach().to(device, copy=True)
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    if any(stride == 0 for stride in tensor.stride()):  # elements that share memory cannot be written one by one
        copy = torch.empty_like(tensor, device=device)
    return copy.copy_(tensor.detach()) if not tensor.is_conj() else tensor.detach().to(device, copy=True)


def _function(entry: Any, sample: Sample, device: str) -> Any:
    return _called(entry.op, sample, device)


def _method(entry: Any, sample: Sample, device: str) -> Any:
    return _called(entry.method_variant, sample, device)


def _operator(entry: Any, sample: Sample, device: str) -> Any:
    return _called(entry.operator_variant, sample, device)


def _called(call: Callable[..., Any], sample: Sample, device: str) -> Any:
    arguments, keywords = _placed(sample, device)
    torch.manual_seed(SEED)
    return call(*arguments, **keywords)


def _in_place(entry: Any, sample: Sample, device: str) -> Any:
    return _written(entry.inplace_variant, sample, device)


def _in_place_operator(entry: Any, sample: Sample, device: str) -> Any:
    return _written(entry.inplace_operator_variant, sample, device)


def _written(call: Callable[..., Any], sample: Sample, device: str) -> Any:
    """The tensor that was written, and one that shares its memory."""
    arguments, keywords = _placed(sample, device)
    target = arguments[0]
    alias = target.view_as(target) if isinstance(target, torch.Tensor) else None
    torch.manual_seed(SEED)
    result = call(*arguments, **keywords)
    if isinstance(target, torch.Tensor) and result is not target:
        raise AssertionError("an op in place returned another tensor")
    shared = alias if alias is not None and alias.shape == target.shape else None
    return result, shared


def _out(entry: Any, sample: Sample, device: str) -> Any:
    return _into(entry, sample, device, lambda t: torch.empty_like(t))


def _empty_out(entry: Any, sample: Sample, device: str) -> Any:
    return _into(entry, sample, device, lambda t: t.new_empty(0))


def _into(entry: Any, sample: Sample, device: str, room: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    wanted = _called(entry.op, sample, device)
    outs = _map_tensors(room, wanted)
    addresses = [t.data_ptr() for t in _tensors(outs)]
    arguments, keywords = _placed(sample, device)
    torch.manual_seed(SEED)
    result = entry.op(*arguments, **keywords, out=outs)
    if result is not None and not all(
        one is other for one, other in zip(_tensors(result), _tensors(outs), strict=True)
    ):
        raise AssertionError("out= was not returned")
    stayed = [t.numel() == 0 or t.data_ptr() == a or a == 0 for t, a in zip(_tensors(outs), addresses, strict=True)]
    return outs, stayed if room is not _empty_out else None


def _backward(entry: Any, sample: Sample, device: str) -> Any:
    """Gradients of a weighted sum of the results, no two weights alike."""
    arguments, keywords = _map_tensors(
        lambda t: t.requires_grad_(t.is_floating_point() or t.is_complex()), _placed(sample, device)
    )
    inputs = [t for t in _tensors((arguments, keywords)) if t.requires_grad]
    torch.manual_seed(SEED)
    with torch.enable_grad():
        results = _tensors(entry.op(*(_unleafed(a) for a in arguments), **keywords))
        parts = [r for r in results if r.requires_grad and (r.is_floating_point() or r.is_complex())]
        parts = [torch.view_as_real(r.resolve_conj()) if r.is_complex() else r for r in parts]
        if not parts or not inputs:
            return []
        total = sum((r * _weights(r)).sum() for r in parts)
        return list(torch.autograd.grad(total, inputs, allow_unused=True))


def _unleafed(value: Any) -> Any:
    """The same values, but a result: some ops write to an argument, which a leaf forbids."""
    return value.clone() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _weights(result: torch.Tensor) -> torch.Tensor:
    count = torch.arange(1, result.numel() + 1, dtype=result.dtype)
    return (count * 0.37).cos().reshape(result.shape).to(result.device)


_FORMS: dict[str, Callable[[Any, Sample, str], Any]] = {
    "function": _function, "method": _method, "operator": _operator, "in-place": _in_place,
    "in-place operator": _in_place_operator, "out": _out, "empty out": _empty_out, "backward": _backward,
}  # fmt: skip
FORMS = (*_FORMS, "errors")


def errors_of(entry: Any, device: str) -> Iterator[tuple[Any, Run]]:
    """The calls that torch says are wrong, each with what came of it."""
    if entry.error_inputs_func is None:
        return
    torch.manual_seed(SEED)
    for wrong in entry.error_inputs(device):
        sample = wrong.sample_input
        try:
            yield wrong, Run(entry.op(sample.input, *sample.args, **sample.kwargs))
        except Exception as error:
            yield wrong, Run(error=error)


def to_cpu(tree: Any) -> Any:
    return _map_tensors(lambda t: t.detach().cpu(), tree)


def _placed(sample: Sample, device: str) -> Any:
    """Arguments on a device, with words for a device replaced too."""
    arguments, keywords = moved(sample, device)
    if isinstance(keywords.get("device"), (str, torch.device)):
        keywords = {**keywords, "device": device}
    return arguments, keywords


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)
