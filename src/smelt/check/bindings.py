"""Sizes to try a model at, besides those of the first call.

Input: the model's inputs as they are declared, and the feeds of a call that stock ONNX Runtime takes. Output: feeds of
the same contents at other sizes, a bounded number. Invariant: axes that carry one name have one size, and a name that
is a sum or a product of others follows them, as an integer does that is such a size; contents are repeated or cut along
the axes that change, so that indices stay within their tables.

    each size 1 alone; all 1; all equal; all but the first doubled; all different; the first 0; all 0; and once axes of
    one name with sizes of their own, which a model takes when the name was only a hint
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Dims = Sequence[int | str | None]
"""Sizes of axes; the text of an integer that is itself a size: its name or formula."""

Place = tuple[str, int | None]
"""An input and its axis, or None where its value is the size."""

APART: Final = "apart"  # the label of a binding where axes of one name have sizes of their own
_TOLD_ALONE: Final = 3  # a size that only the contents of an integer tell
_ALONE: Final = 4  # sizes that are 1 one at a time
_FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "max": lambda a, b: max(a, b),
    "min": lambda a, b: min(a, b),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}
_MAX_GROWTH: Final = 4  # times as many elements as the first call has, at most


@dataclass(frozen=True)
class Binding:
    """`sizes` are those of the free axes, by name."""

    label: str
    sizes: Mapping[str, int]
    feeds: Mapping[str, Array]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.sizes.items()) or self.label


def bindings(inputs: Mapping[str, Dims | None], feeds: Mapping[str, Array]) -> Iterator[Binding]:
    """Other sizes than those of `feeds`."""
    axes = _named_axes(inputs, feeds)
    base = {name: _size_at(feeds, places[0]) for name, places in axes.items()}
    free = list(free_sizes(inputs, feeds))
    seen = {tuple(base.items())}
    elements = sum(array.size for array in feeds.values())
    with_axes = [name for name in free if any(axis is not None for _, axis in axes[name])]
    for label, chosen in _choices({name: base[name] for name in free}, with_axes):
        sizes = _followed({**base, **chosen}, free)
        if tuple(sizes.items()) in seen:
            continue
        seen.add(tuple(sizes.items()))
        made = {name: _resized(array, name, axes, sizes) for name, array in feeds.items()}
        if sum(array.size for array in made.values()) <= _MAX_GROWTH * elements + 4096:
            yield Binding(label, sizes, made)
    yield from _apart(axes, feeds)


def free_sizes(inputs: Mapping[str, Dims | None], feeds: Mapping[str, Array]) -> dict[str, int]:
    """The free sizes of a call by name, those that follow from others left out."""
    axes = _named_axes(inputs, feeds)
    base = {name: _size_at(feeds, places[0]) for name, places in axes.items()}
    plain = {name: size for name, size in base.items() if _parsed(name) is None}
    return {name: size for name, size in base.items() if name in plain or evaluate_size(name, plain) != size}


def resized(
    inputs: Mapping[str, Dims | None], feeds: Mapping[str, Array], changed: Mapping[str, int]
) -> dict[str, Array]:
    """The same contents at other sizes."""
    axes = _named_axes(inputs, feeds)
    base = {name: _size_at(feeds, places[0]) for name, places in axes.items()}
    sizes = _followed({**base, **changed}, list(free_sizes(inputs, feeds)))
    return {name: _resized(array, name, axes, sizes) for name, array in feeds.items()}


def consistent(
    inputs: Mapping[str, Dims | None], contents: Mapping[str, Sequence[int | str]], feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """The same call, where integers that follow from sizes are those sizes, and sizes that follow from such integers
    follow. Contents that are no formula of sizes stay."""
    axes = _named_axes(inputs, feeds)
    base = {name: _size_at(feeds, places[0]) for name, places in axes.items()}
    texts = [text for one in contents.values() for text in one if isinstance(text, str)]
    plain = {name: _TOLD_ALONE for text in texts for name in names_of(text) or (text,)}
    plain.update({name: size for name, size in base.items() if _parsed(name) is None})
    sizes = {name: plain.get(name) or evaluate_size(name, plain) or size for name, size in base.items()}
    made = {name: _resized(array, name, axes, sizes) for name, array in feeds.items()}
    return {name: _holding(array, contents.get(name, ()), plain) for name, array in made.items()}


def _holding(array: Array, contents: Sequence[int | str], sizes: Mapping[str, int]) -> Array:
    found = [one if isinstance(one, int) else sizes.get(one, evaluate_size(one, sizes)) for one in contents]
    if not found or len(found) != array.size or any(one is None for one in found):
        return array
    return np.array(found, array.dtype).reshape(array.shape)


def free_axes(inputs: Mapping[str, Dims | None], feeds: Mapping[str, Array]) -> list[tuple[str, int]]:
    """Inputs and axes whose sizes the model does not tell."""
    places = (place for places in _named_axes(inputs, feeds).values() for place in places)
    return [(name, axis) for name, axis in places if axis is not None]


def _apart(axes: Mapping[str, list[Place]], feeds: Mapping[str, Array]) -> Iterator[Binding]:
    """Every axis of a name that stands more than once has a size of its own."""
    on_axes = {name: [place for place in places if place[1] is not None] for name, places in axes.items()}
    shared = {name: places for name, places in on_axes.items() if len(places) > 1}
    own = {f"{name} of {of}[{axis}]": [(of, axis)] for name, places in shared.items() for of, axis in places}
    later = {at: place for places in shared.values() for place, at in enumerate(places)}
    sizes = {name: _size_at(feeds, at) + later[at] for name, (at,) in own.items()}
    if sizes:
        yield Binding(APART, sizes, {name: _resized(array, name, own, sizes) for name, array in feeds.items()})


def _choices(base: Mapping[str, int], with_axes: Sequence[str]) -> Iterator[tuple[str, dict[str, int]]]:
    """An integer that no axis shows is never 0: it may divide."""
    names = list(base)
    if not names:
        return
    for name in names[:_ALONE] if len(names) > 1 else ():
        yield f"{name} 1", {name: 1}
    yield "all 1", dict.fromkeys(names, 1)
    if len(names) > 1:
        equal = max(2, min(base.values()))
        yield "all equal", dict.fromkeys(names, equal)
        # Image sides and lengths that must be multiples of something stay so.
        yield "doubled", {name: 2 * base[name] for name in names[1:]}
    least = 2 if len(names) > 1 else 1  # sizes of 1 would meet those of others
    yield "all different", {name: max(base[name], least) + 1 + place for place, name in enumerate(names)}
    for name in with_axes[:1]:
        yield f"{name} 0", {name: 0}
    if len(with_axes) > 1:
        yield "all 0", dict.fromkeys(with_axes, 0)


def _named_axes(inputs: Mapping[str, Dims | None], feeds: Mapping[str, Array]) -> dict[str, list[Place]]:
    """Where each name of a size stands. An axis without a name has one of its own."""
    found: dict[str, list[Place]] = {}
    for name, dims in inputs.items():
        array = feeds.get(name)
        if array is None or dims is None or isinstance(dims, str) or len(dims) != array.ndim:
            continue
        for axis, dim in enumerate(dims):
            if isinstance(dim, int) and dim >= 0:
                continue
            found.setdefault(str(dim) if isinstance(dim, str) and dim else f"{name}[{axis}]", []).append((name, axis))
    for name, formula in inputs.items():
        if isinstance(formula, str) and name in feeds and feeds[name].ndim == 0:
            found.setdefault(formula, []).append((name, None))
    # Two axes of one name that differ in the call are no one size.
    return {name: places for name, places in found.items() if len({_size_at(feeds, place) for place in places}) == 1}


def _size_at(feeds: Mapping[str, Array], place: Place) -> int:
    name, axis = place
    return int(feeds[name]) if axis is None else feeds[name].shape[axis]


def _resized(array: Array, name: str, axes: Mapping[str, list[Place]], sizes: Mapping[str, int]) -> Array:
    for symbol, places in axes.items():
        for of, axis in places:
            if of != name:
                continue
            want = sizes[symbol]
            if axis is None:
                array = np.full_like(array, want)
                continue
            have = array.shape[axis]
            if have == want:
                continue
            if have == 0:  # nothing to repeat
                shape = (*array.shape[:axis], want, *array.shape[axis + 1 :])
                array = np.zeros(shape, array.dtype)
            else:
                array = np.take(array, np.arange(want) % have, axis=axis)
    return np.asarray(array, order="C")  # ascontiguousarray makes a scalar an array of one


def _followed(sizes: dict[str, int], free: Sequence[str]) -> dict[str, int]:
    known = {name: sizes[name] for name in free}
    out = dict(sizes)
    for name in sizes:
        if name not in known:
            value = evaluate_size(name, known)
            out[name] = sizes[name] if value is None else value
    return out


def evaluate_size(text: str, sizes: Mapping[str, int]) -> int | None:
    """`past + seq`, `2*s0`, `(s0 + 1)//2`, `floordiv(s0 + 1, 2)` with the sizes of its names; None where it is
    no such formula."""
    tree = _parsed(text)
    try:
        value = None if tree is None else _value(tree, sizes)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return value if value is not None and value >= 0 else None


def _parsed(text: str) -> ast.expr | None:
    """A formula over names; a plain name is none."""
    if len(text) > 200:
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, (ast.BinOp, ast.Call)) else None


def names_of(text: str) -> list[str]:
    """The names of a formula; none where it is none."""
    tree = _parsed(text)
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)] if tree is not None else []
    return list(dict.fromkeys(node.id for node in found if node not in called))


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Constant) and type(tree.value) is int and abs(tree.value) < 1 << 31:
        return tree.value
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.BinOp):
        left, right = _value(tree.left, sizes), _value(tree.right, sizes)
        match tree.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv() | ast.Div():
                return left // right
            case _:
                pass
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand, sizes)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _FUNCTIONS:
        return _FUNCTIONS[tree.func.id](*(_value(argument, sizes) for argument in tree.args))
    raise ValueError(ast.dump(tree)[:100])
