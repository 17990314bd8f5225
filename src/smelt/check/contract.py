"""The numerics contract: when a result is right.

Input: a result, the reference in float64 and, where known, what stock ONNX Runtime gave. Output: a `Comparison`.
Invariant: the tolerances are declared here and nowhere else; shapes and element types must be equal, NaN meets NaN and
an infinity meets the same infinity; a sequence or a map is right when each of its tensors is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from smelt.ops import declarations

Array = np.ndarray[Any, Any]

# Allowed |result - reference| / (|reference| + rms(reference)), by element type and class of the region's ops.
# elementwise: functions are within 4 ULP (2.4e-7 in float32), and chains of a few add up.
# product:     sums of hundreds to thousands of rounded products; the order of summation differs from stock's.
# model:       dozens of regions in a row; the same bound as for what stock ONNX Runtime itself does.
# float16 and bfloat16 are rounded at every node border, so one rounding of the type is the unit there, and in wider
# results that come through such a type: how often it is rounded on the way depends on casts that stock drops.
TOLERANCES: Final[dict[str, dict[str, float]]] = {
    "float32": {"elementwise": 1e-6, "product": 1e-5, "model": 1e-5},
    "float64": {"elementwise": 1e-13, "product": 1e-12, "model": 1e-12},
    "float16": {"elementwise": 2e-3, "product": 5e-3, "model": 1e-2},
    "bfloat16": {"elementwise": 1.6e-2, "product": 4e-2, "model": 8e-2},
}
# Where stock ONNX Runtime has to serve as the reference, its own rounding is in the difference too.
STOCK_AS_REFERENCE: Final = {"float32": 1e-5, "float64": 1e-11, "float16": 1e-2, "bfloat16": 8e-2}
STOCK_FACTOR: Final = 1.5
# So near to stock ONNX Runtime a result holds the contract whatever the reference says: with s the error of stock and t
# the tolerance, the error is at most s + t / 3, which is below t for s up to 2 t / 3, and below 1.5 s beyond.
NEAR_STOCK: Final = 1 / 3
# A sum that cancels has few digits left, whoever computes it. An output may be off by so many times what the reference
# itself moves by (the median over the output; an element as its own moves, in a network that takes no steps) when every
# input moves by one unit in its last place.
MOVED_FACTOR: Final = 16.0
_ROUNDING: Final = 1e-3  # a larger error of stock's beside a step is the step, and no measure of rounding

# Ops whose results are sums of products, by their own declarations; and those that stock fuses, which have none here.
PRODUCTS: Final = frozenset(d.name for d in declarations() if d.kind == "product") | {"FusedGemm", "FusedConv"}
# A rounding error before one of these may become a whole step after it.
STEPS: Final = frozenset(d.name for d in declarations() if d.steps)


@dataclass(frozen=True)
class Comparison:
    """How far a result is from the reference. `problem` is empty when the contract holds.

    `failing` are the places of all outputs that break it; empty where the problem is no single output's.
    """

    error: float = 0.0
    stock_error: float | None = None
    tolerance: float = 0.0
    problem: str = ""
    failing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """A tolerance of the user's own, as numpy.allclose has it: |result - reference| <= atol + rtol * |reference|."""

    rtol: float = 0.0
    atol: float = 0.0


def op_class(op_types: Iterable[str]) -> str:
    return "product" if PRODUCTS.intersection(op_types) else "elementwise"


def has_steps(op_types: Iterable[str]) -> bool:
    return bool(STEPS.intersection(op_types))


