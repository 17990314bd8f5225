"""Inputs for a model that nobody gave inputs for.

Input: a model, a size class, an attempt number and shapes that are known. Output: a `Recipe` per input; None when an
input's type cannot be made. Invariant: indices stay within the tables that they look up where those can be found; later
attempts try other sizes and tamer contents. Where a tracer saw integers that decide sizes, the first attempt has the
sizes of its example, and the others the values of those integers that their sizes tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, Literal

import numpy as np
import onnx_ir as ir

from smelt.check.axis_sizes import known_sizes
from smelt.check.bindings import evaluate_size, names_of
from smelt.check.recipes import Kind, Recipe, fill
from smelt.check.shape_inputs import shape_like
from smelt.ir.traced import traced_shape, traced_size
from smelt.ir.weights import is_weight

Array = np.ndarray[Any, Any]
Size = Literal["small", "real"]
Shapes = Mapping[str, Sequence[int]]
SizesOf = Callable[[ir.Value], Sequence[int | None]]

_CARRY: Final = frozenset(
    ("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice", "Expand", "Concat", "Tile",
     "Split", "Clip", "Gather", "Add", "Where", "Abs", "Relu")
)  # fmt: skip
# Where an op takes indices, and where the table that they look up stands.
_LOOKUPS: Final = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("ScatterElements", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("RotaryEmbedding", 1): 2,
}
_POSITIVE: Final = frozenset(("Sqrt", "Log", "Reciprocal", "Rsqrt"))
_RATES: Final = re.compile(r"(^|_)(sr|sampling_?rate|sample_?rate)$", re.IGNORECASE)
_MAX_WALK: Final = 400
MAX_ELEMENTS: Final = 1 << 24
MAX_WEIGHT_ELEMENTS: Final = 1 << 29  # a weight's size is the model's own, not a guess
_LARGE_ITEM: Final = 1 << 17  # elements of one item of a batch, such as 9 s of sound: one is enough for a first call


@dataclass(frozen=True)
class _Attempt:
    """Sizes of free dims (first axis, others, image sides), the contents of free integers, whether integers that shape
    other tensors are chosen by what reads them, whether masks leave anything out, whether the free axis of
    `[2, ?, 128]` is that of the batch, as it is in the states of recurrent networks, and whether one name is one size:
    some files give one name to axes that differ."""

    batch: int
    length: int
    side: int
    integers: Literal["varied", "small", "ones", "zeros"]
    shapes: bool = False
    full_masks: bool = False
    states: bool = False
    named: bool = True


_SOUND: Final = 16000  # samples: a second
# Round sizes, for models that divide or want equal sizes, and the lengths of sound.
_LAST: Final = (
    _Attempt(1, 512, 256, "small", shapes=True, full_masks=True, states=True),
    _Attempt(1, 576, 320, "small", shapes=True, full_masks=True, states=True),
    _Attempt(1, 288, 192, "small", shapes=True, full_masks=True, states=True),
    _Attempt(1, _SOUND, 112, "small", shapes=True, full_masks=True),
    _Attempt(2, 2, 640, "ones", shapes=True, full_masks=True),
    _Attempt(2, 17, 64, "small", shapes=True, full_masks=True, named=False),
)
# Odd sizes first: they reach the tails of vector loops.
_SMALL: Final = (
    _Attempt(2, 17, 64, "varied", shapes=True),
    _Attempt(2, 17, 224, "small", shapes=True, full_masks=True, states=True),
    _Attempt(1, 16, 32, "ones", full_masks=True),
    _Attempt(4, 4, 16, "small"),
    _Attempt(1, 1, 8, "ones", full_masks=True),
    _Attempt(3, 128, 128, "zeros"),
    *_LAST,
)
_REAL: Final = (
    _Attempt(1, 128, 224, "varied", shapes=True, full_masks=True),
    _Attempt(1, 128, 256, "small", shapes=True, full_masks=True, states=True),
    _Attempt(1, 64, 128, "ones", full_masks=True),
    _Attempt(2, 17, 64, "small"),
    _Attempt(1, 1, 32, "ones", full_masks=True),
    _Attempt(1, 16, 64, "zeros"),
    *_LAST,
)
ATTEMPTS: Final = len(_SMALL)


def make_feeds(
    model: ir.Model, size: Size, attempt: int, seed: int = 0, shapes: Shapes | None = None
) -> dict[str, Array] | None:
    """One array per input; None where an input is no tensor, or attempts are used up."""
    made = make_recipes(model, size, attempt, shapes)
    return None if made is None else fill(made, seed)


def make_recipes(model: ir.Model, size: Size, attempt: int, shapes: Shapes | None = None) -> dict[str, Recipe] | None:
    """One recipe per input; `shapes` of some inputs are given."""
    if attempt >= ATTEMPTS:
        return None
    style = (_SMALL if size == "small" else _REAL)[attempt]
    inputs = [v for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]
    as_traced = attempt == 0 and not shapes
    shapes = (_example(inputs) if as_traced else shapes) or {}
    sizes = _Sizes(inputs, style, shapes, as_traced)
    if size == "small" and _is_batch_of_large_items(inputs, sizes, style):
        style = replace(style, batch=1)
        sizes = _Sizes(inputs, style, shapes, as_traced)
    if style.length == _SOUND and not all(_may_be_sound(value, sizes.shape(value)) for value in inputs):
        return None
    recipes: dict[str, Recipe] = {}
    for value in inputs:
        if value.dtype is None or not isinstance(value.type, ir.TensorType):
            return None
        shape = sizes.shape(value)
        if int(np.prod(shape, dtype=np.float64)) > (MAX_WEIGHT_ELEMENTS if is_weight(value) else MAX_ELEMENTS):
            return None
        recipe = _recipe(value, shape, style, sizes)
        if recipe is None:
            return None
        recipes[value.name or ""] = recipe
    return recipes


def _example(inputs: Sequence[ir.Value]) -> dict[str, tuple[int, ...]]:
    """Shapes of a tracer's example, where integers of it decide sizes: what fits them may be told nowhere else."""
    if not any(traced_size(value) for value in inputs):
        return {}
    seen = ((value.name or "", traced_shape(value)) for value in inputs)
    return {name: shape for name, shape in seen if shape is not None}


