"""Inputs for a region alone, where none could be made for the whole model.

Input: the region's nodes as a model, and the sizes of what they and the kernel read, as far as they are known. Output:
values of a call that stock ONNX Runtime takes, and of calls at other sizes. Invariant: contents follow the rules of the
ops that read them, as those of a whole model do, and sizes that follow from others do so here, as do integers that
follow from sizes; a region that takes none
of them is told with stock's reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.check.bindings import APART, bindings, consistent, names_of
from smelt.check.events import short
from smelt.check.inputs import ATTEMPTS, make_recipes
from smelt.check.judge import Judge
from smelt.check.recipes import fill
from smelt.ir.proto import load_file

Array = np.ndarray[Any, Any]
_OTHER_ATTEMPTS: Final = 3  # that are compared too, where sizes are formulas


class NoInputsError(Exception):
    """Stock ONNX Runtime takes none of the inputs that can be made."""


def region_calls(region: Mapping[str, Any], judge: Judge) -> Iterator[tuple[str, dict[str, Any]]]:
    """Sizes in words (none for the first call), and the values of the region's inputs and outputs by name."""
    calls = _attempts(region, judge)
    feeds, values = next(calls)
    yield "", values
    dims = dict(zip(feeds, region["plain_dims"], strict=True))
    if region["carriers"] or any(isinstance(dim, str) and names_of(dim) for one in dims.values() for dim in one or ()):
        for _, (feeds, values) in zip(range(_OTHER_ATTEMPTS), calls, strict=False):
            yield ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items()), values
        return
    # One name is one size here: what feeds a region follows from the inputs of the whole model.
    for binding in (one for one in bindings(dims, feeds) if one.label != APART):
        judge.announce()
        feeds = consistent(dims, region["contents"], binding.feeds)
        try:
            stock = judge.stock(feeds)
        except Exception:  # noqa: S112  sizes that the nodes do not take
            continue
        yield str(binding), _values(region, feeds, {}, stock)


def _attempts(region: Mapping[str, Any], judge: Judge) -> Iterator[tuple[dict[str, Array], dict[str, Any]]]:
    """What stock ONNX Runtime takes; raises NoInputsError where that is nothing."""
    model = load_file(judge.path)
    for value, dims in zip(model.graph.inputs, region["plain_dims"], strict=True):
        value.shape = None if dims is None else ir.Shape(dims)
    names = [value.name or "" for value in model.graph.inputs]
    for name, (dtype, dims) in region["carriers"].items():  # the kernel reads their sizes, the nodes nothing
        model.graph.inputs.append(ir.Value(name=name, type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(dims)))
    reason, taken = "their types cannot be made", False
    for attempt in range(ATTEMPTS):
        recipes = make_recipes(model, "small", attempt)
        if recipes is None:
            continue
        made = fill(recipes)
        if region["contents"]:
            dims = {value.name or "": _dims(value) for value in model.graph.inputs}
            made = consistent(dims, region["contents"], made)
        feeds = {name: made.pop(name) for name in names}
        try:
            stock = judge.stock(feeds)
        except Exception as error:
            reason = short(error)
            continue
        taken = True
        yield feeds, _values(region, feeds, made, stock)
    if not taken:
        raise NoInputsError(reason)


def _dims(value: ir.Value) -> list[int | str | None] | None:
    return None if value.shape is None else [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def _values(
    region: Mapping[str, Any], feeds: Mapping[str, Array], carriers: Mapping[str, Array], stock: list[Any]
) -> dict[str, Any]:
    given = dict(zip(region["plain_inputs"], feeds.values(), strict=True))
    return {**given, **carriers, **dict(zip(region["outputs"], stock, strict=True))}
