"""Verification inside the examining process: each region, then the whole model, by the numerics contract.

Input: a job of `examine` and the models of its folder. Output: events: a verdict per region and one for the model.
Invariant: a region runs on the values that it gets in the real model, at every CPU level of this machine, and once more
with NaN and infinities among them; it is compared with the float64 reference, and with stock ONNX Runtime where there
is none.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import onnx_ir as ir

from smelt.check.contract import Comparison, compare_all, has_steps, joined, op_class
from smelt.check.inputs import ATTEMPTS, make_feeds
from smelt.ir.walk import subgraphs
from smelt.ops.reference import NoReferenceError, evaluate_nodes
from smelt.runtime import Session, SessionSettings, session_for, write_call

Array = np.ndarray[Any, Any]

_SPRINKLED: Final = 3
# A reference for more constants than this would take longer than it is worth; stock ONNX Runtime serves instead.
_MAX_CONSTANTS: Final = 400_000_000


class Report(Protocol):
    def __call__(self, **event: Any) -> None: ...


def verify(job: Mapping[str, Any], folder: Path, report: Report) -> None:
    values = observe(job, folder, report)
    if values is None:
        return
    libraries = level_libraries(Path(job["library"]), job["levels"], folder)
    check = _RegionCheck(folder, values, libraries, int(job["threads"]), job.get("calls"))
    done, right = set(job["done"]), not job["rejected"]
    for region in job["regions"]:
        if region["index"] not in done:
            report(at="region", index=region["index"])
            found = check(region)
            right = right and not found[0].problem
            report(verdict=_verdict(region["index"], found, list(libraries)))
    if not right:  # there will be another model
        return
    report(at="model")
    found = _whole(job, folder, values, libraries)
    other = _other_branches(job, folder, values) if job["nested"] and not found[0].problem else None
    if other is not None:
        found = max(found, _whole(job, folder, other, libraries), key=lambda f: (bool(f[0].problem), f[0].error))
    report(model=_verdict(None, found, list(libraries)))


def _verdict(index: int | None, found: tuple[Comparison, str], levels: list[str]) -> dict[str, Any]:
    comparison, note = found
    return {
        "region": index,
        "error": _finite(comparison.error),
        "stock_error": _finite(comparison.stock_error),
        "tolerance": comparison.tolerance,
        "rejected": comparison.problem,
        "failing": list(comparison.failing),
        "levels": levels,
        "note": note,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None else min(float(value), 1e300)


def level_libraries(library: Path, levels: Sequence[str], folder: Path) -> dict[str, Path]:
    """One copy of the library per level, the best first. A copy is another library to the loader, which reads the
    level when it is registered."""
    copies: dict[str, Path] = {}
    for level in levels:
        copies[level] = folder / f"{level}_{library.name}"
        if not copies[level].exists():
            shutil.copyfile(library, copies[level])
    return copies


def open_at(model: Path, libraries: Mapping[str, Path], level: str, settings: SessionSettings) -> Session:
    os.putenv("SMELT_LEVEL", level)
    return session_for(model, libraries[level], settings)


# the values of the real model


def observe(job: Mapping[str, Any], folder: Path, report: Report) -> dict[str, Array] | None:
    """Run stock ONNX Runtime with every region border as an output, on inputs that the model takes."""
    report(at="observe", attempt=int(job["attempt"]))
    settings = SessionSettings(threads=int(job["threads"]), optimization="disable", log_severity=4, spin=False)
    try:
        session = session_for(folder / "watched.onnx", None, settings)
    except Exception as error:  # onnxruntime raises many kinds
        values = _observe_by_reference(job, folder)
        if values is None:
            report(failed=f"stock ONNX Runtime does not load the model: {short(error)}")
        return values
    names = [output.name for output in session.get_outputs()]
    reasons: list[str] = []
    for attempt, feeds in feeds_to_try(job, folder):
        if attempt > int(job["attempt"]):
            report(at="observe", attempt=attempt)
        try:
            values = {**feeds, **dict(zip(names, session.run(names, feeds), strict=True))}
        except Exception as error:
            reasons.append(short(error))
            continue
        odd = _contradiction(values, job["declared"])
        if not odd or job["feeds"]:
            return values
        reasons.append(odd)
    given = "the inputs given are" if job["feeds"] else "no generated inputs are"
    report(failed=f"{given} accepted by stock ONNX Runtime: {reasons[0] if reasons else 'inputs that are no tensors'}")
    return None


def _observe_by_reference(job: Mapping[str, Any], folder: Path) -> dict[str, Array] | None:
    """For a model that stock ONNX Runtime has no kernels for: the reference in the model's own types."""
    for _, feeds in feeds_to_try(job, folder):
        model = ir.load(folder / "watched.onnx")
        env: dict[ir.Value, Any] = {v: feeds[v.name] for v in model.graph.inputs if v.name in feeds}
        try:
            made = evaluate_nodes(model.graph, env, model.opset_imports, wide=False)
        except MemoryError:
            raise
        except Exception:  # noqa: S112  other inputs may do
            continue
        return {**feeds, **{v.name or "": made[v] for v in model.graph.outputs if v in made}}
    return None