def _may_be_sound(value: ir.Value, shape: tuple[int, ...]) -> bool:
    """Whether an axis of that many samples is one of samples. So many tokens, or rows of features, would be the rows of
    an attention, which takes all memory."""
    if _SOUND not in shape or is_weight(value):
        return True
    behind = shape[shape.index(_SOUND) + 1 :]
    return value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT16) and prod(behind) == 1


def _is_batch_of_large_items(inputs: Sequence[ir.Value], sizes: _Sizes, style: _Attempt) -> bool:
    """Whether the batch alone is free, and each item of it is large by the sizes that the file tells."""
    dims = [(f"?{v.name}{axis}", dim) for v in inputs for axis, dim in enumerate(v.shape or ())]
    free = {("" if isinstance(dim, int) else dim.value) or own for own, dim in dims if not _is_fixed(dim)}
    is_batch = len(free) == 1 and sizes.known.get(*free) == style.batch > 1
    return is_batch and sum(prod(sizes.shape(v)) for v in inputs if not is_weight(v)) > style.batch * _LARGE_ITEM


def _is_fixed(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, int) and dim >= 0


def every_attempt(
    model: ir.Model, size: Size, given: Mapping[str, Any], shapes: Shapes
) -> list[dict[str, list[Any]] | None]:
    """For each attempt the plain recipes of the inputs that are not given; None where they cannot be made. Empty where
    all are given."""
    inputs = [v.name for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]
    if all(name in given for name in inputs):
        return []
    known = {**shapes, **{name: np.shape(array) for name, array in given.items()}}
    every = (make_recipes(model, size, attempt, known) for attempt in range(ATTEMPTS))
    return [None if made is None else {n: r.plain() for n, r in made.items() if n not in given} for made in every]


# sizes


class _Sizes:
    """The size of every free axis. One name is one size; a name that is a sum of others is their sum. `as_traced`:
    integers are those of a tracer's example."""

    def __init__(self, inputs: Sequence[ir.Value], style: _Attempt, shapes: Shapes, as_traced: bool) -> None:
        self.style = style
        self.as_traced = as_traced
        self.given = shapes
        self.known: dict[str, int] = {}
        for value in inputs:
            for dim, size in zip(value.shape or (), shapes.get(value.name or "", ()), strict=False):
                if not isinstance(dim, int) and dim.value:
                    self.known.setdefault(dim.value, size)
        for name, example in filter(None, map(traced_size, inputs)):
            if name.isidentifier():
                self.known.setdefault(name, example)
        for value in inputs:  # a sum may stand before its terms
            self.shape(value)
        for term in [term for name in list(self.known) for term in names_of(name)]:  # which may be no axis
            self._free(term, False, self.style.length, False)
        plain = {name: size for name, size in self.known.items() if evaluate_size(name, self.known) is None}
        self.known = {**plain, **_totals(plain)}

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        given = self.given.get(value.name or "")
        if given is not None:
            return tuple(given)
        hints = known_sizes(value)
        if value.shape is None:
            rank = max(hints, default=1) + 1
            return tuple(hints.get(axis, self.style.batch if axis == 0 else self.style.length) for axis in range(rank))
        image = len(value.shape) >= 4 and value.dtype is not None and value.dtype.is_floating_point()
        sizes: list[int] = []
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int) and dim >= 0:
                sizes.append(dim)
                continue
            name = ("" if isinstance(dim, int) else dim.value) or f"?{value.name}{axis}"
            if not self.style.named and axis in hints:
                name = f"{name}?{value.name}{axis}"
            default = hints.get(axis, self.style.side if image and axis >= 2 else self.style.length)
            first = axis == 0 or (self.style.states and axis == 1 and _is_state(value.shape))
            sizes.append(self._free(name, first, default, axis in hints))
        return tuple(sizes)

    def traced(self, value: ir.Value) -> int | None:
        """The value of an integer that a tracer saw: what the sizes tell, else that of the example."""
        seen = traced_size(value)
        if seen is None:
            return None
        formula, example = seen
        found = None if self.as_traced else self.known.get(formula, evaluate_size(formula, self.known))
        return example if found is None else found

    def of(self, value: ir.Value) -> list[int | None]:
        """The sizes of any value of the graph, as far as names tell."""
        dims = value.shape if value.shape is not None else ()
        return [dim if isinstance(dim, int) else self.known.get(dim.value or "") for dim in dims]

    def _free(self, name: str, first: bool, default: int, hinted: bool) -> int:
        if name not in self.known:
            total = evaluate_size(name, self.known)
            lowered = name.lower()
            first = "batch" in lowered or (first and not any(part in lowered for part in ("seq", "len", "token")))
            self.known[name] = total if total is not None else self.style.batch if first and not hinted else default
        return self.known[name]