def compare_all(
    results: Sequence[Any], references: Sequence[Any], stock: Sequence[Any] | None, kind: str, *,
    steps: bool = False, stock_is_reference: bool = False, moved: Callable[[], Sequence[Any]] | None = None,
    share: float = 1.0, rounded: Sequence[str] = (), known: Sequence[float] = (),
) -> Comparison:  # fmt: skip
    """The worst comparison over all outputs; the first problem counts, and all outputs that have one are named.

    `moved` gives the references for inputs moved by their last place; it is asked only when an output is off. `share`
    is the part of the tolerance that may be used. `rounded` says by output which coarser type it comes through,
    `known` which absolute error of the reference's own is known.
    """
    nearby: list[Sequence[Any]] = []

    def one(place: int, path: TensorPath, result: Any, reference: Any) -> Comparison:
        yardstick = None if stock is None else tensor_at(stock[place], path)
        tolerance = tolerance_of(result, kind, stock_is_reference, rounded[place] if rounded else "") * share
        found = compare(result, reference, yardstick, tolerance, steps=steps, known=known[place] if known else 0.0)
        if found.problem and moved is not None and tolerance and np.isfinite(found.error):
            if not nearby:
                nearby.append(moved())
            found = _conditioned(found, result, reference, tensor_at(nearby[0][place], path), steps)
        return found

    return over_outputs(results, references, one)


def compare_bounds(results: Sequence[Any], references: Sequence[Any], bounds: Bounds) -> Comparison:
    """By the user's own tolerance, integers and booleans too. The error is the largest difference."""

    def one(place: int, path: TensorPath, result: Any, reference: Any) -> Comparison:
        del place, path
        if result.dtype.kind not in "fiub" and result.dtype.name != "bfloat16":
            return compare(result, reference, None, 0.0)
        if result.shape != np.shape(reference):
            return compare(result, reference, None, bounds.rtol)
        got, wanted = np.asarray(result, np.float64), np.asarray(reference, np.float64)
        right = np.isclose(got, wanted, rtol=bounds.rtol, atol=bounds.atol, equal_nan=True)
        with np.errstate(invalid="ignore"):
            errors = np.where(np.isfinite(got) & np.isfinite(wanted), np.abs(got - wanted), np.where(right, 0, np.inf))
        error = float(errors.max(initial=0.0))
        if right.all():
            return Comparison(error, tolerance=bounds.atol)
        at = np.unravel_index(int(np.where(right, -1, errors).argmax()), errors.shape)
        wrong = int((~right).sum())
        problem = (
            f"{wrong} of {right.size} elements are off by more than {bounds.atol:g} + {bounds.rtol:g} * |reference|; "
            f"the worst is {float(got[at])!r} instead of {float(wanted[at])!r}"
        )
        return Comparison(error, tolerance=bounds.atol, problem=problem)

    return over_outputs(results, references, one)


TensorPath = tuple[int | str, ...]  # where a tensor lies inside a sequence or a map


def over_outputs(
    results: Sequence[Any], references: Sequence[Any], one: Callable[[int, TensorPath, Any, Any], Comparison]
) -> Comparison:
    if len(results) != len(references):
        return Comparison(problem=f"{len(results)} outputs instead of {len(references)}")
    worst = Comparison()
    problems: dict[int, Comparison] = {}
    for place, (result, reference) in enumerate(zip(results, references, strict=True)):
        got, wanted = dict(tensors_of(result)), dict(tensors_of(reference))
        if list(got) != list(wanted):
            problem = f"output {place}: {_form(got)} instead of {_form(wanted)}"
            problems[place] = Comparison(1.0, problem=problem, failing=(place,))
            continue
        for path, tensor in got.items():
            found = one(place, path, tensor, wanted[path])
            if found.problem and place not in problems:
                problems[place] = replace(found, problem=f"output {place}: {found.problem}", failing=(place,))
            elif not found.problem and found.error >= worst.error:
                worst = found
    return joined(problems.values()) if problems else worst


def tensors_of(value: Any, path: TensorPath = ()) -> Iterable[tuple[TensorPath, Array]]:
    """The tensors of an output in order: itself, or those of a sequence or a map, however nested."""
    if isinstance(value, (list, tuple)):
        for place, part in enumerate(cast("Sequence[Any]", value)):
            yield from tensors_of(part, (*path, place))
    elif isinstance(value, dict):
        for key, part in sorted(cast("dict[Any, Any]", value).items(), key=lambda item: str(item[0])):
            yield from tensors_of(part, (*path, str(key)))
    elif value is not None:
        # The float of a map is a float32 that Python has widened.
        yield path, np.asarray(value, np.float32) if type(value) is float else np.asarray(value)


