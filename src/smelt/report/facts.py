"""A compilation's result -> Report: every fact that text, JSON and HTML show.

Input: the pipeline's result, a picture of the graph, and measured times if there are any. Output: a `Report` of plain
data. Invariant: every string out of the model is readable; a report holds no weights and no path of the machine; each
node of the picture is counted once, in a region or under a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from smelt.base.version import __version__
from smelt.ir.faults import Fault
from smelt.ir.records import KernelInfo, Library, Plan
from smelt.ir.walk import subgraphs
from smelt.report.picture import Picture, op_name
from smelt.report.precision import PrecisionReport, precision_of
from smelt.report.readable import readable
from smelt.report.scaling import Scaling
from smelt.report.times import Launch, Times

_EXAMPLES = 5


class ResultLike(Protocol):
    """What is read of `pipeline.Result`. Its parts belong to stages that reports must not know."""

    @property
    def plan(self) -> Plan: ...
    @property
    def generated(self) -> Any: ...
    @property
    def library(self) -> Library | None: ...
    @property
    def passes(self) -> tuple[tuple[str, Any], ...]: ...
    @property
    def stages(self) -> tuple[Any, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def findings(self) -> Any: ...
    @property
    def faults(self) -> tuple[Fault, ...]: ...
    @property
    def accuracy(self) -> Any: ...


@dataclass(frozen=True)
class OpRow:
    op: str
    original: int
    in_kernels: int
    fallbacks: int


@dataclass(frozen=True)
class KernelRow:
    """One loop nest. `flops` and `bytes` are formulas over the model's named sizes.

    Times are of the launch and of all regions with this code; of kernels that run together, the first one has them.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    units: str
    flops: str
    bytes: str
    time_us: float | None = None
    bound_us: float | None = None
    form: str = ""
    reason: str = ""
    micro_kernels: str = ""


@dataclass(frozen=True)
class RegionRow:
    """One custom op. Errors are relative to |reference| + rms(reference); times are medians in microseconds."""

    index: int
    entry: str
    nodes: int
    ops: tuple[tuple[str, int], ...]
    kernels: tuple[KernelRow, ...]
    inputs: int
    outputs: int
    error: float | None = None
    tolerance: float | None = None
    time_us: float | None = None
    stock_time_us: float | None = None
    bound_us: float | None = None
    within: str = ""  # the op in whose body the region lies, such as Loop


@dataclass(frozen=True)
class CodeRow:
    """Regions that run the same code: one row instead of one per layer of a model."""

    entry: str
    regions: tuple[int, ...]
    nodes: int
    ops: tuple[tuple[str, int], ...]
    kernels: tuple[KernelRow, ...]
    error: float | None
    time_us: float | None
    bound_us: float | None
    within: str


@dataclass(frozen=True)
class PassRow:
    """A pass or rule: how often it was applied, what it did, and the seconds of the rounds in which it did."""

    name: str
    count: int
    done: str
    seconds: float


@dataclass(frozen=True)
class ReasonRow:
    reason: str
    count: int
    ops: tuple[tuple[str, int], ...]
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """The verdict on the whole model, and what was rejected on the way.

    `inside` counts regions in bodies of control flow: what they are given cannot be watched, so that they are verified
    with the model as a whole. `stock_error` is that of stock ONNX Runtime against the same reference.
    """

    checked: bool
    regions: int = 0
    worst_error: float | None = None
    tolerance: float | None = None
    rejected: tuple[tuple[int, str], ...] = ()
    stock_error: float | None = None
    inside: int = 0

    def by_reason(self) -> list[tuple[str, tuple[int, ...]]]:
        """What was rejected, each reason once."""
        groups: dict[str, list[int]] = {}
        for index, reason in self.rejected:
            groups.setdefault(reason, []).append(index)
        return [(reason, tuple(indices)) for reason, indices in groups.items()]

    @property
    def error_text(self) -> str:
        """`worst error 2.1e-07, allowed 1e-05`; beyond that, with what stock ONNX Runtime's own error allows."""
        if self.worst_error is None:
            return ""
        text = f"worst error {self.worst_error:.1e}"
        if self.tolerance is None:
            return text
        if self.worst_error > self.tolerance and self.stock_error is not None:
            return f"{text}, of stock ONNX Runtime itself {self.stock_error:.1e}"
        return f"{text}, allowed {self.tolerance:.0e}"