def _is_state(shape: ir.Shape) -> bool:
    """Layers, batch, units: only the batch is free."""
    return len(shape) == 3 and isinstance(shape[0], int) and isinstance(shape[2], int)


def _totals(known: Mapping[str, int]) -> dict[str, int]:
    """`total_sequence_length` beside `past_sequence_length` and `sequence_length` is their sum."""
    past = next((size for name, size in known.items() if "past" in name.lower()), None)
    new = next((n for name, n in known.items() if re.search("seq|len", name.lower()) and "past" not in name.lower()
                and "total" not in name.lower()), None)  # fmt: skip
    if past is None or new is None:
        return {}
    return {name: past + new for name in known if "total" in name.lower()}


# contents


def _recipe(value: ir.Value, shape: tuple[int, ...], style: _Attempt, sizes: _Sizes) -> Recipe | None:
    dtype = value.dtype
    assert dtype is not None
    if dtype == ir.DataType.BOOL:
        return Recipe(dtype.name, shape, "bool", (1.0 if style.full_masks else 0.75,))
    if dtype == ir.DataType.STRING:
        return Recipe(dtype.name, shape, "text")
    if dtype.is_floating_point() and dtype.bitwidth >= 16:
        if any(user.op_type in _POSITIVE for user, _ in value.uses()):
            return Recipe(dtype.name, shape, "uniform", (0.25, 2.0))
        return Recipe(dtype.name, shape, "normal", (_scale(value, shape),))
    if dtype.is_integer() and dtype.bitwidth >= 8:
        kind, numbers = _integers(value, shape, style, sizes)
        return Recipe(dtype.name, shape, kind, numbers)
    return None


def _scale(value: ir.Value, shape: tuple[int, ...]) -> float:
    """Weights as they are initialized: a product with them keeps the size of what it is applied to."""
    if not is_weight(value) or len(shape) < 2:
        return 1.0
    return float(min(shape[0], int(np.prod(shape[1:]))) ** -0.5)


def _integers(
    value: ir.Value, shape: tuple[int, ...], style: _Attempt, sizes: _Sizes
) -> tuple[Kind, tuple[float, ...]]:
    traced = sizes.traced(value)
    if traced is not None:
        return "values", (traced,)
    count = int(np.prod(shape))
    meant = shape_like(value, count, sizes.of) if style.shapes else None
    if meant is not None:
        return "values", tuple(meant)
    if _RATES.search(value.name or ""):
        return "values", (_SOUND,)
    if re.search("mask", value.name or "", re.IGNORECASE):
        return "mask", (1.0 if style.full_masks else 0.85,)
    bound = index_bound(value, sizes.of)
    if bound is not None:
        return "integers", (0, bound)
    if any(user.op_type in ("Div", "Mod") and place == 1 for user, place in value.uses()):
        return "integers", (1, 10)
    if style.integers == "varied":
        signed = value.dtype is not None and value.dtype.is_signed()
        return "integers", (-9 if signed else 0, 10)
    if style.integers == "small":
        return "integers", (0, 2)
    return "values", (int(style.integers == "ones"),)


def index_bound(value: ir.Value, sizes: SizesOf | None = None) -> int | None:
    """The size of the smallest table that the value, as it is or reshaped, looks up."""
    bounds = [bound for user, place in _users(value) if (bound := _table(user, place, sizes)) is not None]
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


def _table(user: ir.Node, place: int, sizes: SizesOf | None) -> int | None:
    where = _LOOKUPS.get((user.op_type, place))
    if where is None or where >= len(user.inputs):
        return None
    table = user.inputs[where]
    if table is None or table.shape is None or not len(table.shape):
        return None
    axis_attribute = user.attributes.get("axis")
    axis = axis_attribute.as_int() if axis_attribute is not None else 0
    if not -len(table.shape) <= axis < len(table.shape):
        return None
    size = table.shape[axis] if sizes is None else sizes(table)[axis]
    return size if isinstance(size, int) and size > 0 else None