def tensor_at(value: Any, path: TensorPath) -> Any:
    return dict(tensors_of(value)).get(path)


def _form(tensors: Mapping[TensorPath, Array]) -> str:
    return "a tensor" if list(tensors) == [()] else f"a value of {len(tensors)} tensors"


def joined(problems: Iterable[Comparison]) -> Comparison:
    """The first of the problems, with the outputs of all; with none where one of them names none."""
    first, *others = problems
    failing = sorted({place for one in (first, *others) for place in one.failing})
    known = all(one.failing for one in (first, *others))
    return replace(first, failing=tuple(failing) if known else ())


def _conditioned(found: Comparison, result: Array, reference: Any, nearby: Any, steps: bool) -> Comparison:
    """The comparison again, where an output may be off by its movement: the median, so that a step taken by a few does
    not count, and for a single element its own where no steps are taken."""
    moves = movements(reference, nearby)
    if moves is None:
        return found
    allowed = MOVED_FACTOR * float(np.median(moves))
    if found.error <= allowed:
        return replace(found, tolerance=allowed, problem="")
    if steps:
        return found
    wanted = np.asarray(reference, np.float64)
    errors = relative_errors(result, wanted, _scale(wanted), _limit(result))
    own = np.maximum(max(allowed, found.tolerance, STOCK_FACTOR * (found.stock_error or 0.0)), MOVED_FACTOR * moves)
    if np.any(errors > own):
        return found
    return replace(found, tolerance=float(own.flat[int(errors.argmax())]), problem="")


def movements(reference: Any, nearby: Any) -> Array | None:
    """How far each element moved, by the measure of errors; 0 where that cannot be told."""
    if not (_is_array(reference) and _is_array(nearby)) or np.shape(reference) != np.shape(nearby):
        return None
    before, after = np.asarray(reference, np.float64), np.asarray(nearby, np.float64)
    both = np.isfinite(before) & np.isfinite(after)
    if not both.any():
        return None
    with np.errstate(invalid="ignore"):
        return np.where(both, np.abs(after - before) / np.maximum(_scale(before), 1e-300), 0.0)


def tolerance_of(result: Any, kind: str, stock_is_reference: bool = False, rounded: str = "") -> float:
    """Of a float that comes through a coarser type, that of the coarser one."""
    own = getattr(getattr(result, "dtype", None), "name", "")
    names = [name for name in (own, rounded) if name] if own in TOLERANCES else [own]
    if stock_is_reference:
        return max(STOCK_AS_REFERENCE.get(name, 0.0) for name in names)
    return max(TOLERANCES.get(name, {}).get(kind, 0.0) for name in names)


def compare(
    result: Any, reference: Any, stock: Any, tolerance: float, *, steps: bool = False, known: float = 0.0
) -> Comparison:
    """One tensor. With `steps`, an element may also be what stock ONNX Runtime gave there."""
    got, wanted = cast("Array", result), cast("Array", reference)
    if got.shape != wanted.shape:
        return Comparison(problem=f"shape {list(got.shape)} instead of {list(wanted.shape)}")
    if got.size == 0:
        return Comparison(tolerance=tolerance)
    if tolerance == 0.0:
        return _exact(got, wanted, stock if steps else None)
    return _floats(got, wanted, stock, tolerance, steps, known)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _exact(result: Array, reference: Array, stock: Any) -> Comparison:
    """NaN, of a float that has no tolerance, meets NaN."""
    wrong = np.asarray((result != reference) & ((result == result) | (reference == reference)))
    if stock is not None:
        wrong &= np.asarray(result != np.asarray(stock))
    count = int(wrong.sum())
    if not count:
        return Comparison()
    at = _first(wrong)
    problem = f"{count} of {wrong.size} elements differ, first {result[at]} instead of {reference[at]}"
    return Comparison(1.0, problem=problem)