@dataclass(frozen=True)
class Report:
    title: str
    ops: tuple[OpRow, ...]
    regions: tuple[RegionRow, ...]
    reasons: tuple[ReasonRow, ...]
    picture: Picture = field(default_factory=Picture)
    passes: tuple[PassRow, ...] = ()
    stages: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    library: Mapping[str, Any] = field(default_factory=dict[str, Any])
    check: Check = field(default_factory=lambda: Check(False))
    times: Times | None = None
    timed: tuple[str, ...] = ()
    version: str = __version__
    faults: tuple[Fault, ...] = ()
    scaling: Scaling | None = None
    precision: PrecisionReport | None = None

    @property
    def in_kernels(self) -> int:
        return sum(row.in_kernels for row in self.ops)

    @property
    def fallbacks(self) -> int:
        return sum(row.fallbacks for row in self.ops)

    @property
    def nodes(self) -> int:
        return self.in_kernels + self.fallbacks

    @property
    def original(self) -> int:
        return sum(row.original for row in self.ops)

    @property
    def coverage(self) -> float:
        """Share of the nodes that are in kernels; 1 for a model without nodes."""
        return self.in_kernels / self.nodes if self.nodes else 1.0

    @property
    def kernels(self) -> int:
        return sum(len(region.kernels) for region in self.regions)

    @property
    def codes(self) -> tuple[CodeRow, ...]:
        """Regions by their code; where times are known, those that take longest come first."""
        groups: dict[str, list[RegionRow]] = {}
        for region in self.regions:
            groups.setdefault(region.entry, []).append(region)
        rows = [_code(entry, members) for entry, members in groups.items()]
        return tuple(sorted(rows, key=lambda row: -(row.time_us or 0.0)))


def as_dict(report: Report, *, graph: bool = True, sources: bool = True) -> dict[str, Any]:
    """For JSON, with the numbers that properties give."""
    content = asdict(report)
    content["summary"] = {
        "original_nodes": report.original,
        "nodes": report.nodes,
        "in_kernels": report.in_kernels,
        "fallbacks": report.fallbacks,
        "coverage": report.coverage,
        "regions": len(report.regions),
        "kernels": report.kernels,
        "time_share": report.times.kernel_share if report.times else None,
        "speedup": report.times.speedup if report.times else None,
    }
    if report.scaling is not None:
        content["scaling"]["off"] = report.scaling.off
    if not graph:
        del content["picture"]
    if not sources:
        del content["sources"]
    return content


def report_of(result: ResultLike, title: str, picture: Picture, times: Times | None = None) -> Report:
    """The report on one compilation."""
    regions = _regions(result, times)
    return Report(
        title=readable(title),
        ops=_ops(result.plan, picture.original),
        regions=regions,
        reasons=reasons_of(
            (fallback.reason, op_name(fallback.node), fallback.node.name or "") for fallback in result.plan.fallbacks
        ),
        picture=picture,
        passes=pass_rows(result.passes),
        stages=_stages(result.stages),
        notes=tuple(readable(note, 2000) for note in _notes(result)),
        sources=_sources(result.generated),
        library=_library(result.library),
        check=_check(result, regions),
        times=times,
        faults=tuple(readable_fault(fault) for fault in result.faults),
        precision=precision_of(result.accuracy),
        timed=tuple(str(one) for one in result.findings.timed) if result.findings is not None else (),
    )


def readable_fault(fault: Fault) -> Fault:
    """Names of the model in it can be shown."""
    nodes = tuple(readable(name) for name in fault.nodes)
    texts = {"stage": fault.stage, "error": fault.error, "where": fault.where}
    shown = {name: readable(text, 600) for name, text in texts.items()}
    return Fault(**shown, nodes=nodes, repro=readable(fault.repro, 2000))


def _ops(plan: Plan, original: Mapping[str, int]) -> tuple[OpRow, ...]:
    inside = Counter(op_name(node) for region in plan.regions for node in region.nodes)
    left = Counter(op_name(item.node) for item in plan.fallbacks)
    names = {**dict.fromkeys(original), **dict.fromkeys(inside), **dict.fromkeys(left)}
    rows = [OpRow(name, original.get(name, 0), inside[name], left[name]) for name in names]
    return tuple(sorted(rows, key=lambda row: (-max(row.original, row.in_kernels + row.fallbacks), row.op)))


def _regions(result: ResultLike, times: Times | None) -> tuple[RegionRow, ...]:
    if result.generated is None:
        return ()
    entries = {entry.name: entry for entry in result.generated.source.entries}
    names = dict(zip((r.index for r in result.generated.regions), result.generated.entry_of, strict=True))
    verdicts = {v.region: v for v in (result.findings.verdicts if result.findings is not None else ())}
    holders = _holders(result.plan)
    rows: list[RegionRow] = []
    for region in result.plan.regions:
        verdict, entry = verdicts.get(region.index), names.get(region.index, "")
        launches = times.launches.get(entry, ()) if times else ()
        kernels = _kernels(entries[entry].kernels, launches) if entry in entries else ()
        rows.append(
            RegionRow(
                region.index,
                entry,
                len(region.nodes),
                _counted(op_name(node) for node in region.nodes),
                kernels,
                len(region.inputs),
                len(region.outputs),
                verdict.error if verdict else None,
                verdict.tolerance if verdict else None,
                times.regions.get(region.index) if times else (verdict.time_us if verdict else None),
                verdict.stock_time_us if verdict else None,
                times.bounds.get(region.index) if times else None,
                holders.get(entry, ""),
            )
        )
    return tuple(rows)


