"""What torch.export is told of a call, and what it is kept from printing.

Input: a module and the arguments of one call. Output: contexts for `torch.export.export`. Invariant: the module is as
it was when a context ends.
"""

from __future__ import annotations

import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

_LOGGERS: Final = {
    "torch._export.non_strict_utils": logging.ERROR,  # a warning for each size that is fixed: guards know them all
    "torch._subclasses.fake_tensor": logging.CRITICAL,  # a stack for each call that torch refuses; it raises as well
}


@contextmanager
def quiet() -> Generator[None]:
    """What is raised or recorded anyway is not printed by torch as well."""
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name, level in _LOGGERS.items():
        logging.getLogger(name).setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def all_free(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`Dim.AUTO` for every size of every tensor: torch itself fixes those that the module fixes."""
    import torch
    from torch.export import Dim, ShapesCollection
    from torch.utils import _pytree as pytree

    shapes = ShapesCollection()
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor):
            shapes[leaf] = dict.fromkeys(range(leaf.dim()), cast("Any", Dim).AUTO)
    return shapes.dynamic_shapes(module, tuple(args), dict(kwargs))


@contextmanager
def named_arguments(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Generator[None]:
    """Arguments that a forward takes as `**kwargs` become parameters by their names for the time of tracing.

    torch.export pairs arguments and dynamic shapes by the signature, and takes `**kwargs` for one argument at one place
    and for several at another. Hugging Face models take most of their options so.
    """
    signature = _spelled_out(module.forward, args, kwargs)
    if signature is None:
        yield
        return
    own = cast("dict[str, Any]", module.__dict__)
    before: Any = own.get("forward")
    own["forward"] = _with_signature(module.forward, signature)
    try:
        yield
    finally:
        if before is None:
            del own["forward"]
        else:
            own["forward"] = before


def _spelled_out(forward: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.Signature | None:
    """The signature of this one call; None where the function's own will do."""
    try:
        signature = inspect.signature(forward)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # tracing says what is wrong
        return None
    parameters = signature.parameters
    rest = next((p.name for p in parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    if rest is None or rest not in bound:
        return None
    named = [parameters[name] for name in bound if name != rest]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in bound[rest]]
    return inspect.Signature([*named, *more])


def _with_signature(forward: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    call.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    return call