def _floats(
    result: Array, reference: Array, stock: Any, tolerance: float, steps: bool, known: float
) -> Comparison:  # fmt: skip
    limit = _limit(result)
    reference = np.asarray(reference, np.float64)
    scale = _scale(reference) + known / tolerance
    errors = relative_errors(result, reference, scale, limit)
    stock_errors = None
    if stock is not None and np.shape(stock) == result.shape:
        stock_errors = relative_errors(np.asarray(stock), reference, scale, limit)
        if steps:
            near = relative_errors(result, np.asarray(stock, np.float64), scale, limit)
            errors = np.minimum(errors, near)
    error = float(errors.max())
    stock_error = None if stock_errors is None else float(stock_errors.max())
    allowed = tolerance
    if stock_error is not None and np.isfinite(stock_error) and not (steps and stock_error > _ROUNDING):
        allowed = max(tolerance, STOCK_FACTOR * stock_error)
    if error <= allowed:
        return Comparison(error, stock_error, tolerance)
    # Where stock's class of special value differs from the reference too, its answer is as good.
    if stock_errors is not None and np.isinf(error):
        odd = np.isinf(errors) & ~_same_class(result, np.asarray(stock))
        rest = float(np.where(np.isinf(errors), 0.0, errors).max())
        if not odd.any() and rest <= max(tolerance, STOCK_FACTOR * _finite_max(stock_errors)):
            return Comparison(rest, stock_error, tolerance)
    return Comparison(error, stock_error, tolerance, _describe(errors, result, reference, tolerance))


def _limit(result: Array) -> float:
    """The largest finite number of the result's type."""
    return float(np.finfo(result.dtype).max) if result.dtype.kind == "f" else np.inf


def _scale(reference: Array) -> Array:
    finite = reference[np.isfinite(reference)]
    if not finite.size:
        return np.abs(reference)
    peak = max(float(np.abs(finite).max()), 1e-300)  # squares of large numbers overflow even in float64
    return np.abs(reference) + peak * float(np.sqrt(np.mean(np.square(finite / peak))))


def relative_errors(result: Array, reference: Array, scale: Array, limit: float) -> Array:
    """Per element; 0 where both are the same special value, inf where only one is special."""
    wide = np.asarray(result, np.float64)
    with np.errstate(all="ignore"):
        bounded = np.where(np.abs(reference) > limit, np.copysign(np.inf, reference), reference)
        # The smallest normal number keeps results that are all (nearly) zero comparable.
        tiny = float(np.finfo(result.dtype).tiny) if result.dtype.kind == "f" else 1e-38
        errors = np.abs(wide - bounded) / np.maximum(np.where(np.isfinite(scale), scale, 1.0), tiny)
    same = (wide == bounded) | (np.isnan(wide) & np.isnan(bounded))
    near_limit = np.isinf(wide) & (np.abs(reference) >= limit * (1 - 1e-5)) & (np.sign(wide) == np.sign(reference))
    near_limit |= np.isinf(bounded) & (np.abs(wide) >= limit * (1 - 1e-5)) & (np.sign(wide) == np.sign(bounded))
    special = ~np.isfinite(wide) | ~np.isfinite(bounded)
    return np.where(same | near_limit, 0.0, np.where(special, np.inf, errors))


def _same_class(left: Array, right: Array) -> Array:
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    both_finite = np.isfinite(a) & np.isfinite(b)
    return both_finite | (np.isnan(a) & np.isnan(b)) | (a == b)


def _finite_max(errors: Array) -> float:
    return float(np.where(np.isfinite(errors), errors, 0.0).max())


def _describe(errors: Array, result: Array, reference: Array, tolerance: float) -> str:
    wrong = errors > tolerance
    at = np.unravel_index(int(errors.argmax()), errors.shape)
    count = int(wrong.sum())
    return (
        f"{count} of {errors.size} elements are off by more than {tolerance:g}; "
        f"the worst is {float(result[at])!r} instead of {float(reference[at])!r} (error {float(errors[at]):.3g})"
    )


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
