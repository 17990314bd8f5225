"""Whether two results agree.

Input: what smelt returned, what eager torch returned, and how to get the same in float64. Output: nothing, or Mismatch.
Invariant: shapes, dtypes and structure are always compared; values are compared by the numerics contract
(docs/numerics.md): within the tolerance of the float64 result, or no further from it than 1.5 times eager torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

TOLERANCE = 1e-5
YARDSTICK = 1.5


class Mismatch(AssertionError):
    """The results differ."""


def compare(got: Any, want: Any, reference: Callable[[], Any], *, values: bool) -> None:
    """Raise Mismatch unless `got` agrees with `want`; `reference` gives `want` in float64 when it is needed."""
    got_leaves, got_tree = pytree.tree_flatten(got)
    want_leaves, want_tree = pytree.tree_flatten(want)
    if len(got_leaves) != len(want_leaves):
        raise Mismatch(f"structure {got_tree} for {want_tree}")
    exact: list[Any] | None = None
    for index, (a, b) in enumerate(zip(got_leaves, want_leaves, strict=True)):
        if not isinstance(b, torch.Tensor):
            if values and not _same_scalar(a, b):
                raise Mismatch(f"result {index}: {a!r} for {b!r}")
            continue
        _compare_form(index, a, b)
        if not values or _close(a, b):
            continue
        if exact is None:
            exact = _leaves_or_none(reference, len(want_leaves))
        _compare_by_contract(index, a, b, None if exact is None else exact[index])


def places_that_hold(source: torch.Tensor, places: torch.Tensor, values: torch.Tensor, dim: int) -> bool:
    """Whether `values` are what lies at `places` along `dim`."""
    if not source.dim():
        return bool((places == 0).all())
    kept = places.dim() == source.dim()
    index, wanted = (places, values) if kept else (places.unsqueeze(dim), values.unsqueeze(dim))
    return _close(source.gather(dim, index), wanted)


def _same_scalar(a: Any, b: Any) -> bool:
    return a == b or (isinstance(b, float) and (abs(a - b) <= TOLERANCE * abs(b) or (a != a and b != b)))


def _compare_form(index: int, a: Any, b: torch.Tensor) -> None:
    if not isinstance(a, torch.Tensor):
        raise Mismatch(f"result {index}: {type(a).__name__} for a tensor")
    if a.dtype != b.dtype or a.shape != b.shape:
        raise Mismatch(f"result {index}: {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}")


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(a, b, equal_nan=True)
    except AssertionError:
        return False
    return True


def _leaves_or_none(reference: Callable[[], Any], count: int) -> list[Any] | None:
    try:
        leaves = pytree.tree_leaves(reference())
    except Exception:  # not every op takes float64
        return None
    return leaves if len(leaves) == count else None


def _compare_by_contract(index: int, a: torch.Tensor, b: torch.Tensor, exact: Any) -> None:
    if not (a.is_floating_point() or a.is_complex()):
        wrong = int((a != b).sum())
        raise Mismatch(f"result {index}: {wrong} of {a.numel()} elements differ")
    wide = torch.complex128 if a.is_complex() else torch.float64
    ref = exact.to(wide) if isinstance(exact, torch.Tensor) and exact.shape == b.shape else b.to(wide)
    a, b = a.to(wide), b.to(wide)
    finite = b.isfinite() & ref.isfinite()
    if not torch.equal(a.isfinite() & ref.isfinite(), finite) or not _close(a[~finite], b[~finite]):
        raise Mismatch(f"result {index}: infinities or NaN at other places")
    if not bool(finite.any()):
        return
    error, allowed = (a - ref)[finite].abs(), (b - ref)[finite].abs().max() * YARDSTICK
    scale = ref[finite].abs() + ref[finite].abs().square().mean().sqrt()
    if bool((error > torch.maximum(TOLERANCE * scale, allowed)).any()):
        raise Mismatch(f"result {index}: off by {float((error / scale).max()):.2g} of its size")
