"""One architecture through torch.compile or through smelt.export, in a process that may die of it.

Input: requests as JSON lines, {"name", "mode"}. Output: answers as JSON lines. Invariant: a model passes only when its
numbers are right at both sizes, all of it ran in ONNX Runtime, and it was compiled no more often than by aot_eager.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
from serving import Answer, Request, serve  # noqa: E402

# From worst to best.
STATUSES = ("crashed", "hanged", "error", "mismatch", "recompiled", "partly", "pass", "refused", "unbuilt")
# torch.compile as users have it; the same without kernels of smelt's own, which is quick; smelt.export.
MODES = ("compile", "plain", "export")
FACTOR, FLOOR, ALONE = 3.0, 1e-5, 1e-3
DRAWS = 15
Outputs = list[Any]
Model = Callable[..., Any]


def main() -> None:
    serve(_prepare)


def _prepare() -> Callable[[Request], Answer]:
    import torch
    import zoo_build  # noqa: F401

    torch.set_num_threads(1)
    return answer


def answer(request: Request) -> Answer:
    started = time.monotonic()
    found = run(request["name"], request["mode"])
    return {**found, "seconds": round(time.monotonic() - started, 1)}


def run(name: str, mode: str) -> dict[str, Any]:
    import torch

    try:
        subject = Subject(name)
    except Exception as error:
        return {"status": "unbuilt", "detail": short(error)}
    with torch.no_grad():
        return (
            exported(subject) if mode == "export" else compiled(subject, kernels=None if mode == "compile" else False)
        )


class Subject:
    """A model with its arguments at two sizes, and what eager makes of them in float32 and float64."""

    def __init__(self, name: str) -> None:
        import torch
        from zoo_build import SIZES_OF_INPUTS, build, inputs

        self.model, config = build(name)
        self.drawn = lambda place, draw: inputs(self.model, config, *SIZES_OF_INPUTS[place], draw)
        self.arguments = [self.drawn(place, 0) for place in range(len(SIZES_OF_INPUTS))]
        with torch.no_grad():
            self.eager = [leaves(self.model(**given)) for given in self.arguments]
            again = leaves(self.model(**self.arguments[0]))
            if not all(torch.equal(a, b) for a, b in zip(self.eager[0], again, strict=True)):
                raise ValueError("its results are random")
            self.exact = self._exact(name)

    def _exact(self, name: str) -> list[Outputs | None]:
        """In float64; None where the model cannot."""
        from zoo_build import exact

        try:
            self.wide = exact(name)
            return [leaves(self.wide(**_doubled(given))) for given in self.arguments]
        except (RuntimeError, TypeError, ValueError):
            return [None] * len(self.arguments)

    def problem(self, place: int, run: Model) -> str:
        """Empty where every output is as near to float64 as eager is, or nearly."""
        found, eager, exact = leaves(run(**self.arguments[place])), self.eager[place], self.exact[place]
        if len(found) != len(eager):
            return f"{len(found)} outputs instead of {len(eager)}"
        for number, (ours, theirs) in enumerate(zip(found, eager, strict=True)):
            said = difference(ours, theirs, exact[number] if exact else None)
            if said:
                return f"size {place}, output {number}: {said}{self._elsewhere(place, number, run) if exact else ''}"
        return ""

    def called(self, place: int, run: Model) -> str:
        """Only that."""
        run(**self.arguments[place])
        return ""

    def _elsewhere(self, place: int, number: int, run: Model) -> str:
        """Errors over other inputs beside eager's: what is wrong is so everywhere, what is unlucky is not."""
        errors: list[tuple[float, float]] = []
        for draw in range(1, DRAWS + 1):
            given = self.drawn(place, draw)
            exact = leaves(self.wide(**_doubled(given)))[number]
            ours, theirs = (relative(leaves(model(**given))[number], exact) for model in (run, self.model))
            errors.append((ours, theirs))
        ours, theirs = (median(column) for column in zip(*errors, strict=True))
        return f"; median over {DRAWS} other inputs {ours:.1e}, of eager {theirs:.1e}"


def _doubled(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value.double() if value.is_floating_point() else value for name, value in given.items()}


def leaves(result: Any) -> Outputs:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def difference(ours: Any, theirs: Any, exact: Any) -> str:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {list(ours.shape)} instead of {theirs.dtype} {list(theirs.shape)}"
    if not ours.is_floating_point():
        return "" if bool((ours == theirs).all()) else "integers differ"
    if exact is None or exact.shape != ours.shape:
        error, bound = relative(ours, theirs), ALONE
    else:
        error, bound = relative(ours, exact), max(FLOOR, FACTOR * relative(theirs, exact))
    return "" if error <= bound else f"error {error:.1e}, allowed {bound:.1e}"


