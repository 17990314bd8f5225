"""The values of a real call: what every region is given and what it should give.

Input: a job of `examine` and the models of its folder. Output: values by name, as stock ONNX Runtime computes them
without its optimizers. Invariant: inputs that the user gave are used as they are; of generated ones, the first that the
model takes, those that keep to its declared shapes before others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.check.events import Report, short
from smelt.check.feed_files import read_feeds
from smelt.check.inputs import every_attempt
from smelt.check.recipes import Recipe, fill
from smelt.check.watched_bodies import BodyRun
from smelt.ir.proto import load_file
from smelt.ops.reference import evaluate_nodes
from smelt.runtime import Session, SessionSettings, disagreement, session_for

Array = np.ndarray[Any, Any]
WATCHED: Final = "watched.onnx"
BUILT: Final = "built.json"  # the library, as soon as there is one
_MOST_GROWTH: Final = 4  # times the elements of inputs that run, in the search for ones that fit declared shapes too


@dataclass(frozen=True)
class Offer:
    """Inputs to offer to the model. `recipes` say how those were made that were not given."""

    attempt: int
    feeds: dict[str, Array]
    recipes: Mapping[str, Recipe] = field(default_factory=dict[str, Recipe])

    def plain(self) -> dict[str, Any]:
        """What is needed to make the same inputs again."""
        made = {name: recipe.plain() for name, recipe in self.recipes.items()}
        given = {name: list(np.shape(array)) for name, array in self.feeds.items() if name not in made}
        return {"seed": 0, "attempt": self.attempt, "made": made, "given": given}


@dataclass(frozen=True)
class Observed:
    """`feeds` are the model's inputs, `values` all that was watched, the feeds among them. `seconds` is the processor
    time that stock ONNX Runtime took, by which the patience with kernels is measured."""

    feeds: dict[str, Array]
    values: dict[str, Array]
    offer: Offer | None = None
    seconds: float = 0.0


@dataclass
class Watched:
    """Stock ONNX Runtime with every region's border as an output; those inside control flow by its bodies."""

    folder: Path
    threads: int
    declared: Mapping[str, list[int | None]]
    bodies: Sequence[BodyRun] = ()
    failure: str = ""
    session: Session | None = field(default=None, repr=False)

    def load(self) -> bool:
        """Whether stock ONNX Runtime loads the model; `failure` says why not."""
        settings = SessionSettings(threads=self.threads, optimization="disable", log_severity=4, spin=False)
        try:
            self.session = session_for(self.folder / WATCHED, None, settings)
        except Exception as error:  # onnxruntime raises many kinds
            self.failure = f"stock ONNX Runtime does not load the model: {short(error)}"
        return self.session is not None

    def __call__(self, feeds: dict[str, Array], offer: Offer | None = None) -> Observed:
        """Raises what stock ONNX Runtime raises for inputs that it refuses."""
        assert self.session is not None
        names = [output.name for output in self.session.get_outputs()]
        started = time.process_time()
        made = self.session.run(names, feeds)
        seconds = time.process_time() - started
        values = {**feeds, **dict(zip(names, made, strict=True))}
        for body in self.bodies:
            values.update(body(values))
        return Observed(feeds, values, offer, seconds)

    def contradicts(self, values: Mapping[str, Any]) -> bool:
        """Whether values break the declared shapes. Those are hints: stock ONNX Runtime only warns."""
        for name, dims in self.declared.items():
            shape = getattr(values.get(name), "shape", None)
            if shape is None:
                continue
            fits = len(dims) == len(shape) and all(d is None or d == s for d, s in zip(dims, shape, strict=True))
            if not fits:
                return True
        return False


def observe(job: Mapping[str, Any], watched: Watched, report: Report) -> Observed | None:
    """The first call: of the inputs given, or of generated ones that the model takes. None: there are none."""
    report(at="observe", attempt=int(job["attempt"]))
    if not watched.load():
        return _by_reference(job, watched.folder)
    odd: Observed | None = None
    for offer in offers(job, watched.folder):
        if odd is not None and _elements(offer.feeds) > _MOST_GROWTH * _elements(odd.feeds):
            continue  # a declaration that no call fulfils is no reason for one of hours
        if offer.attempt > int(job["attempt"]):
            report(at="observe", attempt=offer.attempt)
        try:
            seen = watched(offer.feeds, offer)
        except Exception as error:
            watched.failure = watched.failure or _why_refused(job, offer.feeds, error)
            continue
        if not offer.recipes or not watched.contradicts(seen.values):
            return seen
        odd = odd or seen
    return odd


def _why_refused(job: Mapping[str, Any], feeds: Mapping[str, Array], error: Exception) -> str:
    return disagreement(job["input_dims"], {name: array.shape for name, array in feeds.items()}) or short(error)


def _elements(feeds: Mapping[str, Array]) -> int:
    return sum(array.size for array in feeds.values())


def _by_reference(job: Mapping[str, Any], folder: Path) -> Observed | None:
    """For a model that stock ONNX Runtime has no kernels for: the reference in the model's own types."""
    for offer in offers(job, folder):
        feeds = offer.feeds
        model = load_file(folder / WATCHED)
        env: dict[ir.Value, Any] = {v: feeds[v.name] for v in model.graph.inputs if v.name in feeds}
        try:
            made = evaluate_nodes(model.graph, env, model.opset_imports, wide=False)
        except MemoryError:
            raise
        except Exception:  # noqa: S112  other inputs may do
            continue
        return Observed(feeds, {**feeds, **{v.name or "": made[v] for v in model.graph.outputs if v in made}}, offer)
    return None


def offers(job: Mapping[str, Any], folder: Path) -> Iterator[Offer]:
    """Inputs to offer to the model until it takes some: those given, or generated ones for what is not given."""
    given = read_feeds(folder / job["feeds"]) if job["feeds"] else {}
    attempts: list[dict[str, list[Any]] | None] | None = job.get("recipes")
    if attempts is None:
        attempts = every_attempt(load_file(folder / job["prepared"]), job["size"], given, job["shapes"])
    if not attempts:
        yield Offer(0, given)
    for attempt, plain in enumerate(attempts):
        if plain is not None and attempt >= int(job["attempt"]):
            recipes = {name: Recipe.read(recipe) for name, recipe in plain.items()}
            yield Offer(attempt, {**fill(recipes), **given}, recipes)
