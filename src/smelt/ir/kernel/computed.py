"""An attribute computed when it is first asked for.

Input: a method without arguments of an object that never changes. Output: its result, kept in the object's `__dict__`.
Invariant: unlike functools.cached_property no lock is taken (in Python 3.11 one lock of all objects): two threads may
both compute it, and get the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class computed(Generic[T]):  # noqa: N801  used as a decorator
    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> computed[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> computed[T] | T:
        if instance is None:
            return self
        value = self.function(instance)
        instance.__dict__[self.name] = value
        return value
