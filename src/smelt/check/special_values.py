"""NaN, infinities and large numbers among the inputs of a region.

Input: a region's nodes as a model, and values for its inputs. Output: the values with special ones among them, or
enlarged until every function is far in saturation; which outputs may be compared then. Invariant: an output counts only
where the answer is defined: what a float becomes as an integer (an activation of 8 bits too), the order that NaN takes
in a sort, the place that an infinite coordinate names are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.check.contract import Comparison, compare_all
from smelt.check.quantized import has_8bit_activations, quantizes

Array = np.ndarray[Any, Any]

SPECIAL_KIND: Final = "product"  # beside infinities, large values cancel
_COUNT: Final = 3
_FEW: Final = 8
_LARGE_POWER: Final = 20
_PARTS: Final = (0.0, 0.4, 0.7, 1.0)  # of the power that each quarter of a tensor is enlarged by
_UNDEFINED: Final = frozenset(
    ("TopK", "ArgMax", "ArgMin", "Hardmax", "NonMaxSuppression", "Unique", "Mod", "GridSample", "RoiAlign",
     "MaxRoiPool", "CropAndResize", "BitShift", "OneHot", "Range", "Multinomial", "Bernoulli")
)  # fmt: skip
# Stock ONNX Runtime drops NaN by its position in these, so that only the reference can tell.
DROPS_NAN: Final = frozenset(("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"))


def sprinkled(values: Mapping[str, Array]) -> dict[str, Array] | None:
    """The same values with a few NaN and infinities in every float tensor; None where there is none."""
    rng = np.random.default_rng(7)
    out: dict[str, Array] = {}
    changed = False
    for name, array in values.items():
        out[name] = array
        if array.dtype.kind == "f" and array.size:
            out[name] = array.copy()
            places = rng.integers(0, array.size, _COUNT)
            out[name].reshape(-1)[places] = np.array([np.nan, np.inf, -np.inf], array.dtype)
            changed = True
    return out if changed else None


def enlarged(values: Mapping[str, Array]) -> dict[str, Array] | None:
    """The same values with three quarters of every float tensor enlarged, up to a million; None where there is none.

    Factors are powers of two, which round nothing. A few numbers are left alone: they may be the scales of a Resize."""
    out = {name: _enlarged(array) for name, array in values.items()}
    return None if all(out[name] is array for name, array in values.items()) else out


def _enlarged(array: Array) -> Array:
    if array.dtype not in (np.float32, np.float64) or array.size <= _FEW:
        return array
    top = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
    power = np.floor(_LARGE_POWER - np.log2(top)) if top > 0 else 0.0
    if power <= 0:
        return array
    steps = np.arange(array.size) * len(_PARTS) // array.size
    return array * np.exp2(np.floor(np.array(_PARTS) * power))[steps].reshape(array.shape).astype(array.dtype)


def defined_outputs(model: ir.Model, *, finite: bool = False) -> list[int]:
    """The places of the outputs whose answer to special values is defined; to large numbers, if `finite`."""
    undefined: set[ir.Value] = set()
    for node in model.graph:
        own = _is_undefined(node) or (has_8bit_activations(node) and not finite)
        if own or any(value in undefined for value in node.inputs):
            undefined.update(node.outputs)
    return [
        place
        for place, value in enumerate(model.graph.outputs)
        if value not in undefined and (value.dtype is None or value.dtype.is_floating_point())
    ]


def _is_undefined(node: ir.Node) -> bool:
    if not any(v is not None and (v.dtype is None or v.dtype.is_floating_point()) for v in node.inputs):
        return False
    if node.op_type in ("Cast", "CastLike"):
        made = node.outputs[0].dtype
        to = node.attributes.get("to")
        made = ir.DataType(to.as_int()) if to is not None else made
        return made is None or (made.is_integer() and made != ir.DataType.BOOL)
    # The scale of a DequantizeLinear is a float too, and never special where it is constant.
    return node.op_type in _UNDEFINED or quantizes([node.op_type])


def compare_special(
    results: Sequence[Any],
    reference: Sequence[Any],
    stock: Sequence[Any] | None,
    places: Sequence[int],
    share: float = 1.0,
    rounded: Sequence[str] = (),
) -> Comparison:
    """Beside infinities, large values cancel, so the bound is that of products, times `share`: what no special value
    reaches may be off by as much as it is without them."""
    yardstick = None if stock is None else [stock[i] for i in places]
    found = compare_all(
        [results[i] for i in places], [reference[i] for i in places], yardstick, SPECIAL_KIND, steps=True, share=share,
        rounded=[rounded[i] for i in places] if rounded else (),
    )  # fmt: skip
    return replace(found, failing=tuple(places[place] for place in found.failing))


def overflows(results: Sequence[Any], stock: Sequence[Any], places: Sequence[int]) -> list[tuple[int, Array]]:
    """The outputs that are NaN or infinite where stock ONNX Runtime's are not, and where."""
    found: list[tuple[int, Array]] = []
    for place in places:
        mine, theirs = np.asarray(results[place]), np.asarray(stock[place])
        if mine.shape == theirs.shape and mine.dtype.kind == "f":
            found.append((place, ~np.isfinite(mine) & np.isfinite(theirs)))
    return [(place, where) for place, where in found if where.any()]
