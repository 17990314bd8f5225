"""Calls that ONNX Runtime would compute in another way than torch, or that torch must refuse itself.

Input: an op and its arguments. Output: the reason to leave it to the CPU, or nothing. Invariant: what the exporter's
table converts faithfully for graphs is not listed here; these are answers of single calls that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

_WHOLE: Final = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))


def reason_against(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Why a call is left to the CPU, if it is."""
    rule = _RULES.get(op._schema.name.removeprefix("aten::"))
    if rule is None:
        return None
    named = {formal.name: value for formal, value in zip(op._schema.arguments, args, strict=False)}
    return rule({**named, **kwargs})


def _power(given: Mapping[str, Any]) -> str | None:
    """ONNX Runtime raises whole numbers to a power in float64, which is inexact above 2**53."""
    exponent = given.get("exponent")
    if not isinstance(exponent, torch.Tensor) and exponent in (1, 2, 3):
        return None
    whole = all(is_whole(value) for value in (given.get("self"), exponent))
    return "ONNX Runtime computes powers of whole numbers in float64" if whole else None


def is_whole(value: Any) -> bool:
    return value.dtype in _WHOLE if isinstance(value, torch.Tensor) else isinstance(value, int)


def _buckets(given: Mapping[str, Any]) -> str | None:
    bounds = given.get("boundaries")
    return "boundaries that are not a vector" if bounds is not None and bounds.dim() != 1 else None


def _scattered(given: Mapping[str, Any]) -> str | None:
    return "a mask that is not of type bool" if given["mask"].dtype != torch.bool else None


def _difference(given: Mapping[str, Any]) -> str | None:
    """torch subtracts no bool from anything, nor anything from a bool."""
    for value in (given.get("self"), given.get("other")):
        if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
            return "a bool in a subtraction, which torch refuses"
    return None


_RULES: Final[dict[str, Callable[[Mapping[str, Any]], str | None]]] = {
    "pow": _power,
    "sub": _difference,
    "rsub": _difference,
    "bucketize": _buckets,
    "masked_scatter": _scattered,
}
