"""Predictions from traces: schedules of tasks, costs of loops and memory, and what holds a launch back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from smelt.report import Costs, Report, as_dict, format_html, format_report, scaling_of
from smelt.report.scaling import makespan

COSTS = Costs({2: 1.0}, 10.0, 40.0)


@dataclass
class Launched:
    loops: list[list[float]]
    serial_us: float = 0.0
    entry: str = "r0"
    place: int = 0


@dataclass
class Traced:
    launches: list[Launched]
    outside_us: float = 0.0


def scaled(alone: list[Launched], many: list[Launched], moved: float = 0.0, outside_us: float = 0.0, threads: int = 8):
    traces = {1: Traced(alone, outside_us), threads: Traced(many, outside_us)}
    return scaling_of(traces, {("r0", 0): ("gemm_a", "gemm")}, {("r0", 0): moved}, COSTS, {1: 100.0})


@pytest.mark.parametrize(
    ("tasks", "threads", "wanted"),
    [([3, 3, 3], 1, 9), ([3, 3, 3], 2, 6), ([5, 1, 1, 1, 1, 1], 2, 5), ([1, 1, 1, 5], 2, 6), ([4], 16, 4), ([], 4, 0)],
)
def test_a_free_thread_takes_the_next_task(tasks: list[float], threads: int, wanted: float) -> None:
    assert makespan(tasks, threads) == wanted


def test_equal_tasks_for_all_threads_lose_the_barrier_alone() -> None:
    found = scaled([Launched([[10.0] * 16])], [Launched([[10.0] * 16])])
    assert found.predicted_us == (160.0, 20.0 + 3.0) and found.efficiency[1] == pytest.approx(160 / 8 / 23)


@pytest.mark.parametrize(
    ("many", "moved", "cause"),
    [
        (Launched([[40.0] * 4]), 0.0, "few tasks"),
        (Launched([[10.0] * 8], 80.0), 0.0, "serial"),
        (Launched([[20.0] * 16]), 0.0, "smaller tasks"),
        (Launched([[0.1] * 8] * 20), 0.0, "barriers"),
        (Launched([[20.0] * 8]), 40e6, "memory"),
    ],
)
def test_what_holds_a_launch_back_is_named(many: Launched, moved: float, cause: str) -> None:
    alone = Launched([[sum(map(sum, many.loops))]], many.serial_us) if cause != "smaller tasks" else Launched([[160.0]])
    (row,) = scaled([alone], [many], moved).rows
    assert row.efficiency[1] < 0.8 and row.held_back == f"{cause} from 8 threads"


def test_what_two_threads_take_longer_is_the_way_from_another_cache() -> None:
    traces = {1: Traced([Launched([[80.0] * 8])]), 2: Traced([Launched([[120.0] * 8])])}
    traces[8] = Traced([Launched([[65.0] * 16])])
    found = scaling_of(traces, {("r0", 0): ("gemm_a", "gemm")}, {}, COSTS, {})
    lost = found.rows[0].shares[2].lost_us
    assert lost["other caches"] == 320 / 8 and lost["smaller tasks"] == 80 / 8
    assert found.rows[0].held_back == "other caches from 2 threads"


def test_a_barrier_grows_with_the_logarithm_of_threads_beyond_those_measured() -> None:
    costs = Costs({2: 1.0, 4: 5.0}, 10.0, 40.0)
    assert [costs.barrier_us(n) for n in (1, 2, 4, 16)] == [0.0, 1.0, 5.0, 10.0]


def test_memory_serves_threads_up_to_its_limit_and_caches_have_none() -> None:
    assert [COSTS.memory_us(40e6, n) for n in (1, 2, 4, 64)] == [4000.0, 2000.0, 1000.0, 1000.0]
    assert COSTS.memory_us(4e6, 2) == 0.0


def test_what_onnx_runtime_does_itself_does_not_scale() -> None:
    found = scaled([Launched([[10.0] * 8])], [Launched([[10.0] * 8])], outside_us=20.0)
    assert found.predicted_us == (100.0, 10.0 + 3.0 + 20.0) and found.off == (0.0, None)


def test_what_the_model_loses_adds_up_to_what_efficiency_lacks() -> None:
    many = Launched([[10.0] * 4, [20.0] * 8], serial_us=10.0)
    found = scaled([Launched([[40.0], [160.0]], serial_us=10.0)], [many], moved=40e6, outside_us=30.0)
    (alone, lost) = found.lost
    assert not any(alone.values()) and sum(lost.values()) == pytest.approx(1 - found.efficiency[1])
    assert lost["ONNX Runtime"] == pytest.approx(30 * 7 / 8 / found.predicted_us[1])
    assert lost["few tasks"] == pytest.approx((10 - 40 / 8) / found.predicted_us[1])


def test_text_json_and_page_say_the_same() -> None:
    found = scaled([Launched([[10.0] * 4])], [Launched([[10.0] * 4])])
    report = replace(Report("m", (), (), ()), scaling=found)
    text, page, facts = format_report(report), format_html(report), as_dict(report)["scaling"]
    assert "few tasks from 8 threads" in text and "few tasks from 8 threads" in page and "-60.0%" in text
    assert "lost, of the predicted time" in text and "few tasks 38%, barriers 23%" in page
    assert facts["threads"] == (1, 8) and facts["off"] == (pytest.approx(-0.6), None)
    assert facts["rows"][0]["held_back"] == "few tasks from 8 threads"
