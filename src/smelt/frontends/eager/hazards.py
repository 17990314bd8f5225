"""Values for which ONNX Runtime's kernels answer in another way than torch's, or end the process.

Input: an op and the arguments of one call. Output: the reason to leave this call to the CPU, or nothing. Invariant:
only ops that have such values pay for the look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from .memory import on_cpu
from .unsupported import is_whole

Rule = Callable[[Mapping[str, Any]], str | None]
Look = Callable[[Sequence[Any], Mapping[str, Any]], str | None]


def look_at_values(op: Any) -> Look | None:
    """The check for calls of an op, if it needs one."""
    rule = _RULES.get(op._schema.name.removeprefix("aten::"))
    if rule is None:
        return None
    names = [formal.name for formal in op._schema.arguments]

    def look(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        return rule({**dict(zip(names, args, strict=False)), **kwargs})

    return look


def _plain(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value)
    return on_cpu(value) if value.device.type == "ort" else value


def _quotient(given: Mapping[str, Any]) -> str | None:
    """ONNX Runtime divides by the processor's instruction, which traps."""
    left, right = given["self"], given["other"]
    if given.get("rounding_mode", "") is None or not (is_whole(left) and is_whole(right)):
        return None
    divisor = _plain(right)
    return "whole numbers divided by 0 or -1" if ((divisor == 0) | (divisor == -1)).any() else None


def _common(given: Mapping[str, Any]) -> str | None:
    for name in ("self", "other"):
        value = _plain(given[name])
        if value.dtype != torch.bool and (value == torch.iinfo(value.dtype).min).any():
            return "the least whole number"
    return None


def _places(name: str, given: Mapping[str, Any]) -> str | None:
    """ONNX counts negative places from the end, where torch raises."""
    places = _plain(given[name])
    if places.numel() and places.dtype not in (torch.bool, torch.uint8):
        wrong = places < 0
        if "ignore_index" in given:
            wrong &= places != given["ignore_index"]
        if wrong.any():
            return "a negative place"
    return None


def _not_finite(given: Mapping[str, Any]) -> str | None:
    """ONNX Runtime keeps or drops a NaN by its place, and takes infinity times zero for a NaN."""
    values = _plain(given["self"])
    return "values that are not finite" if values.is_floating_point() and not values.sum().isfinite() else None


def _zero_divisor(given: Mapping[str, Any]) -> str | None:
    """The conversion does not tell zeros of two signs apart."""
    return "an angle with a zero" if (_plain(given["other"]) == 0).any() else None


def _probability(given: Mapping[str, Any]) -> str | None:
    """torch raises for others."""
    values = _plain(given["self"])
    return None if ((values >= 0) & (values <= 1)).all() else "a probability that is none"


_INDEXED: Final = {
    "index": (
        "index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce",
    ),
    "indices": (
        "embedding", "embedding_dense_backward", "embedding_renorm", "_embedding_bag", "_embedding_bag_forward_only",
        "max_unpool2d", "max_unpool3d",
    ),
    "target": (
        "nll_loss_forward", "nll_loss2d_forward", "nll_loss_backward", "nll_loss2d_backward", "multi_margin_loss",
    ),
    "self": ("bincount",),
    "repeats": ("repeat_interleave",),
}  # fmt: skip
_ORDERED: Final = (
    "max", "min", "amax", "amin", "aminmax", "topk", "sign", "gelu", "_unique", "_unique2", "unique_dim",
    "max_pool2d_with_indices", "max_pool3d_with_indices",
)  # fmt: skip
_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("floor_divide", "remainder", "fmod", "div"), _quotient),
    **dict.fromkeys(("gcd", "lcm"), _common),
    **dict.fromkeys(_ORDERED, _not_finite),
    "atan2": _zero_divisor,
    "binary_cross_entropy": _probability,
    **{op: partial(_places, name) for name, ops in _INDEXED.items() for op in ops},
}
