"""`smelt.intercept(model)`: what a model is called with.

Input: a module or function, and a callback. Output: one that is called alike. Invariant: the original runs, on the same
arguments, and its result is returned as it is; its parameters, names and state are the original's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Callback = Callable[[tuple[Any, ...], dict[str, Any]], None]


def intercept(model: Any, callback: Callback | None = None) -> Any:
    """The model, whose arguments are printed at every call, or handed to `callback(args, kwargs)`.

        seen = []
        model = smelt.intercept(model, lambda args, kwargs: seen.append((args, kwargs)))

    A module is changed in place by a hook and returned; `model.stop_intercepting()` takes the hook away.
    """
    told = callback or _printed(type(model).__name__ if _is_module(model) else getattr(model, "__name__", "a function"))
    if _is_module(model):

        def hook(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            told(args, dict(kwargs))

        handle = model.register_forward_pre_hook(hook, with_kwargs=True)
        model.stop_intercepting = handle.remove
        return model

    @functools.wraps(model)
    def intercepted(*args: Any, **kwargs: Any) -> Any:
        told(args, kwargs)
        return model(*args, **kwargs)

    return intercepted


def _is_module(model: Any) -> bool:
    return hasattr(model, "register_forward_pre_hook")


def _printed(name: str) -> Callback:
    def told(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = [*map(described, args), *(f"{key}={described(value)}" for key, value in kwargs.items())]
        print(f"smelt: {name}({', '.join(given)})")

    return told


def described(value: Any) -> str:
    """A value in a few words: tensors by type and shape, containers by what they hold."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        kind = str(value.dtype).removeprefix("torch.")
        where = getattr(getattr(value, "device", None), "type", "cpu")
        return f"{kind}{list(value.shape)}" + ("" if where == "cpu" else f" on {where}")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(item)}" for key, item in value.items()) + "}"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(described, value)) + "]"  # pyright: ignore[reportUnknownArgumentType]
    return repr(value)