def _contradiction(values: Mapping[str, Any], declared: Mapping[str, list[int | None]]) -> str:
    """Generated sizes may break what the model says of its values; then the fault is with the inputs."""
    for name, dims in declared.items():
        shape = getattr(values.get(name), "shape", None)
        if shape is None:
            continue
        fits = len(dims) == len(shape) and all(d is None or d == s for d, s in zip(dims, shape, strict=True))
        if not fits:
            return f"a value of declared shape {dims} became {list(shape)}"
    return ""


def feeds_to_try(job: Mapping[str, Any], folder: Path) -> Iterable[tuple[int, dict[str, Array]]]:
    """Inputs to offer to the model until it takes some."""
    if job["feeds"]:
        return [(0, read_feeds(folder / job["feeds"]))]
    model = ir.load(folder / "stock.onnx")
    made = ((n, make_feeds(model, job["size"], n)) for n in range(int(job["attempt"]), ATTEMPTS))
    return ((attempt, feeds) for attempt, feeds in made if feeds is not None)


def write_feeds(path: Path, feeds: Mapping[str, Any]) -> None:
    """By position with a list of names: a name may be anything, a member of an archive may not."""
    names = np.array(list(feeds), dtype=np.str_)
    arrays = {f"a{i}": np.asarray(value) for i, value in enumerate(feeds.values())}
    np.savez(path, names=names, **arrays)  # pyright: ignore[reportArgumentType]


