"""Inputs for a region alone, where none could be made for the whole model.

Input: the region's nodes as a model, and the declared sizes of what they read. Output: values of a call that stock ONNX
Runtime takes, and of the same call at other sizes. Invariant: contents follow the rules of the ops that read them, as
those of a whole model do; a region that takes none of them is told with stock's reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.check.bindings import bindings
from smelt.check.inputs import ATTEMPTS, fill, make_recipes
from smelt.check.judge import Judge, short
from smelt.ir.proto import load_file

Array = np.ndarray[Any, Any]


class NoInputsError(Exception):
    """Stock ONNX Runtime takes none of the inputs that can be made."""


def region_calls(region: Mapping[str, Any], judge: Judge) -> Iterator[tuple[str, dict[str, Any]]]:
    """Sizes in words (none for the first call), and the values of the region's inputs and outputs by name."""
    feeds, stock = _first(region, judge)
    yield "", _values(region, feeds, stock)
    for binding in bindings(dict(zip(feeds, region["plain_dims"], strict=True)), feeds):
        judge.announce()
        try:
            stock = judge.stock(binding.feeds)
        except Exception:  # noqa: S112  sizes that the nodes do not take
            continue
        yield str(binding), _values(region, binding.feeds, stock)


def _first(region: Mapping[str, Any], judge: Judge) -> tuple[dict[str, Array], list[Any]]:
    model = load_file(judge.path)
    for value, dims in zip(model.graph.inputs, region["plain_dims"], strict=True):
        value.shape = None if dims is None else ir.Shape(dims)
    reason = "their types cannot be made"
    for attempt in range(ATTEMPTS):
        recipes = make_recipes(model, "small", attempt)
        if recipes is None:
            continue
        feeds = fill(recipes)
        try:
            return feeds, judge.stock(feeds)
        except Exception as error:
            reason = short(error)
    raise NoInputsError(reason)


def _values(region: Mapping[str, Any], feeds: Mapping[str, Array], stock: list[Any]) -> dict[str, Any]:
    given = dict(zip(region["plain_inputs"], feeds.values(), strict=True))
    return {**given, **dict(zip(region["outputs"], stock, strict=True))}