def _holders(plan: Plan) -> dict[str, str]:
    """By custom op, the op of control flow that has it in a body."""
    held = ((fallback.node, node) for fallback in plan.fallbacks for body in subgraphs(fallback.node) for node in body)
    return {node.op_type: holder.op_type for holder, node in held}


def _code(entry: str, members: Sequence[RegionRow]) -> CodeRow:
    ops: Counter[str] = Counter()
    for member in members:
        ops.update(dict(member.ops))
    return CodeRow(
        entry,
        tuple(member.index for member in members),
        sum(member.nodes for member in members),
        tuple(ops.most_common()),
        members[0].kernels,
        max((m.error for m in members if m.error is not None), default=None),
        _total(m.time_us for m in members),
        _total(m.bound_us for m in members),
        members[0].within,
    )


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _kernels(infos: Sequence[KernelInfo], launches: Sequence[Launch]) -> tuple[KernelRow, ...]:
    rows: list[KernelRow] = []
    seen: set[int] = set()
    for info in infos:
        row = _kernel(info)
        if info.launch not in seen and info.launch < len(launches):
            spent = launches[info.launch]
            row = replace(row, time_us=spent.time_us, bound_us=spent.bound_us)
        seen.add(info.launch)
        rows.append(row)
    return tuple(rows)


def _kernel(info: KernelInfo) -> KernelRow:
    sizes = (info.summary.removesuffix(" units"), info.flops, info.bytes)
    # Sizes are named d:<dim> inside; the prefix says nothing to a reader.
    units, flops, moved = (readable(text.replace("d:", ""), 200) for text in sizes)
    nodes = tuple(readable(name) for name in info.nodes)
    form = (info.form, info.reason, info.micro_kernels)
    return KernelRow(info.name, info.kind, nodes, units, flops, moved, None, None, *form)


def reasons_of(left: Iterable[tuple[str, str, str]]) -> tuple[ReasonRow, ...]:
    """Group (reason, op, name of node) by reason, the most frequent first."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for reason, op, name in left:
        groups.setdefault(readable(reason, 400), []).append((op, readable(name)))
    rows = [
        ReasonRow(reason, len(items), _counted(op for op, _ in items), tuple(n for _, n in items if n)[:_EXAMPLES])
        for reason, items in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.reason)))


def _counted(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(names).most_common())


def pass_rows(passes: Sequence[tuple[str, Any]]) -> tuple[PassRow, ...]:
    """What each pass or rule did in all of its rounds."""
    changes: dict[str, Counter[str]] = {}
    seconds: Counter[str] = Counter()
    for name, outcome in passes:
        changes.setdefault(name, Counter()).update(outcome.changes)
        seconds[name] += outcome.seconds  # pyright: ignore[reportArgumentType]  # counts of seconds
    return tuple(
        PassRow(
            name,
            done.total(),
            ", ".join(f"{what} x{count}" for what, count in sorted(done.items()) if count),
            float(seconds[name]),
        )
        for name, done in changes.items()
    )


def _stages(stages: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    """Seconds by stage, in order; a stage that ran again is added up."""
    seconds: dict[str, float] = {}
    for stage in stages:
        seconds[stage.name] = seconds.get(stage.name, 0.0) + stage.seconds
    return tuple(seconds.items())


def _notes(result: ResultLike) -> tuple[str, ...]:
    found = tuple(result.findings.notes) if result.findings is not None else ()
    return tuple(dict.fromkeys((*result.notes, *found)))


def _sources(generated: Any) -> tuple[tuple[str, str], ...]:
    return tuple((unit.name, unit.text) for unit in generated.source.units) if generated is not None else ()


def _library(library: Library | None) -> dict[str, Any]:
    if library is None:
        return {}
    compiler = " ".join(library.compiler.split()[:2])
    return {
        "compiler": compiler,
        "levels": list(library.targets),
        "bytes": library.path.stat().st_size if library.path.exists() else 0,
        "cached": library.cached,
        "seconds": library.seconds,
    }


def _check(result: ResultLike, regions: Sequence[RegionRow]) -> Check:
    findings = result.findings
    if findings is None or not (findings.verdicts or findings.rejected):
        return Check(False)
    errors = [v.error for v in findings.verdicts if v.error is not None and not v.rejected]
    whole = next((v for v in findings.verdicts if v.region is None), None)
    checked = [v for v in findings.verdicts if v.region is not None and v.error is not None]
    worst = whole.error if whole is not None else max(errors, default=None)
    rejected = tuple((index, readable(reason, 400)) for index, reason in findings.rejected.items())
    return Check(
        bool(errors) or whole is not None,
        len(checked),
        worst,
        whole.tolerance if whole else None,
        rejected,
        whole.stock_error if whole else None,
        sum(region.error is None for region in regions) if whole else 0,
    )
