"""Random graphs, compiled once for all sizes, give at every size what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from merged import feeds_of, merge, split
from random_graphs import DIMS, RandomGraph, build
from region_check import stock

import smelt

SIZES = ((2, 3, 4), (1, 1, 1), (5, 1, 17), (3, 8, 16), (0, 3, 4), (2, 0, 5), (33, 2, 1), (1, 40, 3))
TOLERANCE = 1e-3  # sums that cancel are noise in both; a wrong index is off by far more
PER_LIBRARY = 6


@st.composite
def graphs(draw: st.DrawFn) -> list[RandomGraph]:
    """Several graphs, so that one compilation serves them all."""
    choose = lambda n: draw(st.integers(0, n - 1))  # noqa: E731
    return [build(choose, 3 + choose(12)) for _ in range(PER_LIBRARY)]


def check(made: Sequence[RandomGraph], levels: str) -> None:
    models = [graph.model() for graph in made]
    for model in models:
        note(onnx.printer.to_text(model.graph))
    with smelt.compile(merge(models), force=True, levels=levels, verify=False, threads=2) as compiled:
        assert not compiled.result.plan.fallbacks, compiled.explain()
        for sizes in SIZES:
            inputs = [g.feeds(dict(zip(DIMS, sizes, strict=True)), m) for g, m in zip(made, models, strict=True)]
            wanted = [_reference(m, i) for m, i in zip(models, inputs, strict=True)]
            if None in wanted:
                continue  # an op that refuses an empty tensor stops the whole run, here as there
            found = split(models, compiled.run(feeds_of(models, inputs)))
            for model, outputs, references in zip(models, found, wanted, strict=True):
                for a, b in zip(outputs, references or (), strict=True):
                    assert _alike(a, b, empty=0 in sizes), f"at {sizes}: {onnx.printer.to_text(model.graph)}"


def _reference(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any] | None:
    try:
        return stock(model, inputs)
    except Exception:
        return None


def _alike(a: np.ndarray, b: np.ndarray, *, empty: bool) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f" or a.size == 0:
        return bool((a == b).all())
    finite = b[np.isfinite(b)].astype(np.float64)
    scale = np.abs(b) + np.sqrt(np.mean(finite**2) if finite.size else 0.0) + 0.5
    with np.errstate(invalid="ignore"):
        fine = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a.astype(np.float64) - b) <= TOLERANCE * scale)
    if empty:
        fine |= np.isnan(a)  # the mean of nothing: not a number by the standard, 0 in ONNX Runtime
    return bool(fine.all())


@settings(max_examples=3, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs_agree_at_every_size(made: list[RandomGraph]):
    check(made, "v2")


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_many_random_graphs_agree_at_every_size(level: str):
    from smelt.base.target import find_target, runs_on_host

    if not runs_on_host(find_target(level)):
        pytest.skip(f"this machine does not run {level}")

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(graphs())
    def run(made: list[RandomGraph]) -> None:
        check(made, level)

    run()
