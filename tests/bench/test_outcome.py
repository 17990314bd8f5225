"""Results survive on disk, are taken up again, and are summed up as they are."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from smelt.base import Config
from smelt.bench import Ledger, Pace, Plan, as_facts, dependencies, from_facts, micro_case, run_suite, summarize
from smelt.bench.case_bench import CaseBench, against_best
from smelt.bench.cases import Case
from smelt.bench.goals import judge
from smelt.bench.outcome import Outcome, Row
from smelt.bench.paired import Ratio
from smelt.bench.render import columns, print_table, to_markdown
from smelt.bench.timing import Series

Make = Callable[..., Outcome]
QUICK = Pace(rounds=2, slice_s=0.001, warm_s=0.001)


def series(*seconds: float) -> Series:
    return Series(tuple(seconds), tuple(seconds))


def test_what_is_written_is_read_again(outcome: Make):
    few = dataclasses.replace(outcome().rows[1], ratio=Ratio(1.1, 0.0, math.inf, 3))
    made = outcome(*outcome().rows, few)
    assert from_facts(json.loads(json.dumps(as_facts(made)))) == made


def test_the_best_of_the_others_is_who_smelt_is_held_against(outcome: Make):
    rows = [dataclasses.replace(row, best="", vs_best=None) for row in outcome().rows[:3]]
    times = [series(*[1.0] * 8), series(*[0.5] * 8), series(*[0.75] * 8)]
    found = against_best(rows, times)
    assert [row.best for row in found] == ["", "openvino", ""]
    assert found[1].vs_best is not None and found[1].vs_best.value == pytest.approx(1.5)


def test_with_one_other_peer_there_is_no_best_of_many(outcome: Make):
    rows = list(outcome().rows[:2])
    rows[1] = dataclasses.replace(rows[1], best="", vs_best=None)
    assert against_best(rows, [series(1.0), series(0.5)]) == rows


def test_the_summary_is_a_geometric_mean_and_names_who_is_behind(outcome: Make):
    first, best = summarize(outcome())
    assert (first.whom, first.models, first.ahead, first.behind) == ("ort", 2, 1, ("<resnet>",))
    assert first.mean == pytest.approx(math.sqrt(1.6 * 0.9))
    assert best.mean == pytest.approx(math.sqrt(1.25 * 0.8))


def test_columns_that_no_row_fills_are_left_out(outcome: Make, capsys: pytest.CaptureFixture[str]):
    names = [column.name for column in columns(outcome())]
    assert "vs best [95%]" in names and "tokens/s" not in names
    assert {"ms", "p50", "p90", "p99", "first run", "MB", "error", "of limit"} <= set(names)
    decoding = outcome(dataclasses.replace(outcome().rows[0], tokens_per_s=321.0))
    assert "tokens/s" in [column.name for column in columns(decoding)]
    print_table(decoding, color=False)
    assert "321" in capsys.readouterr().out
    assert "not installed: openvino" in to_markdown(outcome())


def test_a_peer_that_was_stopped_is_said_to_be_far_behind(outcome: Make):
    """`too few rounds` would ask for more of them."""
    slow = dataclasses.replace(outcome().rows[1], ratio=Ratio(0.3, 0.0, math.inf, 4), behind=True)
    assert "stopped, far behind" in to_markdown(outcome(slow)) and "too few" not in to_markdown(outcome(slow))


def ledger(path: Path, plan: Plan) -> Ledger:
    return Ledger(path, dependencies(plan, "here"))


def test_a_stopped_run_goes_on_where_it_ended(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    timed: list[str] = []

    def rows(self: CaseBench, threads: int) -> list[Row]:
        timed.append(self.case.name)
        if len(timed) == 2:
            raise KeyboardInterrupt
        return [Row(self.case.name, self.case.about, "ort", threads, median_ms=1.0, work=self.work)]

    monkeypatch.setattr(CaseBench, "rows", rows)
    cases: Sequence[Case] = [micro_case(name, config) for name in ("softmax", "exp", "chain")]
    plan, path = Plan(("ort",), (1,), QUICK), tmp_path / "results.json"
    with pytest.raises(KeyboardInterrupt):
        run_suite(cases, plan, config, ledger=ledger(path, plan))
    outcome = run_suite(cases, plan, config, ledger=ledger(path, plan))
    assert timed == ["softmax", "exp", "exp", "chain"]
    assert [row.case for row in outcome.rows] == ["softmax", "exp", "chain"]
    assert all(row.share for row in outcome.rows)
    assert [row.case for row in ledger(path, plan).rows] == ["softmax", "exp", "chain"]


def test_results_of_another_plan_or_of_other_sources_are_not_taken(outcome: Make, tmp_path: Path):
    plan, path = Plan(), tmp_path / "results.json"
    ledger(path, plan).finish(outcome())
    assert len(ledger(path, plan).rows) == 6
    assert ledger(path, dataclasses.replace(plan, threads=(1,))).rows
    assert not ledger(path, dataclasses.replace(plan, pace=QUICK)).rows
    assert not Ledger(path, {**dependencies(plan, "here"), "smelt": "other"}).rows
    assert not Ledger(path, dependencies(plan, "elsewhere")).rows
    path.write_text("{}")
    assert not ledger(path, plan).rows


def test_results_that_cannot_be_taken_are_set_aside_and_found_again(outcome: Make, tmp_path: Path):
    """Other rounds, or fewer processors, must not end what hours were spent on."""
    plan, path = Plan(), tmp_path / "results.json"
    quick = dataclasses.replace(plan, pace=QUICK)
    ledger(path, plan).finish(outcome())
    other = ledger(path, quick)
    assert path.is_file() and not other.rows
    other.finish(outcome(*outcome().rows[:3]))
    assert other.set_aside is not None and other.set_aside.is_file()
    assert len(ledger(path, quick).rows) == 3
    again = ledger(path, plan)
    assert len(again.rows) == 6
    again.finish(outcome())
    assert len(ledger(path, plan).rows) == 6 and len(ledger(path, quick).rows) == 3
    assert again.set_aside is not None and sorted(tmp_path.iterdir()) == sorted([path, again.set_aside])


def test_a_run_of_some_models_keeps_the_results_of_the_others(outcome: Make, tmp_path: Path):
    plan, path = Plan(), tmp_path / "results.json"
    ledger(path, plan).finish(outcome())
    ledger(path, plan).finish(outcome(*outcome().rows[:3]))
    assert {row.case for row in ledger(path, plan).rows} == {"bert", "<resnet>"}


def test_a_model_that_cannot_be_built_is_a_row_and_not_the_end(config: Config, tmp_path: Path):
    broken = Case("broken", "batch 1", Path(), {}, problem="no such package")
    outcome = run_suite([broken, micro_case("softmax", config)], Plan(("ort",), (1,), QUICK), config)
    assert [row.problem for row in outcome.rows] == ["no such package", ""]


# goals


def goal(outcomes: dict[str, Outcome], start: str):
    return next(goal for goal in judge(outcomes) if goal.text.startswith(start))


def test_without_results_every_goal_is_open():
    assert {found.met for found in judge({})} == {None}


def test_a_goal_is_not_met_by_some_of_the_models(outcome: Make):
    ahead = dataclasses.replace(outcome().rows[1], case="bert-base")
    found = goal({"models": outcome(ahead)}, "every model ahead")
    assert found.met is None and "mobilebert" in found.short[0]


def test_goals_name_what_falls_short(outcome: Make):
    rows = [
        dataclasses.replace(row, case={"bert": "bert-base", "<resnet>": "resnet-50"}[row.case])
        for row in outcome().rows
    ]
    outcomes = {"models": outcome(*rows), "decode": outcome(*rows)}
    behind = goal(outcomes, "every model ahead")
    assert behind.met is False and [line.split(",")[0] for line in behind.short[:-1]] == ["resnet-50"]
    assert goal(outcomes, "peak memory").short[0] == "resnet-50, 2 threads: 120 MB against 100"
    assert goal(outcomes, "geometric mean").met is False
    assert goal(outcomes, "decoding").met is None
