"""Calls that feed an initializer, over an artifact that holds it as a constant.

Input: a session over an artifact, the names that it froze, and how to make stock's session. Output: the same session,
which runs such calls on stock. Invariant: stock's session is made at the first such call, and only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any


def run_overrides_on_stock(session: Any, frozen: Iterable[str], make_stock: Callable[[], Any]) -> None:
    """Wrap the calls of one session that take feeds by name."""
    names, made, lock = frozenset(frozen), list[Any](), Lock()

    def stock() -> Any:
        with lock:
            if not made:
                made.append(make_stock())
            return made[0]

    for method in ("run", "run_with_ort_values"):
        setattr(session, method, _choosing(getattr(session, method), method, names, stock))
    session.get_overridable_initializers = lambda: stock().get_overridable_initializers()


def _choosing(
    compiled: Callable[..., Any], method: str, names: frozenset[str], stock: Callable[[], Any]
) -> Callable[..., Any]:
    def run(output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        call = compiled if names.isdisjoint(input_feed) else getattr(stock(), method)
        return call(output_names, input_feed, run_options)

    return run
