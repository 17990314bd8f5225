"""What happened to a model, for people and for programs: facts, text, HTML."""

from smelt.report.facts import (
    Check,
    CodeRow,
    KernelRow,
    OpRow,
    PassRow,
    ReasonRow,
    RegionRow,
    Report,
    as_dict,
    pass_rows,
    reasons_of,
    report_of,
)
from smelt.report.page import format_html
from smelt.report.picture import Picture, PictureNode, count_ops, draw, op_name, value_text
from smelt.report.readable import counted, in_bytes, in_time, readable
from smelt.report.tables import listed, table
from smelt.report.text import (
    check_line,
    format_report,
    headline,
    ops_lines,
    pass_table,
    reason_lines,
    region_lines,
    stage_lines,
)
from smelt.report.times import Launch, Peaks, Times, by_op, divide

__all__ = [
    "Check",
    "CodeRow",
    "KernelRow",
    "Launch",
    "OpRow",
    "PassRow",
    "Peaks",
    "Picture",
    "PictureNode",
    "ReasonRow",
    "RegionRow",
    "Report",
    "Times",
    "as_dict",
    "by_op",
    "check_line",
    "count_ops",
    "counted",
    "divide",
    "draw",
    "format_html",
    "format_report",
    "headline",
    "in_bytes",
    "in_time",
    "listed",
    "op_name",
    "ops_lines",
    "pass_rows",
    "pass_table",
    "readable",
    "reason_lines",
    "reasons_of",
    "region_lines",
    "report_of",
    "stage_lines",
    "table",
    "value_text",
]
