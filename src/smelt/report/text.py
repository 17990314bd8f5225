"""Report -> plain text, for a terminal and for `CompiledModel.explain`.

Input: a `Report`. Output: text without escape sequences. Invariant: what is not shown for length is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from smelt.report.facts import Check, CodeRow, KernelRow, PassRow, Report
from smelt.report.precision import precision_lines
from smelt.report.readable import counted, in_bytes, in_time
from smelt.report.scaling import scaling_lines
from smelt.report.tables import listed, table

_MAX_ROWS = 20
_INDICES = 8


def format_report(report: Report, *, full: bool = False) -> str:
    """Everything but the generated source. `full` shows all rows."""
    limit = 1 << 30 if full else _MAX_ROWS
    parts = [
        [headline(report)],
        ops_lines(report, limit),
        region_lines(report, limit),
        kernel_lines(report, limit),
        form_lines(report),
        reason_lines(report, limit),
        time_lines(report, limit),
        scaling_lines(report.scaling, limit),
        pass_lines(report),
        stage_lines(report),
        [check_line(report.check)],
        fault_lines(report, limit),
        precision_lines(report.precision, limit),
        [f"note: {note}" for note in report.notes],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def headline(report: Report) -> str:
    """One line: how much is in kernels."""
    regions = counted(len(report.regions), "region")
    share = f"{report.in_kernels:,} of {counted(report.nodes, 'node')} in kernels ({report.coverage:.1%})"
    text = f"{report.title}: {share}, {regions}"
    return text + (f", {counted(report.fallbacks, 'node')} falling back to ONNX Runtime" if report.fallbacks else "")


def ops_lines(report: Report, limit: int = _MAX_ROWS) -> list[str]:
    """The table of ops before and after."""
    rows = [(r.op, r.original, r.in_kernels or None, r.fallbacks or None) for r in report.ops[:limit]]
    rest = report.ops[limit:]
    if rest:
        sums = (sum(r.original for r in rest), sum(r.in_kernels for r in rest), sum(r.fallbacks for r in rest))
        rows.append((f"… {counted(len(rest), 'op')} more", sums[0], sums[1] or None, sums[2] or None))
    total = ("total", report.original, report.in_kernels, report.fallbacks)
    return table(("op", "original", "in kernels", "fallback"), [*rows, total])


def region_lines(report: Report, limit: int = _MAX_ROWS) -> list[str]:
    """One row per distinct code: the layers of a model usually share theirs."""
    if not report.regions:
        return ["no regions: ONNX Runtime runs the whole model"]
    codes = report.codes
    timed = any(row.time_us is not None for row in codes)
    header = ["code", "regions", "nodes", "kernels", *(("time", "share", "of roofline") if timed else ()), "ops"]
    whole = report.times.kernel_us + report.times.fallback_us if report.times else 0.0
    rows = [
        [r.entry, len(r.regions), r.nodes, len(r.kernels), *(_time_cells(r, whole) if timed else ()), _ops_of(r)]
        for r in codes[:limit]
    ]
    return [*table(header, rows), *_more(len(codes), limit, "code")]


def _ops_of(row: CodeRow) -> str:
    return f"in {row.within}: {listed(row.ops)}" if row.within else listed(row.ops)


def kernel_lines(report: Report, limit: int = _MAX_ROWS) -> list[str]:
    """The kernels that take longest, where each was timed. One that runs in several layers is one row."""
    groups: dict[str, list[KernelRow]] = {}
    for code in report.codes:
        for kernel in code.kernels:
            if kernel.time_us is not None:
                groups.setdefault(kernel.name, []).append(kernel)
    if not groups:
        return []
    whole = sum(k.time_us or 0.0 for rows in groups.values() for k in rows)
    ordered = sorted(groups.values(), key=lambda rows: -sum(k.time_us or 0.0 for k in rows))
    cells = [_kernel_cells(rows, whole) for rows in ordered[:limit]]
    header = ("kernel", "kind", "launches", "time", "share", "of roofline", "nodes")
    return [*table(header, cells), *_more(len(ordered), limit, "kernel")]


def form_lines(report: Report) -> list[str]:
    """Which kernel forms the backend chose from its table, the family of their micro-kernels, and why."""
    found = Counter((k.form, k.micro_kernels, k.reason) for code in report.codes for k in code.kernels if k.form)
    if not found:
        return []
    rows = [(form, count, micro or "-", reason) for (form, micro, reason), count in sorted(found.items())]
    return table(("kernel form", "kernels", "micro-kernels", "taken because"), rows)


def _kernel_cells(rows: list[KernelRow], whole: float) -> tuple[str, ...]:
    spent = sum(k.time_us or 0.0 for k in rows)
    bounds = [k.bound_us for k in rows]
    known = sum(b for b in bounds if b is not None) if all(b is not None for b in bounds) else 0.0
    bound = f"{known / spent:.0%}" if known and spent else "-"
    share = f"{spent / whole:.1%}" if whole else "-"
    nodes = ", ".join(rows[0].nodes[:3]) + (f" … {len(rows[0].nodes) - 3} more" if len(rows[0].nodes) > 3 else "")
    return rows[0].name, rows[0].kind, str(len(rows)), in_time(spent), share, bound, nodes


def _time_cells(code: CodeRow, whole: float) -> tuple[str, str, str]:
    if code.time_us is None:
        return "-", "-", "-"
    share = f"{code.time_us / whole:.1%}" if whole else "-"
    bound = f"{code.bound_us / code.time_us:.0%}" if code.bound_us and code.time_us else "-"
    return in_time(code.time_us), share, bound


def reason_lines(report: Report, limit: int = _MAX_ROWS) -> list[str]:
    """Why nodes were left, the most frequent reason first."""
    if not report.reasons:
        return []
    rows = [(row.count, listed(row.ops), row.reason) for row in report.reasons[:limit]]
    return [
        *table(("nodes", "ops", "fall back to ONNX Runtime because"), rows),
        *_more(len(report.reasons), limit, "reason"),
    ]


def timed_lines(report: Report) -> list[str]:
    """The artifact against stock, as `compile` measured it."""
    if not report.timed:
        return []
    return [f"timed against stock ONNX Runtime, times as fast [95%]: {', '.join(report.timed)}"]


def time_lines(report: Report, limit: int = _MAX_ROWS) -> list[str]:
    times = report.times
    if times is None:
        return []
    share = f" ({times.kernel_share:.0%} of it in kernels)" if times.kernel_share is not None else ""
    lines = [f"profile at {times.shapes or 'the shapes of the model'}:"]
    if times.whole_us is not None:
        lines.append(f"  this artifact {in_time(times.whole_us)} a run{share}")
    if times.stock_us is not None and times.speedup is not None:
        lines.append(f"  stock model   {in_time(times.stock_us)} a run: {times.speedup:.2f}x")
        lines.append("  medians of alternating runs; `smelt bench` says how sure such a ratio is")
    if times.fallbacks:
        rows = [(op, name, in_time(us)) for op, name, us in times.fallbacks[: min(limit, 8)]]
        lines += table(("fallback op", "node", "time"), rows)
    return lines


def pass_lines(report: Report) -> list[str]:
    return pass_table(report.passes)


def pass_table(rows: Iterable[PassRow]) -> list[str]:
    """Passes and rules with how often they were applied and how long they took."""
    shown = [(row.name, row.count, in_time(row.seconds * 1e6), row.done) for row in rows]
    return table(("pass", "times", "took", "what it did"), shown)


def stage_lines(report: Report) -> list[str]:
    """Seconds by stage, and what was built."""
    if not report.stages:
        return []
    lines = table(("stage", "seconds"), [(name, f"{seconds:.2f}") for name, seconds in report.stages])
    total = sum(seconds for _, seconds in report.stages)
    return [*lines, f"  {total:.2f} s in all{_built(report)}"]


def _built(report: Report) -> str:
    library = report.library
    if not library:
        return ""
    origin = "from the cache" if library["cached"] else f"built by {library['compiler']}"
    return f"; library {in_bytes(library['bytes'])} for {', '.join(library['levels'])}, {origin}"


def check_line(check: Check) -> str:
    """The verdict in one line, and one line for each reason to reject regions."""
    rejected = [f"  {_regions_text(indices)} rejected: {reason}" for reason, indices in check.by_reason()]
    if not check.checked:
        return "\n".join(["not verified", *rejected])
    apart = f", {check.inside} of them only with the model as a whole" if check.inside else ""
    error = f", {check.error_text}" if check.error_text else ""
    return "\n".join([f"verified: {counted(check.regions + check.inside, 'region')}{apart}{error}", *rejected])


def _regions_text(indices: Sequence[int]) -> str:
    shown = ", ".join(map(str, indices[:_INDICES]))
    more = f" and {len(indices) - _INDICES} more" if len(indices) > _INDICES else ""
    return f"{'region' if len(indices) == 1 else 'regions'} {shown}{more}"


def fault_lines(report: Report, limit: int = _MAX_ROWS) -> list[str]:
    """Faults of smelt itself: what they cost falls back to ONNX Runtime."""
    lines: list[str] = []
    for fault in report.faults[:limit]:
        at = f" ({fault.where})" if fault.where else ""
        lines.append(f"fault in {fault.stage}: {fault.error}{at}")
        if fault.nodes:
            lines.append("  nodes: " + ", ".join(fault.nodes[:5]) + (", …" if len(fault.nodes) > 5 else ""))
        lines.append(f"  repro: {fault.repro}")
    return [*lines, *_more(len(report.faults), limit, "fault")]


def _more(count: int, limit: int, noun: str) -> list[str]:
    return [f"  … {counted(count - limit, noun)} more"] if count > limit else []
