"""Arrays made from recipes.

Input: a `Recipe` per input, as the process that knows the model made it. Output: arrays. Invariant: recipes and a seed
give the same arrays everywhere. Needs numpy alone for the usual types: a process that only runs models starts in a
third of the time that one with an IR takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

Array = np.ndarray[Any, Any]

_NUMPY: Final = {
    "FLOAT": "float32", "FLOAT16": "float16", "DOUBLE": "float64", "BOOL": "bool", "INT8": "int8", "INT16": "int16",
    "INT32": "int32", "INT64": "int64", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip
Kind = Literal["normal", "uniform", "integers", "mask", "bool", "text", "values"]


@dataclass(frozen=True)
class Recipe:
    """How the contents of one input are made.

    `numbers` are the scale of normal contents, the bounds of uniform ones and of integers (the upper one excluded), the
    share of ones in masks and booleans, or the values themselves.
    """

    dtype: str
    shape: tuple[int, ...]
    kind: Kind
    numbers: tuple[float, ...] = ()

    def plain(self) -> list[Any]:
        """As JSON has it."""
        return [self.dtype, list(self.shape), self.kind, list(self.numbers)]

    @classmethod
    def read(cls, plain: Sequence[Any]) -> Recipe:
        dtype, shape, kind, numbers = plain
        return cls(str(dtype), tuple(map(int, shape)), kind, tuple(numbers))


def fill(recipes: Mapping[str, Recipe], seed: int = 0) -> dict[str, Array]:
    """The arrays of recipes."""
    return {
        name: _filled(recipe, np.random.default_rng([seed, place]))
        for place, (name, recipe) in enumerate(recipes.items())
    }


def _filled(recipe: Recipe, rng: np.random.Generator) -> Array:
    shape, numbers = recipe.shape, recipe.numbers
    if recipe.kind == "text":
        return np.full(shape, "a", dtype=object)
    if recipe.kind == "normal":
        made = rng.standard_normal(shape, np.float32) * np.float32(numbers[0])
    elif recipe.kind == "uniform":
        made = rng.uniform(numbers[0], numbers[1], shape)
    elif recipe.kind == "integers":
        made = rng.integers(int(numbers[0]), int(numbers[1]), shape)
    elif recipe.kind == "values":
        made = np.resize(np.array(numbers), shape)
    else:
        made = rng.random(shape) < numbers[0]
        if recipe.kind == "mask" and made.ndim and made.shape[-1]:
            made[..., 0] = True  # no row is empty
    return np.asarray(made).astype(_numpy_type(recipe.dtype))


def _numpy_type(name: str) -> np.dtype[Any]:
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    import onnx_ir as ir

    return np.dtype(ir.DataType[name].numpy())
