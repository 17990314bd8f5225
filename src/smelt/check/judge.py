"""One verdict for all who ask whether results are right: compilation, `smelt verify`, reduction.

Input: a model of stock nodes, the feeds of one call, results of kernels and what stock ONNX Runtime gave without its
optimizers. Output: `Judged`: a comparison, and what decided it. Invariant: nothing here depends on a clock. Results
near to stock's hold the contract by that alone; where they are not, a quantized model is judged by its steps, one of
several products with 8-bit activations by stock's answer with float32 ones, any other by the float64 reference and
stock's own errors, with its optimizers or without, and by stock where there is no reference or it would take too long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import onnx_ir as ir

from smelt.check.contract import (
    NEAR_STOCK,
    Bounds,
    Comparison,
    compare,
    compare_all,
    compare_bounds,
    has_steps,
    tensors_of,
    tolerance_of,
)
from smelt.check.events import short
from smelt.check.known_errors import known_errors
from smelt.check.moved_models import (
    narrow_products,
    with_float_activations,
    with_moved_scales,
    with_moved_weights,
)
from smelt.check.quantized import MEMBERS, coarsest_step, compare_steps, quantizes
from smelt.check.references import BUDGET, evaluate_loaded, holds_half, moved
from smelt.check.rounded_types import rounded_types
from smelt.ir.proto import load_file
from smelt.ops.reference import NoReferenceError, evaluate_nodes
from smelt.ops.user import is_user_op
from smelt.runtime import Session, SessionSettings, run_once, session_for

T = TypeVar("T")
ReferenceKind = Literal["stock", "float64", "steps"]
_STOCK_THREADS: Final = 2
_THREADS: Final = (2, 0)  # besides one: as verification runs kernels, and as users do
UNOPTIMIZED: Final = SessionSettings(threads=1, optimization="disable", log_severity=4, spin=False)
OPTIMIZED: Final = SessionSettings(threads=1, log_severity=4, spin=False)
# Further answers of stock, on moved inputs. Their error is rounding where it is at most so many times the first one's,
# or so many times the tolerance.
SPREAD: Final = 4
SPREAD_FACTOR: Final = 2.0
SPREAD_TOLERANCES: Final = 10.0


@dataclass(frozen=True)
class Judged:
    """`reference` says what the results were compared with; `note` why it was not the usual."""

    comparison: Comparison
    reference: ReferenceKind = "stock"
    note: str = ""


class Judge:
    """One model of stock nodes. `announce` is called before anything long begins that is no kernel; `outputs` are
    those that count, where the model has more."""

    def __init__(
        self, path: Path, kind: str, op_types: Sequence[str], announce: Callable[[], None] | None = None,
        budget: float = BUDGET, outputs: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.kind = kind
        self.op_types = op_types
        self.announce = announce or (lambda: None)
        self.budget = budget
        self.outputs = outputs
        self._stock: Session | None = None
        self._sessions: dict[SessionSettings, Session] = {}
        self._model: ir.Model | None = None
        self._reference = _Once(self._evaluated)
        self._moved_reference = _Once(lambda feeds: self._evaluated(_nearby(feeds)))
        # The kernels of several CPU levels are held against the same answers.
        self._usual = _Once(lambda feeds: list(_answers([partial(self._again, self._with_threads(OPTIMIZED), feeds)])))
        self._draws = _Once(lambda feeds: _Kept(self._drawn(feeds)))
        self._verdicts = _Verdicts()

    def stock(self, feeds: Mapping[str, Any]) -> list[Any]:
        """What stock ONNX Runtime gives without its optimizers; raises what it raises. Ops of the user's own have no
        kernel there: their references stand for it."""
        if any(is_user_op(node) for node in self._loaded().graph):
            return self._in_own_types(feeds)
        self._stock = self._stock or self._session(self._with_threads(UNOPTIMIZED))
        return run_once(self._stock, feeds, self.outputs)

    def _with_threads(self, settings: SessionSettings) -> SessionSettings:
        """Some of stock's kernels quantize what a thread gets: their answers depend on the number of threads."""
        return replace(settings, threads=1 if quantizes(self.op_types) else _STOCK_THREADS)

    @cached_property
    def rounded(self) -> list[str]:
        """By output, the coarser type that it comes through."""
        return self._of_outputs(rounded_types(self._loaded()))

    @cached_property
    def known(self) -> list[float]:
        """By output, the error of stock's own that is known."""
        return self._of_outputs(known_errors(self._loaded()))

    def _of_outputs(self, found: list[T]) -> list[T]:
        by_name = {value.name: one for value, one in zip(self._loaded().graph.outputs, found, strict=True)}
        return found if self.outputs is None else [by_name[name] for name in self.outputs]

    def use(self, session: Session) -> None:
        """A session of the same model without optimizers that is open already."""
        self._stock = session

    def reference(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The float64 reference; raises NoReferenceError. Kernels of several CPU levels share it."""
        if self.budget <= 0:
            raise NoReferenceError("it was left out")
        return self._reference(feeds)

    def overflow_reference(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The reference that tells which results are finite; raises NoReferenceError. A float16 cannot hold what
        float64 does, and whether stock rounds a value to it depends on the casts that it drops."""
        model = self._loaded()
        if self.budget <= 0 or not holds_half(model):
            return self.reference(feeds)
        env = {v: feeds[v.name or ""] for v in model.graph.inputs if v.name in feeds}
        return evaluate_loaded(model, env, self.budget, wide=False)

    def _in_own_types(self, feeds: Mapping[str, Any]) -> list[Any]:
        """By the rules of the reference, rounded as the model's types say."""
        model = self._loaded()
        env = {v: feeds[v.name or ""] for v in model.graph.inputs if v.name in feeds}
        made = evaluate_nodes(model.graph, env, model.opset_imports, wide=False)
        by_name = {value.name: made[value] for value in model.graph.outputs}
        return [by_name[name] for name in self.outputs or by_name]

    def _evaluated(self, feeds: Mapping[str, Any]) -> list[Any]:
        self.announce()
        model = self._loaded()
        wanted = [v for v in model.graph.inputs if v.name in feeds]
        made = evaluate_loaded(model, {v: feeds[v.name or ""] for v in wanted}, self.budget)
        by_name = {value.name: answer for value, answer in zip(model.graph.outputs, made, strict=True)}
        return made if self.outputs is None else [by_name[name] for name in self.outputs]

    def forbids(self, feeds: Mapping[str, Any], allowed: Mapping[str, Any]) -> bool:
        """Whether a rule of the reference fails on these inputs, and none on those that are allowed. Stock ONNX Runtime
        takes some that no rule allows: its Concat leaves out what is empty without a look at the other sizes, and gives
        memory that nobody wrote."""
        try:
            self.reference(allowed)
        except NoReferenceError:
            return False
        try:
            self.reference(feeds)
        except NoReferenceError as error:
            return error.__cause__ is not None
        return False

    def __call__(
        self, feeds: Mapping[str, Any], results: Sequence[Any], stock: Sequence[Any] | None,
        bounds: Bounds | None = None,
    ) -> Judged:  # fmt: skip
        if bounds is not None:
            return self._by_bounds(feeds, results, stock, bounds)
        known = self._verdicts.find(feeds, stock, results)
        return known or self._verdicts.keep(results, self._judged(feeds, results, stock))

    def _judged(self, feeds: Mapping[str, Any], results: Sequence[Any], stock: Sequence[Any] | None) -> Judged:
        if stock is not None:
            near = compare_all(results, stock, None, self.kind, share=NEAR_STOCK)
            if near.problem and any(self.rounded):
                near = compare_all(results, stock, None, self.kind, share=NEAR_STOCK, rounded=self.rounded)
            if not near.problem:
                return Judged(near)
            if quantizes(self.op_types):
                return self._by_steps(feeds, results, stock)
            if "MatMulNBits" in self.op_types and len(narrow_products(self._loaded())) > 1:
                return self._by_float_activations(feeds, results, stock)
        return self._by_reference(feeds, results, stock)

    def _by_reference(self, feeds: Mapping[str, Any], results: Sequence[Any], stock: Sequence[Any] | None) -> Judged:
        try:
            reference = self.reference(feeds)
        except NoReferenceError as error:
            if stock is None:
                return Judged(Comparison(problem=f"there is nothing to compare with: {short(error)}"))
            found = compare_all(
                results, stock, None, self.kind, stock_is_reference=True, rounded=self.rounded, known=self.known
            )  # fmt: skip
            if found.problem:
                found = self._by_spread(found, feeds, results, stock, stock, stock_is_reference=True)
            note = f"compared with stock ONNX Runtime, as there is no reference: {short(error)}"
            return Judged(found, "stock", note)
        found = compare_all(
            results, reference, stock, self.kind, steps=has_steps(self.op_types), rounded=self.rounded,
            moved=None if stock is not None else partial(self._moved_reference, feeds),
        )  # fmt: skip
        if found.problem and stock is not None:
            found = self._by_spread(found, feeds, results, reference, stock)
        return Judged(found, "float64")

    def _by_spread(
        self, found: Comparison, feeds: Mapping[str, Any], results: Sequence[Any], reference: Sequence[Any],
        stock: Sequence[Any], *, stock_is_reference: bool = False,
    ) -> Comparison:  # fmt: skip
        """The largest error of one answer is one draw of many: stock's with its optimizers, on inputs moved by their
        last place, and with weights moved so (few inputs make few different roundings) are as good a yardstick. What is
        far off (a step, optimizers that compute in other types, as with activations of 8 bits beside int4 weights) is
        none; but what stock gives by default is right, whoever computed it. A sum that cancels is told by how far the
        reference moves. What costs least is asked first."""
        for usual in self._usual(feeds):
            near = compare_all(results, usual, None, self.kind, share=NEAR_STOCK, rounded=self.rounded)
            if not near.problem:
                return near
        rounded = self.rounded
        tensors = [(tensor, name) for one, name in zip(results, rounded, strict=True) for _, tensor in tensors_of(one)]
        tolerance = max((tolerance_of(one, self.kind, stock_is_reference, name) for one, name in tensors), default=0.0)
        known = self.known if stock_is_reference else [0.0] * len(rounded)
        error_of = partial(_largest_error, reference=reference, apart=[one / (tolerance or 1.0) for one in known])
        most = max(SPREAD_FACTOR * error_of(stock), SPREAD_TOLERANCES * tolerance)
        compared = partial(
            compare_all, results, reference, kind=self.kind, stock_is_reference=stock_is_reference, rounded=rounded,
            known=known, steps=has_steps(self.op_types),
        )  # fmt: skip
        moved = None if stock_is_reference else partial(self._moved_reference, feeds)
        near_reference: Callable[[Any], bool] = lambda answer: error_of(answer) <= most  # noqa: E731
        usual = list(filter(near_reference, self._usual(feeds)))
        # An element may be off by what one yardstick allows, and its neighbour by what the other does.
        drawn = itertools.chain(usual if moved else (), filter(near_reference, self._draws(feeds)))
        return _first_right(
            found,
            (compared(stock=answer) for answer in usual),
            (compared(stock=stock, moved=moved) for _ in (0,)),
            (compared(stock=answer, moved=moved) for answer in drawn),
        )

    def _drawn(self, feeds: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Answers of stock to nearly the same question."""
        nearby = [_nearby(feeds, seed) for seed in range(SPREAD)]
        moved_inputs = [partial(self.stock, one) for one in nearby]
        weights = [partial(self._with_moved, with_moved_weights, seed, feeds) for seed in range(SPREAD)]
        return _answers([*moved_inputs, *weights])

    def _by_bounds(
        self, feeds: Mapping[str, Any], results: Sequence[Any], stock: Sequence[Any] | None, bounds: Bounds
    ) -> Judged:
        try:
            return Judged(compare_bounds(results, self.reference(feeds), bounds), "float64")
        except NoReferenceError as error:
            note = f"compared with stock ONNX Runtime, as there is no reference: {short(error)}"
            return Judged(compare_bounds(results, stock or (), bounds), "stock", note)

    def _by_steps(self, feeds: Mapping[str, Any], results: Sequence[Any], stock: Sequence[Any]) -> Judged:
        self.announce()
        tries = [partial(self._again, replace(UNOPTIMIZED, threads=count), feeds) for count in _THREADS]
        threaded = list(_answers(tries))
        for other in threaded:
            near = compare_all(results, other, None, self.kind, share=NEAR_STOCK)
            if not near.problem:
                return Judged(near)
        nearby = _nearby(feeds)
        optimized = partial(self._again, OPTIMIZED, feeds)
        scaled = [partial(self._with_moved, with_moved_scales, seed, nearby) for seed in range(MEMBERS)]
        others = [*threaded, *_answers([optimized, *scaled])]
        step = coarsest_step(self._loaded())
        found = compare_steps(results, stock, others, lambda tensor: tolerance_of(tensor, self.kind), step)
        exact = self._by_exact_steps(feeds, results, step) if found.problem else None
        return exact or Judged(found, "steps")

    def _by_float_activations(self, feeds: Mapping[str, Any], results: Sequence[Any], stock: Sequence[Any]) -> Judged:
        """Products after each other whose activations are quantized to 8 bits: a rounding error before the second moves
        its ties, so that right answers differ by as much as quantization costs. They are held to what stock gives with
        float32 activations, and may be twice as far from it as stock with 8 bits is."""
        self.announce()
        exact = next(_answers([lambda: self.answer_of(with_float_activations(self.path), feeds)]), None)
        if exact is None:
            return self._by_reference(feeds, results, stock)
        others = [stock, *_answers([partial(self._again, OPTIMIZED, feeds)])]
        found = compare_steps(results, exact, others, lambda tensor: tolerance_of(tensor, self.kind), 0.0)
        return self._by_reference(feeds, results, stock) if found.problem else Judged(found, "steps")

    def _by_exact_steps(self, feeds: Mapping[str, Any], results: Sequence[Any], step: float) -> Judged | None:
        """By the reference, whose integer sums are exact; those of stock saturate on CPUs without VNNI."""
        try:
            reference, other = self.reference(feeds), self._moved_reference(feeds)
        except NoReferenceError:
            return None
        found = compare_steps(results, reference, [other], lambda tensor: tolerance_of(tensor, self.kind), step)
        return None if found.problem else Judged(found, "float64")

    def _again(self, settings: SessionSettings, feeds: Mapping[str, Any]) -> list[Any]:
        return self._session(settings).run(self.outputs, feeds)

    def _session(self, settings: SessionSettings) -> Session:
        if settings not in self._sessions:
            self._sessions[settings] = session_for(self.path, None, settings)
        return self._sessions[settings]

    def _with_moved(
        self, made: Callable[[Path, int], Path | None], seed: int, feeds: Mapping[str, Any]
    ) -> list[Any] | None:
        """The answer of the same network with other constants; None where there are none to move."""
        path = made(self.path, seed)
        return None if path is None else self.answer_of(path, feeds)

    def answer_of(self, path: Path, feeds: Mapping[str, Any]) -> list[Any]:
        """What stock ONNX Runtime gives for another form of the network, whose file is not needed then."""
        try:
            return session_for(path, None, self._with_threads(UNOPTIMIZED)).run(self.outputs, feeds)
        finally:
            path.unlink()

    def _loaded(self) -> ir.Model:
        self._model = self._model or load_file(self.path)
        return self._model


class _Once(Generic[T]):
    """What a function said last, for whoever asks again about the same arrays; NoReferenceError is an answer too."""

    def __init__(self, function: Callable[[Mapping[str, Any]], T]) -> None:
        self._function = function
        self._asked: dict[str, Any] | None = None
        self._answer: T | NoReferenceError = NoReferenceError("nobody asked")

    def __call__(self, feeds: Mapping[str, Any]) -> T:
        asked = self._asked
        if asked is None or asked.keys() != feeds.keys() or any(asked[name] is not feeds[name] for name in feeds):
            try:
                self._answer = self._function(feeds)
            except NoReferenceError as error:
                self._answer = error
            self._asked = dict(feeds)
        if isinstance(self._answer, NoReferenceError):
            raise self._answer
        return self._answer


class _Verdicts:
    """What was said of results for the last inputs: the kernels of several CPU levels often give the same bits."""

    def __init__(self) -> None:
        self._asked: tuple[dict[str, Any], object] = ({}, None)
        self._said: list[tuple[Sequence[Any], Judged]] = []

    def find(self, feeds: Mapping[str, Any], stock: object, results: Sequence[Any]) -> Judged | None:
        if not _are_same((feeds, stock), self._asked):
            self._asked, self._said = (dict(feeds), stock), []
        return next((judged for made, judged in self._said if same_bits(made, results)), None)

    def keep(self, results: Sequence[Any], judged: Judged) -> Judged:
        self._said.append((results, judged))
        return judged


def _are_same(asked: tuple[Mapping[str, Any], object], known: tuple[Mapping[str, Any], object]) -> bool:
    (feeds, stock), (others, other) = asked, known
    return stock is other and feeds.keys() == others.keys() and all(feeds[name] is others[name] for name in feeds)


def same_bits(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two answers hold the same bytes. Texts have none."""
    pairs = itertools.zip_longest(tensors_of(list(left)), tensors_of(list(right)), fillvalue=((), None))
    return all(
        path == other and a is not None and b is not None and a.dtype == b.dtype and a.shape == b.shape
        and not a.dtype.hasobject and a.tobytes() == b.tobytes()
        for (path, a), (other, b) in pairs
    )  # fmt: skip


def _first_right(found: Comparison, *tried: Iterable[Comparison]) -> Comparison:
    """The first that holds the contract; `found` where none does."""
    return next((one for one in itertools.chain(*tried) if not one.problem), found)


class _Kept(Generic[T]):
    """An iterator that may be gone through again; what nobody came to is not made."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._seen: list[T] = []

    def __iter__(self) -> Iterator[T]:
        for place in itertools.count():
            if place == len(self._seen):
                self._seen += itertools.islice(self._source, 1)
            if place == len(self._seen):
                return
            yield self._seen[place]


def _nearby(feeds: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
    arrays = list(feeds.values())
    return dict(zip(feeds, moved(arrays) if seed is None else moved(arrays, seed), strict=True))


def _largest_error(answers: Sequence[Any], reference: Sequence[Any], apart: Sequence[float]) -> float:
    """`apart` is what each output is measured beside, besides itself."""
    got, wanted = dict(tensors_of(list(answers))), dict(tensors_of(list(reference)))
    if got.keys() != wanted.keys():
        return float("inf")
    errors = (compare(got[path], wanted[path], None, 1.0, known=apart[int(path[0])]).error for path in got)
    return max(errors, default=0.0)


def _answers(tries: Iterable[Callable[[], list[Any] | None]]) -> Iterator[list[Any]]:
    """Those that there are, one when asked for: what stock does not run cannot be a yardstick."""
    for attempt in tries:
        try:
            answer = attempt()
        except Exception:  # noqa: S112  onnxruntime raises many kinds
            continue
        if answer is not None:
            yield answer
