"""Element types of torch and of ONNX, and torch's promotion.

Input: torch dtypes, ONNX dtypes, ranks. Output: the other side's type; the common type of operands. Invariant: as
`torch.result_type`: a category (bool, integer, float) of dimensioned tensors wins over that of 0-d tensors, which wins
over that of Python numbers, unless the lower one is of a higher category.
"""

from __future__ import annotations

from typing import Any, Final

import onnx_ir as ir
import torch

from smelt.base.dtype import BY_TORCH
from smelt.export.records import Refused

_PAIRS: Final[dict[torch.dtype, ir.DataType]] = {
    getattr(torch, name): ir.DataType(dtype.onnx) for name, dtype in BY_TORCH.items()
}
_BACK: Final = {onnx: dtype for dtype, onnx in _PAIRS.items()}
_DEFAULT_OF_CATEGORY: Final = (torch.bool, torch.int64, torch.float32, torch.complex64)

BOOL, INT64, FLOAT, DOUBLE = ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE


def to_onnx(dtype: torch.dtype) -> ir.DataType:
    found = _PAIRS.get(dtype)
    if found is None:
        raise Refused(f"ONNX has no element type for {dtype}")
    return found


def to_torch(dtype: ir.DataType | None) -> torch.dtype:
    if dtype is None or dtype not in _BACK:
        raise Refused(f"torch has no dtype for {dtype}")
    return _BACK[dtype]


def is_float(dtype: ir.DataType | None) -> bool:
    return dtype is not None and to_torch(dtype).is_floating_point


def is_integer(dtype: ir.DataType | None) -> bool:
    """Integers without bool."""
    return dtype is not None and dtype != BOOL and _category(to_torch(dtype)) == 1


def _category(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return 0
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else 1


def _of_number(number: Any) -> torch.dtype:
    if isinstance(number, bool) or getattr(number, "is_Boolean", False):
        return torch.bool
    if isinstance(number, int) or getattr(number, "is_integer", False):
        return torch.int64
    return torch.complex64 if isinstance(number, complex) else torch.get_default_dtype()


def promote(*operands: Any) -> ir.DataType:
    """The common type of tensors (`ir.Value`) and numbers (Python's or symbolic)."""
    levels: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        tensor = isinstance(operand, ir.Value)
        level = 2 if not tensor else (0 if _rank(operand) else 1)
        dtype = to_torch(operand.dtype) if tensor else _of_number(operand)
        known = levels[level]
        levels[level] = dtype if known is None else torch.promote_types(known, dtype)
    result: torch.dtype | None = None
    for level, dtype in enumerate(levels):
        if dtype is None:
            continue
        if result is None:
            result = _number_default(dtype) if level == 2 else dtype
        elif _category(dtype) > _category(result):
            result = _lifted(result, dtype, level)
    return to_onnx(result if result is not None else torch.float32)


def _number_default(dtype: torch.dtype) -> torch.dtype:
    return torch.get_default_dtype() if dtype.is_floating_point else dtype


def _lifted(low: torch.dtype, high: torch.dtype, level: int) -> torch.dtype:
    """A lower level of a higher category decides the category; numbers bring its default type."""
    if high.is_complex and low.is_floating_point:
        return torch.complex128 if low == torch.float64 else torch.complex64
    return _number_default(high) if level == 2 else high


def _rank(value: ir.Value) -> int:
    if value.shape is None:
        raise Refused(f"the rank of {value.name} is not known")
    return len(value.shape)