def read_feeds(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return {str(name): np.array(archive[f"a{i}"]) for i, name in enumerate(archive["names"])}


def short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


# one region


@dataclass(frozen=True)
class _Case:
    """Inputs of one call and what should come out."""

    inputs: list[Array]
    reference: list[Any]
    stock: Sequence[Array]
    stock_is_reference: bool
    moved: Callable[[], Sequence[Any]] | None = None

    def compare(self, results: Sequence[Array], op_types: Sequence[str]) -> Comparison:
        return compare_all(
            results, self.reference, self.stock, op_class(op_types), steps=has_steps(op_types),
            stock_is_reference=self.stock_is_reference, moved=self.moved,
        )  # fmt: skip


class _RegionCheck:
    def __init__(
        self, folder: Path, values: Mapping[str, Array], libraries: Mapping[str, Path], threads: int, calls: str | None
    ) -> None:
        self.folder = folder
        self.values = values
        self.libraries = libraries
        self.settings = SessionSettings(threads=threads, log_severity=4, spin=False)
        self.calls = Path(calls) if calls else None
        self.best = next(iter(libraries))

    def __call__(self, region: Mapping[str, Any]) -> tuple[Comparison, str]:
        try:
            return self._twin(region) if region["twin"] else self._first(region)
        except MemoryError:
            raise
        except Exception as error:
            return Comparison(problem=f"the kernel refused its inputs: {short(error)}"), ""

    def _twin(self, region: Mapping[str, Any]) -> tuple[Comparison, str]:
        """The code was checked already; this one shows that it is wired right."""
        inputs = [self.values[name] for name in region["inputs"]]
        stock = [self.values[name] for name in region["outputs"]]
        results = self._run(region, self.best, inputs)
        found = compare_all(results, stock, None, "", stock_is_reference=True)
        if not found.problem:
            return found, "same code as an earlier region; compared with stock ONNX Runtime"
        return self._first(region)

    def _first(self, region: Mapping[str, Any]) -> tuple[Comparison, str]:
        values = {name: self.values[name] for name in (*region["inputs"], *region["plain_inputs"])}
        case, note = self._case(region, values, [self.values[name] for name in region["outputs"]])
        if self.calls is not None:
            self._keep(region, case)
        worst = Comparison()
        problems: list[Comparison] = []
        for level in self.libraries:
            found = case.compare(self._run(region, level, case.inputs), region["op_types"])
            if found.problem:
                problems.append(replace(found, problem=f"{level}: {found.problem}"))
            worst = found if found.error >= worst.error else worst
        problems += self._special(region, values)
        return joined(problems) if problems else worst, note

    def _case(
        self, region: Mapping[str, Any], values: Mapping[str, Array], stock: Sequence[Array]
    ) -> tuple[_Case, str]:
        inputs = [values[name] for name in region["inputs"]]
        plain, path = [values[name] for name in region["plain_inputs"]], self.folder / region["plain"]
        try:
            return _Case(
                inputs, evaluate_model(path, plain), stock, False, lambda: evaluate_model(path, _moved(plain))
            ), ""
        except NoReferenceError as error:
            note = f"compared with stock ONNX Runtime, as there is no reference: {short(error)}"
            return _Case(inputs, list(stock), stock, True), note

    def _special(self, region: Mapping[str, Any], values: Mapping[str, Array]) -> list[Comparison]:
        """NaN and infinities must come out where stock ONNX Runtime has them, or where the reference has."""
        sprinkled = _sprinkled(values)
        if sprinkled is None:
            return []
        stock = self._stock(region, sprinkled)
        inputs = [sprinkled[name] for name in region["inputs"]]
        results = {level: self._run(region, level, inputs) for level in self.libraries}
        if stock is not None:
            results = {level: made for level, made in results.items() if _compare_special(made, stock, None).problem}
        if not results:
            return []
        reference = self._special_reference(region, sprinkled)  # takes longer than all the rest, and is rarely needed
        found = [(level, self._unlike(made, stock, reference)) for level, made in results.items()]
        return [replace(one, problem=f"{level}: {one.problem}") for level, one in found if one.problem]

    def _unlike(
        self, results: Sequence[Array], stock: Sequence[Array] | None, reference: Sequence[Any] | None
    ) -> Comparison:
        """How results differ from the reference; from stock ONNX Runtime where there is none."""
        if reference is not None:
            found = _compare_special(results, reference, stock)
            return replace(found, problem=found.problem and f"with NaN and inf among the inputs, {found.problem}")
        if stock is None:
            return Comparison()
        found = _compare_special(results, stock, None)
        return replace(found, problem="NaN and inf come out elsewhere than with stock ONNX Runtime")

    def _special_reference(self, region: Mapping[str, Any], values: Mapping[str, Array]) -> list[Any] | None:
        try:
            return evaluate_model(self.folder / region["plain"], [values[name] for name in region["plain_inputs"]])
        except NoReferenceError:
            return None

    def _stock(self, region: Mapping[str, Any], values: Mapping[str, Array]) -> list[Array] | None:
        """What stock ONNX Runtime gives for the region's own nodes; None where it has no kernels for them."""
        settings = SessionSettings(threads=1, optimization="disable", log_severity=4, spin=False)
        feeds = {f"i{place}": values[name] for place, name in enumerate(region["plain_inputs"])}
        try:
            return session_for(self.folder / region["plain"], None, settings).run(None, feeds)
        except Exception:
            return None

    def _run(self, region: Mapping[str, Any], level: str, inputs: Sequence[Array]) -> list[Array]:
        session = open_at(self.folder / region["custom"], self.libraries, level, self.settings)
        return session.run(None, {f"i{place}": array for place, array in enumerate(inputs)})

    def _keep(self, region: Mapping[str, Any], case: _Case) -> None:
        """The call as the standalone program reads it: constants are inputs there too."""
        assert self.calls is not None
        model = ir.load(self.folder / region["custom"])
        node = model.graph[0]
        fed = {f"i{place}": array for place, array in enumerate(case.inputs)}
        arrays = [_operand(value, fed) for value in node.inputs]
        write_call(self.calls / f"{region['entry']}.call", arrays, case.stock)


def _operand(value: ir.Value | None, fed: Mapping[str, Array]) -> Array | None:
    if value is None:
        return None
    return fed[value.name or ""] if value.const_value is None else np.asarray(value.const_value.numpy())


def _compare_special(results: Sequence[Array], reference: Sequence[Any], stock: Sequence[Array] | None) -> Comparison:
    """Integers are left out: what NaN becomes as an integer is not defined. Beside infinities, large values cancel, so
    the bound is that of products."""
    floats = [place for place, array in enumerate(results) if array.dtype.kind not in "iub"]
    yardstick = None if stock is None else [stock[i] for i in floats]
    found = compare_all(
        [results[i] for i in floats], [reference[i] for i in floats], yardstick, "product", steps=True
    )  # fmt: skip
    return replace(found, failing=tuple(floats[place] for place in found.failing))


def _sprinkled(values: Mapping[str, Array]) -> dict[str, Array] | None:
    """The same values with a few NaN and infinities in every float tensor; None where there is none."""
    rng = np.random.default_rng(7)
    out: dict[str, Array] = {}
    changed = False
    for name, array in values.items():
        out[name] = array
        if array.dtype.kind == "f" and array.size:
            out[name] = array.copy()
            places = rng.integers(0, array.size, _SPRINKLED)
            out[name].reshape(-1)[places] = np.array([np.nan, np.inf, -np.inf], array.dtype)
            changed = True
    return out if changed else None


def _moved(arrays: Sequence[Array]) -> list[Array]:
    """Every float, but zeros, moved by one unit in its last place, up or down."""
    rng = np.random.default_rng(11)
    out: list[Array] = []
    for array in arrays:
        if array.dtype.kind != "f":
            out.append(array)
            continue
        towards = rng.choice(np.array([-np.inf, np.inf], array.dtype), array.shape)
        moved = array.copy()
        with np.errstate(all="ignore"):
            np.nextafter(array, towards, out=moved, where=np.isfinite(array) & np.not_equal(array, 0))
        out.append(moved)
    return out


# the whole model


def _whole(
    job: Mapping[str, Any], folder: Path, values: Mapping[str, Array], libraries: Mapping[str, Path]
) -> tuple[Comparison, str]:
    names: list[str] = job["outputs"]
    feeds = {name: values[name] for name in job["inputs"] if name in values}
    stock = [values[name] for name in names]
    settings = SessionSettings(threads=int(job["threads"]), log_severity=4, spin=False)
    try:
        session = open_at(folder / "fast.onnx", libraries, next(iter(libraries)), settings)
        results = session.run(names, feeds)
    except Exception as error:
        return Comparison(problem=f"the model does not run: {short(error)}"), ""
    path, steps = folder / "stock.onnx", has_steps(job["op_types"])
    reference, note = _model_reference(path, feeds, stock)

    def moved() -> Sequence[Any]:
        nearby = dict(zip(feeds, _moved(list(feeds.values())), strict=True))
        return _model_reference(path, nearby, stock)[0]

    found = compare_all(
        results, reference, stock, "model", steps=steps, stock_is_reference=bool(note), moved=None if note else moved
    )
    return found, note


def _other_branches(job: Mapping[str, Any], folder: Path, values: Mapping[str, Array]) -> dict[str, Array] | None:
    """The values with every truth value of the inputs turned round, which takes the other branch of an If."""
    feeds = {name: values[name] for name in job["inputs"] if name in values}
    if not any(array.dtype == np.bool_ for array in feeds.values()):
        return None
    turned = {
        name: np.logical_not(array, out=np.empty_like(array)) if array.dtype == np.bool_ else array
        for name, array in feeds.items()
    }
    names: list[str] = job["outputs"]
    settings = SessionSettings(threads=1, optimization="disable", log_severity=4, spin=False)
    try:
        made = session_for(folder / "stock.onnx", None, settings).run(names, turned)
    except Exception:
        return None
    return {**turned, **dict(zip(names, made, strict=True))}


def _model_reference(path: Path, feeds: Mapping[str, Array], stock: Sequence[Array]) -> tuple[list[Any], str]:
    model = ir.load(path)
    constants = sum(v.const_value.size for v in model.graph.initializers.values() if v.const_value is not None)
    if constants > _MAX_CONSTANTS:
        return list(stock), "compared with stock ONNX Runtime, as the model is large"
    wanted = [v for v in model.graph.inputs if v.name in feeds]
    try:
        return _evaluated(model, {v: feeds[v.name or ""] for v in wanted}), ""
    except NoReferenceError as error:
        return list(stock), f"compared with stock ONNX Runtime, as there is no reference: {short(error)}"


def evaluate_model(path: Path, inputs: Sequence[Array]) -> list[Any]:
    """The outputs of a model by the float64 reference."""
    model = ir.load(path)
    return _evaluated(model, dict(zip(model.graph.inputs, inputs, strict=True)))


def _evaluated(model: ir.Model, env: dict[ir.Value, Any]) -> list[Any]:
    """Node by node; a value is dropped after its last use, so that long models fit."""
    uses = Counter(v for node in model.graph for v in node.inputs if v is not None)
    uses.update(model.graph.outputs)
    nested = any(True for node in model.graph for _ in subgraphs(node))  # bodies read values of the graph around them
    for node in model.graph:
        try:
            evaluate_nodes([node], env, model.opset_imports)
        except (NoReferenceError, MemoryError):
            raise
        except Exception as error:  # a rule that does not know this form of its op
            raise NoReferenceError(f"{node.op_type}: {short(error)}") from error
        for value in () if nested else node.inputs:
            if value is not None:
                uses[value] -= 1
                if not uses[value]:
                    env.pop(value, None)
    return [env[v] if v in env else _constant(v) for v in model.graph.outputs]


def _constant(value: ir.Value) -> Array:
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy())
