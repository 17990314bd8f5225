"""The search for sizes: what is faster beyond the noise is kept, within its time, and remembered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import smelt
from smelt.base.config import Config
from smelt.check import Choice, kernel_search, search
from smelt.codegen import KERNEL_SETTINGS
from smelt.ir.records import Entry, KernelInfo, Source

TEXT = """<ir_version: 9, opset_import: ["" : 20]> g (float[n,64] x) => (float[n,48] y, float[n,64] z) {
  p = MatMul(x, w) y = Relu(p) e = Exp(x) z = Softmax(e) }"""
LOOPS = '<ir_version: 9, opset_import: ["" : 20]> g (float[64,32] x) => (float[64,32] y) { p = Exp(x) y = Softmax(p) }'


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Candidates are never run: the second value of every size is 1.2 times as fast, the others are as fast."""
    calls: list[str] = []

    def rounds(_: object, base: object, others: list[object]) -> list[list[list[float]]]:
        calls.append(f"model {len(others)}")
        same = [[100.0 + i % 3, 100.0 + i % 3] for i in range(20)]
        faster = [[120.0, 100.0] for _ in range(20)]
        return [faster] if len(others) == 1 else [faster if place == 1 else same for place in range(len(others))]

    def ticks(self: search._Search, libraries: list[object]) -> list[list[dict[str, list[float]]]]:
        calls.append(f"kernels {len(libraries) - 1}")
        counts = search.launch_counts(self.source)
        return [
            [{entry: [50.0 if place == 2 else 60.0] * count for entry, count in counts.items()} for place in range(n)]
            for n in [len(libraries)] * 20
        ]

    monkeypatch.setattr(search._Search, "_timed", rounds)
    monkeypatch.setattr(search._Search, "_clocked", ticks)
    monkeypatch.setattr("smelt.check.examination.tune", lambda *_: smelt.pipeline.Findings())
    return calls


def settings(folder: Path, seconds: float, text: str = LOOPS) -> tuple[dict[str, int], str]:
    model = onnx.parser.parse_model(text)
    if text is TEXT:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 48), np.float32), "w"))
    config = Config.from_env().with_(cache_dir=folder)
    options = {"force": True, "levels": "v2", "tune": True, "tune_seconds": seconds, "config": config}
    with smelt.compile(model.SerializeToString(), **options) as compiled:
        return compiled.result.artifact.manifest["settings"], " ".join(compiled.result.notes)


def by_setting(chosen: dict[str, int]) -> dict[str, int]:
    return {name.partition(".")[2] or name: value for name, value in chosen.items()}


def test_the_fastest_is_kept_and_remembered(timed: list[str], tmp_path: Path) -> None:
    chosen, note = settings(tmp_path, 600, TEXT)
    library = {"product-block": 49152, "product-rows": 288, "product-grain": 150000}
    assert by_setting(chosen) == {**library, "task-rows": 48, "loop-grain": 30000} and len(chosen) == 5
    assert "product-rows 288 (1.20 times as fast)" in note and "2 kernels cut otherwise (1.20 times as fast)" in note
    assert timed == ["model 3", "model 2", "model 2", "kernels 4", "kernels 2", "model 1"]
    assert settings(tmp_path, 600, TEXT)[0] == chosen and len(timed) == 6


def test_when_the_time_is_over_nothing_is_remembered(timed: list[str], tmp_path: Path) -> None:
    chosen, note = settings(tmp_path, 0)
    assert chosen == {} and "before the time ran out" in note and timed == []
    assert by_setting(settings(tmp_path, 600)[0]) == {"loop-grain": 30000}


def test_sizes_of_kernels_go_when_the_model_is_not_faster(
    timed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search._Search, "_timed", lambda *_: [[[99.0, 100.0]] * 20])
    chosen, note = settings(tmp_path, 600)
    assert chosen == {} and "the defaults are the fastest" in note


def test_kernels_that_share_a_launch_are_judged_together() -> None:
    places = (("a", 0), ("b", 0), ("c", 1), ("d", 2), ("c", 3))
    infos = tuple(KernelInfo(name, "loops", (), "", launch=at) for name, at in places)
    teams = kernel_search.teams_of(Source((), (Entry("r0", (), (), infos),)))
    assert {team.kernels for team in teams} == {frozenset("ab"), frozenset("c"), frozenset("d")}
    (shared,) = (team for team in teams if "c" in team.kernels)
    assert shared.spent({"r0": [1.0, 20.0, 300.0, 4000.0]}) == 4020.0


def test_a_kernel_keeps_its_default_within_the_noise() -> None:
    grain = next(s for s in KERNEL_SETTINGS if s.name == "loop-grain")
    team = kernel_search.Team(frozenset("a"), frozenset((("r0", 0),)))
    base = [{"r0": [100.0 + i % 7]} for i in range(20)]
    little = [{"r0": [98.0 + i % 7]} for i in range(20)]
    unsteady = [{"r0": [80.0 if i % 2 else 125.0]} for i in range(20)]
    much = [{"r0": [70.0 + i % 7]} for i in range(20)]
    trials = kernel_search.judge(grain, ["a"], [team], base, {1: little, 2: unsteady, 3: much})
    assert [t.kept for t in trials] == [False, False, True] and trials[2].name == "a.loop-grain"
    assert not any(t.kept for t in kernel_search.judge(grain, ["a"], [team], base, {1: little, 2: unsteady}))


def test_clocks_are_read_for_every_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing, on a model that is over in no time: every kernel that feels a size has been timed with each."""
    monkeypatch.setattr("smelt.check.examination.tune", lambda *_: smelt.pipeline.Findings())
    found: list[Choice] = []
    run = search._Search.run
    monkeypatch.setattr(search._Search, "run", lambda self, progress: found.append(run(self, progress)) or found[0])
    settings(tmp_path, 600, TEXT)
    tried = [(t.name.partition(".")[2], t.value) for t in found[0].trials if "." in t.name]
    assert sorted(tried) == [
        ("loop-grain", 5000),
        ("loop-grain", 30000),
        *(("task-rows", n) for n in (24, 48, 96, 192)),
    ]
    assert all(t.ratio > 0 for t in found[0].trials)


def test_an_artifact_says_what_was_chosen() -> None:
    from smelt.cli import inspect

    assert "tuned: attention-rows 14, loop-grain 5000" in inspect._manifest_lines(
        {"settings": {"loop-grain": 5000, "attention-rows": 14}}
    )
