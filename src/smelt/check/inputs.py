"""Inputs for a model that nobody gave inputs for.

Input: a model, a size class and an attempt number. Output: arrays by name, or None when an input's type cannot be made.
Invariant: the same model, size and attempt give the same arrays; indices stay within the tables that they look up where
those can be found; later attempts try other sizes and tamer contents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np
import onnx_ir as ir

from smelt.check.shape_inputs import shape_like
from smelt.ir.weights import is_weight

Array = np.ndarray[Any, Any]
Size = Literal["small", "real"]

_CARRY: Final = frozenset(
    ("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice", "Expand", "Concat", "Tile",
     "Split", "Clip", "Gather", "Add", "Where", "Abs", "Relu")
)  # fmt: skip
_LOOKUPS: Final = {"Gather": 1, "GatherElements": 1, "EmbedLayerNormalization": 0, "ScatterElements": 1}
_MAX_WALK: Final = 400
MAX_ELEMENTS: Final = 1 << 24
MAX_WEIGHT_ELEMENTS: Final = 1 << 29  # a weight's size is the model's own, not a guess


@dataclass(frozen=True)
class _Attempt:
    """Sizes of free dims (first axis, others, image sides), the contents of free integers, and whether integers that
    shape other tensors are chosen by what reads them."""

    batch: int
    length: int
    side: int
    integers: Literal["varied", "small", "ones", "zeros"]
    shapes: bool = False


# Odd sizes first: they reach the tails of vector loops. Then round ones, for models that divide or want equal sizes.
_SMALL: Final = (
    _Attempt(2, 17, 64, "varied", shapes=True),
    _Attempt(2, 17, 224, "small", shapes=True),
    _Attempt(1, 16, 32, "ones"),
    _Attempt(4, 4, 16, "small"),
    _Attempt(1, 1, 8, "ones"),
    _Attempt(3, 128, 128, "zeros"),
)
_REAL: Final = (
    _Attempt(1, 128, 224, "varied", shapes=True),
    _Attempt(1, 128, 256, "small", shapes=True),
    _Attempt(1, 64, 128, "ones"),
    _Attempt(2, 17, 64, "small"),
    _Attempt(1, 1, 32, "ones"),
    _Attempt(1, 16, 64, "zeros"),
)
ATTEMPTS: Final = len(_SMALL)


def make_feeds(model: ir.Model, size: Size, attempt: int, seed: int = 0) -> dict[str, Array] | None:
    """One array per input; None where an input is no tensor, or attempts are used up."""
    if attempt >= ATTEMPTS:
        return None
    style = (_SMALL if size == "small" else _REAL)[attempt]
    rng = np.random.default_rng([seed, attempt])
    dims = _plain_dims(model, style)
    feeds: dict[str, Array] = {}
    for value in model.graph.inputs:
        if value.name is None or value.name in model.graph.initializers:
            continue
        if value.dtype is None or not isinstance(value.type, ir.TensorType):
            return None
        shape = _shape(value, style, dims)
        if int(np.prod(shape, dtype=np.float64)) > (MAX_WEIGHT_ELEMENTS if is_weight(value) else MAX_ELEMENTS):
            return None
        array = _contents(value, shape, style, rng)
        if array is None:
            return None
        feeds[value.name] = array
    return feeds


# sizes


def _plain_dims(model: ir.Model, style: _Attempt) -> dict[str, int]:
    """Sizes of the names that are no sums, by all inputs: a sum may stand before its terms."""
    dims: dict[str, int] = {}
    for value in model.graph.inputs:
        if value.name not in model.graph.initializers:
            _shape(value, style, dims)
    return {name: size for name, size in dims.items() if "+" not in name}


def _shape(value: ir.Value, style: _Attempt, dims: dict[str, int]) -> tuple[int, ...]:
    if value.shape is None:
        return (style.batch, style.length)
    image = len(value.shape) >= 4 and value.dtype is not None and value.dtype.is_floating_point()
    sizes: list[int] = []
    for axis, dim in enumerate(value.shape):
        if isinstance(dim, int):
            sizes.append(dim)
        else:
            default = style.side if image and axis >= 2 else style.length
            sizes.append(_free(dim.value or f"?{value.name}{axis}", axis, default, style, dims))
    return tuple(sizes)


def _free(name: str, axis: int, default: int, style: _Attempt, dims: dict[str, int]) -> int:
    if name not in dims:
        total = _sum(name, dims)
        lowered = name.lower()
        first = "batch" in lowered or (axis == 0 and not any(part in lowered for part in ("seq", "len", "token")))
        dims[name] = total if total is not None else style.batch if first else default
    return dims[name]


def _sum(name: str, dims: Mapping[str, int]) -> int | None:
    """`past + seq`, as exporters write the size of a concatenation."""
    parts = [part.strip() for part in name.split("+")]
    if len(parts) < 2:
        return None
    sizes = [int(part) if part.isdigit() else dims.get(part) for part in parts]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


# contents


def _contents(value: ir.Value, shape: tuple[int, ...], style: _Attempt, rng: np.random.Generator) -> Array | None:
    dtype = value.dtype
    assert dtype is not None
    if dtype == ir.DataType.BOOL:
        return np.asarray(rng.random(shape) < 0.75)
    if dtype == ir.DataType.STRING:
        return np.full(shape, "a", dtype=object)
    if dtype.is_floating_point():
        return np.asarray(rng.standard_normal(shape, np.float32) * _scale(value, shape)).astype(_numpy(dtype))
    if dtype.is_integer() and dtype.bitwidth >= 8:
        return np.asarray(_integers(value, shape, style, rng)).astype(dtype.numpy())
    return None


def _scale(value: ir.Value, shape: tuple[int, ...]) -> np.float32:
    """Weights as they are initialized: a product with them keeps the size of what it is applied to."""
    if not is_weight(value) or len(shape) < 2:
        return np.float32(1)
    return np.float32(min(shape[0], int(np.prod(shape[1:]))) ** -0.5)


def _numpy(dtype: ir.DataType) -> Any:
    return ml_dtypes.bfloat16 if dtype == ir.DataType.BFLOAT16 else dtype.numpy()


def _integers(value: ir.Value, shape: tuple[int, ...], style: _Attempt, rng: np.random.Generator) -> Array:
    meant = shape_like(value, int(np.prod(shape))) if style.shapes else None
    if meant is not None:
        return np.array(meant).reshape(shape)
    bound = index_bound(value)
    if re.search("mask", value.name or "", re.IGNORECASE):
        return _mask(shape, rng)
    if bound is not None:
        return rng.integers(0, bound, shape)
    if style.integers == "varied":
        signed = value.dtype is not None and value.dtype.is_signed()
        return rng.integers(-9 if signed else 0, 10, shape)
    if style.integers == "small":
        return rng.integers(0, 2, shape)
    return np.full(shape, int(style.integers == "ones"))


def _mask(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Ones with some zeros; the first element of each row stays, so that no row is empty."""
    mask = np.asarray(rng.random(shape) < 0.85).astype(np.int64)
    if mask.ndim and mask.shape[-1]:
        mask[..., 0] = 1
    return mask


def index_bound(value: ir.Value) -> int | None:
    """The size of the smallest table that the value, as it is or reshaped, looks up."""
    bounds = [bound for user, place in _users(value) if (bound := _table(user, place)) is not None]
    return min(bounds, default=None)


def _users(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    pending, seen = [value], {value}
    while pending and len(seen) < _MAX_WALK:
        for user, place in pending.pop().uses():
            yield user, place
            # The table of a Gather is data, not an index.
            carries = user.op_type in _CARRY and not (user.op_type == "Gather" and place == 1)
            for output in user.outputs if carries else ():
                if output not in seen:
                    seen.add(output)
                    pending.append(output)


def _table(user: ir.Node, place: int) -> int | None:
    if _LOOKUPS.get(user.op_type) != place:
        return None
    table = user.inputs[2 if user.op_type == "EmbedLayerNormalization" else 0]
    if table is None or table.shape is None or not len(table.shape):
        return None
    axis_attribute = user.attributes.get("axis")
    axis = axis_attribute.as_int() if axis_attribute is not None else 0
    size = table.shape[axis] if -len(table.shape) <= axis < len(table.shape) else None
    return size if isinstance(size, int) and size > 0 else None