def relative(found: Any, reference: Any) -> float:
    """The largest difference, relative to the value plus the root mean square; NaN and infinities must agree."""
    import torch

    wide, ours = reference.double(), found.double()
    finite = torch.isfinite(wide)
    if not torch.equal(finite, torch.isfinite(ours)):
        return float("inf")
    wide, ours = wide[finite], ours[finite]
    if wide.numel() == 0:
        return 0.0
    return float(((ours - wide).abs() / (wide.abs() + wide.square().mean().sqrt() + 1e-30)).max())


# through torch.compile


def compiled(subject: Subject, kernels: bool | None) -> dict[str, Any]:
    import smelt.frontends.torch_compile as frontend

    try:
        with frontend.Listening() as record:
            counts, problem = _compiles(subject, "smelt", subject.problem, options={"kernels": kernels})
    except Exception as error:
        return _blamed(subject, error)
    taken = sum(graph.taken for graph in record.graphs)
    left = sorted({f"{target}: {reason}" for target, reason in record.fallback_nodes})
    count, allowed = counts[-1], _allowed(subject, counts)
    facts = {"graphs": count, "allowed": allowed, "taken": taken, "left": left[:20], "fallbacks": record.fallbacks[:5]}
    return {"status": _status(problem, count > allowed, bool(left or record.fallbacks)), "detail": problem, **facts}


def _allowed(subject: Subject, counts: Sequence[int]) -> int:
    """How often aot_eager compiles, or fewer times, if that is enough.

    A model that is one graph is compiled again for its second sizes by every backend. The backend `eager` traces a part
    of what aot_eager does, and is compiled no more often.
    """
    if list(counts) == [1, 2]:
        return 2
    least = _compiles(subject, "eager", subject.called)[0][-1]
    return least if counts[-1] <= least else _compiles(subject, "aot_eager", subject.called)[0][-1]


def _blamed(subject: Subject, error: Exception) -> dict[str, Any]:
    """An error is ours unless aot_eager raises as well."""
    try:
        _compiles(subject, "aot_eager", subject.called)
    except Exception as same:
        return {"status": "refused", "detail": f"aot_eager: {short(same)}"}
    return {"status": "error", "detail": short(error)}


def _status(problem: str, too_often: bool, in_torch: bool) -> str:
    return "mismatch" if problem else "recompiled" if too_often else "partly" if in_torch else "pass"


def _compiles(
    subject: Subject, backend: str, judge: Callable[[int, Model], str], options: dict[str, Any] | None = None
) -> tuple[list[int], str]:
    """How many graphs were compiled by the end of each size, and the first problem. `judge` calls the model."""
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = torch.compile(subject.model, backend=backend, options=options)
    counts, problems = list[int](), list[str]()
    for place in range(len(subject.arguments)):
        problems.append(judge(place, model))
        counts.append(int(counters["stats"]["unique_graphs"]))
    return counts, next((said for said in problems if said), "")


# through smelt.export


def exported(subject: Subject) -> dict[str, Any]:
    import torch

    import smelt

    first = subject.arguments[0]
    free = {name: {0: torch.export.Dim.AUTO, **({1: torch.export.Dim.AUTO} if value.dim() == 2 else {})}
            for name, value in first.items()}  # fmt: skip
    try:
        program = torch.export.export(subject.model, (), first, dynamic_shapes=free, strict=False)
    except Exception as error:
        return {"status": "refused", "detail": f"torch.export: {short(error)}"}
    try:
        model = smelt.export(program)
        sizes = _sizes_that_torch_takes(program, subject.arguments)
        problems = [subject.problem(place, model.run) for place in sizes]
    except Exception as error:
        return {"status": "error", "detail": short(error)}
    problem = next((said for said in problems if said), "")
    return {"status": _status(problem, False, False), "detail": problem, "sizes": len(sizes)}


def _sizes_that_torch_takes(program: Any, arguments: Sequence[dict[str, Any]]) -> list[int]:
    """All, unless torch.export itself has fixed a size."""
    places = [0]
    for place, given in enumerate(arguments[1:], 1):
        try:
            program.module()(**given)
            places.append(place)
        except Exception:  # such a program has one size
            continue
    return places


def short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) < 400 else text[:250] + " ... " + text[-150:]
    return f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main()
