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


def test_lower_levels_run_the_whole_model_where_their_regions_met_sizes_of_1_alone(verification):
    verification.libraries = {"v4": Path("v4.so"), "v2": Path("v2.so")}
    verification.job["input_dims"] = {"x": ["n"]}
    at = {binding.sizes["n"]: verification._levels_at(binding) for binding in SIZES}
    assert at == {1: ["v4"], 7: ["v4"], 0: ["v4"]}
    verification.seen = Observed({"x": np.zeros(1, np.float32)}, {})
    assert verification._levels_at(SIZES[1]) == ["v4", "v2"] and verification._levels_at(SIZES[2]) == ["v4"]
    verification.is_expensive = True
    assert verification._levels_at(SIZES[1]) == ["v4"]


def test_what_costs_much_is_told_by_counted_work_and_not_by_a_clock(verification, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verify, "load_file", lambda path: SimpleNamespace(graph=SimpleNamespace(inputs=[])))
    for work, seconds, is_expensive in ((9e9, 100.0, False), (2e10, 0.2, True), (2e10, 0.01, False)):
        monkeypatch.setattr(verify, "forecast", lambda *_, work=work: work)
        verification.seen = Observed(FEEDS, {}, Offer(3, FEEDS), seconds)
        vars(verification).pop("is_expensive", None)
        assert verification.is_expensive is is_expensive


def test_a_verdict_on_regions_is_one_on_the_whole_of_the_same_bits(verification):
    right = verify.Judged(verify.Comparison(error=1e-7))
    made, stock = np.ones(3, np.float32), np.ones(3, np.float32) * 2
    verification.whole.passed = {"y": verify.Passed(made, stock, right)}
    assert verification.whole._judged_before([made.copy()], [stock.copy()]) is right
    assert verification.whole._judged_before([made + 1], [stock]) is None
    assert verification.whole._judged_before([made], [stock + 1]) is None
    verification.whole.passed = {}
    assert verification.whole._judged_before([made], [stock]) is None


def test_the_whole_model_is_as_wrong_as_its_worst_level(verification, monkeypatch: pytest.MonkeyPatch):
    wrong = {"v3": verify.Judged(verify.Comparison(problem="v3 is wrong"))}
    at_level = lambda level, *_: wrong.get(level, verify.Judged(verify.Comparison(error=1.0)))  # noqa: E731
    monkeypatch.setattr(verification.whole, "_at_level", at_level)
    verification.whole.libraries = dict.fromkeys(("v4", "v3", "v2"), Path("l.so"))
    assert not verification.whole(verification.seen, []).comparison.problem
    assert verification.whole(verification.seen, [], 0, ["v4", "v3", "v2"]).comparison.problem == "v3 is wrong"
