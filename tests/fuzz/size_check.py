"""Random graphs over free sizes: compiled together, run at every binding, compared with stock ONNX Runtime.

Input: seeds. Output: `Tally`: what was compared and what differed. Invariant: where stock ONNX Runtime takes the sizes,
the kernels must take them and give what it gives; where it refuses, an error or an answer are both fine.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from many_graphs import plain_session, sessions
from onnx.reference import ReferenceEvaluator
from size_graphs import SizeGraph

from smelt.base.config import Config

SIZES = (0, 1, 2, 7)
NUDGES = 24  # runs of stock on inputs that differ in their last bits
TOLERANCE = 1e-4  # sums that cancel are noise in both; a wrong index is off by far more


@dataclass
class Tally:
    graphs: int = 0
    compiled: int = 0
    runs: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list[str])


def check(seeds: Sequence[int], config: Config, level: str = "v2", sizes: Sequence[int] = SIZES) -> Tally:
    cases = [case for seed in seeds if (case := _case(seed)) is not None]
    tally = Tally(graphs=len(cases))
    for place, ours in enumerate(sessions([case.model for case in cases], config, level)):
        if isinstance(ours, Exception):
            tally.faults += [f"seed {cases[place].seed}: {ours}"] if _ever_runs(cases[place], sizes) else []
        elif ours is not None:
            tally.compiled += 1
            _compare(cases[place], ours, f"m{place}_", sizes, tally)
    return tally


@dataclass(frozen=True)
class Case:
    seed: int
    graph: SizeGraph
    model: onnx.ModelProto
    stock: ort.InferenceSession


def _case(seed: int) -> Case | None:
    """None where stock ONNX Runtime sees by itself that no binding fits."""
    graph = SizeGraph(seed)
    model = graph.model()
    try:
        return Case(seed, graph, model, plain_session(model))
    except Exception:
        return None


def _ever_runs(case: Case, sizes: Sequence[int]) -> bool:
    """Whether stock ONNX Runtime and the standard's own evaluator both take some binding."""
    outputs = [output.name for output in case.model.graph.output]
    for binding in itertools.product(sizes, repeat=len(case.graph.free)):
        feeds = case.graph.feeds(dict(zip(case.graph.free, binding, strict=True)), case.model)
        try:
            case.stock.run(None, feeds)
        except Exception:
            continue
        if _standard(case.model, feeds, outputs) is not None:
            return True
    return False


def _compare(case: Case, ours: ort.InferenceSession, prefix: str, sizes: Sequence[int], tally: Tally) -> None:
    graph, model, faults = case.graph, case.model, 0
    for binding in itertools.product(sizes, repeat=len(graph.free)):
        bound = dict(zip(graph.free, binding, strict=True))
        feeds = graph.feeds(bound, model)
        try:
            wanted = case.stock.run(None, feeds)
        except Exception:
            tally.refused += 1
            continue
        tally.runs += 1
        try:
            found = ours.run(None, {prefix + name: value for name, value in feeds.items()})
            problem = differs(found, wanted)
        except Exception as error:
            found, problem = None, f"refused: {str(error)[:160]}"
        if problem and not _is_odd(case.model, feeds, found, wanted) and not at_a_jump(case, feeds, found, wanted):
            faults += 1
            if faults == 1:
                tally.faults.append(f"seed {case.seed} at {bound}: {problem}\n{onnx.printer.to_text(model.graph)}")


def _is_odd(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], found: Sequence[np.ndarray] | None, wanted: Sequence[Any]
) -> bool:
    """Whether stock ONNX Runtime takes what the standard does not, such as empty operands of a Concat that do not fit,
    or differs from it, as in the mean of nothing: then what the standard's own evaluator gives is right, output by
    output."""
    if found is None:
        return _standard(model, feeds, [o.name for o in model.graph.output]) is None
    names = [o.name for o, a, b in zip(model.graph.output, found, wanted, strict=True) if differs([a], [b])]
    ours = [a for a, b in zip(found, wanted, strict=True) if differs([a], [b])]
    answers = [_standard(model, feeds, [name]) for name in names]
    return all(right is not None and not differs([a], right) for a, right in zip(ours, answers, strict=True))


def at_a_jump(
    case: Case, feeds: dict[str, np.ndarray], found: Sequence[np.ndarray] | None, wanted: Sequence[np.ndarray]
) -> bool:
    """Whether stock ONNX Runtime itself gives every element that differs, for inputs that differ in their last bits: a
    comparison of two values that are equal but for rounding decided it."""
    if found is None or any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(found, wanted, strict=True)):
        return False
    random = np.random.default_rng(case.seed)
    open_ = [~_fine(a, b) for a, b in zip(found, wanted, strict=True)]
    for _ in range(NUDGES):
        if not any(part.any() for part in open_):
            break
        given = {name: _nudged(array, random) for name, array in feeds.items()}
        runs = case.stock.run(None, given)
        open_ = [part & ~_fine(a, b) for part, a, b in zip(open_, found, runs, strict=True)]
    return not any(part.any() for part in open_)


def _nudged(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One step up or down, or none."""
    if array.dtype.kind != "f":
        return array
    towards = random.choice(np.array([-np.inf, np.nan, np.inf], array.dtype), array.shape)
    return np.where(np.isnan(towards), array, np.nextafter(array, towards)).astype(array.dtype)


def _standard(model: onnx.ModelProto, feeds: dict[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray] | None:
    """What the standard's evaluator gives for these outputs, from the nodes that they need; None where it refuses."""
    needed, nodes = set(outputs), list[onnx.NodeProto]()
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            nodes.insert(0, node)
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "part", list(model.graph.input), infos, list(model.graph.initializer))
    part = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(value) for value in ReferenceEvaluator(part).run(None, dict(feeds))]
    except Exception:
        return None


def differs(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {place} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        fine = _fine(a, b)
        if not fine.all():
            return f"output {place} differs: {a.reshape(-1)[:8]} expected {b.reshape(-1)[:8]}"
    return ""


def _fine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Element by element, of two arrays of one shape: the one as good as the other."""
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.abs(b) + (np.sqrt(np.mean(np.square(b[np.isfinite(b)]))) if np.isfinite(b).any() else 0) + 0.5
        return (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= TOLERANCE * scale)
