from __future__ import annotations

from tests.report.conftest import HOSTILE

from smelt.report import Check, Launch, Times, as_dict, check_line, divide, format_report, table


class Timed:
    def __init__(self, name: str, op_type: str, median_us: float) -> None:
        self.name, self.op_type, self.median_us = name, op_type, median_us


def test_counts_add_up(make_report):
    report = make_report(("a", "b", "c", "d", "e"))
    assert (report.original, report.in_kernels, report.fallbacks, report.nodes) == (5, 4, 1, 5)
    assert report.coverage == 0.8
    facts = as_dict(report)
    assert facts["summary"]["coverage"] == 0.8
    assert facts["reasons"][0]["count"] == 1


def test_the_text_names_coverage_regions_reasons_passes_and_stages(make_report):
    text = format_report(make_report(("a", "b", "c", "d", "e")))
    assert "4 of 5 nodes in kernels (80.0%), 2 regions, 1 node falling back to ONNX Runtime" in text
    assert "alone: nothing to fuse with" in text
    assert "folded x4" in text  # both rounds of the pass
    assert "1.50" in text  # both rounds of the stage
    assert "not verified" in text


def test_regions_with_equal_code_share_a_row(make_report):
    (code,) = make_report(("a", "b", "c", "d", "e")).codes
    assert (code.entry, code.regions, code.nodes) == ("r0", (0, 1), 4)
    assert code.kernels[0].flops == "16*n"


def test_hostile_names_cannot_disturb_a_terminal(make_report):
    text = format_report(make_report(HOSTILE, title="\x1b]0;owned\x07"), full=True)
    assert all(line.isprintable() for line in text.split("\n"))
    assert max(map(len, text.split("\n"))) < 1000


def test_what_does_not_fit_is_counted(make_report):
    report = make_report(("a",))
    rows = tuple(type(report.ops[0])(f"Op{i}", 2, 1, 1) for i in range(30))
    text = format_report(type(report)("t", rows, (), ()))
    assert "… 10 ops more" in text
    assert "Op29" not in text
    assert "Op29" in format_report(type(report)("t", rows, (), ()), full=True)


def test_times_are_shared_between_regions_and_the_rest():
    timed = [Timed("r0_0", "r0", 30.0), Timed("r0_1", "r0", 20.0), Timed("m", "MatMul", 50.0)]
    regions, left = divide(timed, {"r0_0": 0, "r0_1": 1})
    times = Times(regions, left, whole_us=110.0, stock_us=220.0)
    assert regions == {0: 30.0, 1: 20.0}
    assert times.kernel_share == 0.5
    assert times.speedup == 2.0


def test_times_appear_in_the_text(make_report):
    times = Times(
        {0: 3000.0, 1: 1000.0}, (("MatMul", "m", 1000.0),), whole_us=5000.0, stock_us=7500.0, bounds={0: 1500.0}
    )
    text = format_report(make_report(("a", "b", "c", "d", "e"), times=times))
    assert "80% of it in kernels" in text
    assert "1.50x" in text
    assert "4.00 ms" in text  # both regions of the code


def test_kernels_are_listed_by_their_time_with_the_share_of_the_roofline(make_report):
    launches = {"r0": (Launch(40.0).with_bound(10.0).with_bound(10.0),)}
    text = format_report(make_report(("a", "b"), times=Times({0: 50.0}, (), launches=launches)))
    (line,) = [line for line in text.splitlines() if line.split()[:1] == ["k_1"]]
    assert "40.0 us" in line and "100.0%" in line and "50%" in line and "a, b" in line
    unknown = {"r0": (Launch(40.0).with_bound(10.0).with_bound(None),)}
    report = make_report(("a", "b"), times=Times({0: 50.0}, (), launches=unknown))
    assert report.codes[0].kernels[0].bound_us is None and "k_1" in format_report(report)
    assert "k_1" not in format_report(make_report(("a", "b"))), "kernels are listed only where they were timed"


def test_columns_of_numbers_are_set_to_the_right():
    lines = table(("name", "count"), [("a", 5), ("bb", 1234), ("c", None)], indent="")
    assert lines == ["name  count", "----  -----", "a         5", "bb    1,234", "c         -"]


def test_an_error_beyond_the_tolerance_is_shown_beside_that_of_stock():
    near, far = (Check(True, 2, error, 1e-5, (), 3e-2) for error in (2e-7, 4e-2))
    assert check_line(near) == "verified: 2 regions, worst error 2.0e-07, allowed 1e-05"
    assert check_line(far) == "verified: 2 regions, worst error 4.0e-02, of stock ONNX Runtime itself 3.0e-02"
