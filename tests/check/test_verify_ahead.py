"""While a library is built, verification runs stock ONNX Runtime on what it will compare with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from smelt.check import verify
from smelt.check.bindings import Binding
from smelt.check.observe import BUILT, Observed, Offer, Watched

FEEDS = {"x": np.zeros(2, np.float32)}
SIZES = [Binding("", {"n": n}, {"x": np.zeros(n, np.float32)}) for n in (1, 7, 0)]


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def verification(tmp_path: Path, events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verify._Verification, "_bindings", lambda _self, _seen: SIZES)
    job = {"outputs": ["y"], "without_reference": [], "original": "m.onnx", "op_types": [], "skipped_bindings": [1]}
    seen = Observed(FEEDS, {}, Offer(3, FEEDS))
    made = verify._Verification(job, tmp_path, Watched(tmp_path, 1, {}), seen, lambda **event: events.append(event))

    def stock(feeds: dict[str, Any]) -> list[Any]:
        if not feeds["x"].size:
            raise RuntimeError("stock refuses it")
        return [feeds["x"] + 1]

    monkeypatch.setattr(made.whole, "stock", stock)
    return made


def test_stock_runs_at_every_size_that_is_not_skipped_and_says_where(verification, events):
    assert len(list(verification.ahead())) == 2
    steps = [{"at": "observe", "attempt": 3}, {"at": "binding", "number": 0}, {"at": "binding", "number": 2}]
    assert events == steps  # a crash is blamed on the last one
    verification.whole.stock = SimpleNamespace(error="nothing is computed twice")
    assert verification._answer(0, SIZES[0].feeds)[0].tolist() == [1]
    assert verification._answer(2, SIZES[2].feeds) is None


def test_the_wait_for_a_library_ends_between_two_calls(verification, events, tmp_path: Path):
    work = verification.ahead()

    def until_built():
        yield next(work)
        (tmp_path / BUILT).write_text(json.dumps({"library": "l.so"}))
        yield next(work)

    report = verification.report
    assert verify._built(tmp_path, report, until_built()) == {"library": "l.so"}
    assert events[-1] == {"at": "build"} and set(verification.answers) == {None, 0}
