"""Wrappers that pass for what they wrap.

Input: a class of wrappers and the class of an object that one of them wraps. Output: a class for that wrapper.
Invariant: what the wrapper's class has not is found on the other one, as is the signature of its forward; methods of
the wrapped object that are called with the wrapper as `self` may use `super()`, `type(self)` and `self.__class__`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

_OF_CONTAINERS: Final = ("__getitem__", "__len__", "__iter__", "__contains__")  # Sequential, SentenceTransformer


class Alike(type):
    """The class of wrappers' classes. `original` is the class of what is wrapped."""

    def __getattr__(cls, name: str) -> Any:
        original = cls.__dict__.get("original")
        if original is None or name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return getattr(original, name)


def alike(wrapper: type[Any], original: type[Any]) -> type[Any]:
    """A class of wrappers for objects of the class `original`."""
    inherited = wrapper.forward

    @functools.wraps(original.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return inherited(self, *args, **kwargs)

    own = {"original": original, "forward": forward, "__doc__": wrapper.__doc__}
    own |= {name: _forwarded(name) for name in _OF_CONTAINERS if hasattr(original, name)}
    return Alike(wrapper.__name__, (wrapper,), own)


def _forwarded(name: str) -> Callable[..., Any]:
    """Python looks such methods up on the class, past `__getattr__`."""

    def call(self: Any, *args: Any) -> Any:
        return getattr(self.wrapped, name)(*args)

    return call
