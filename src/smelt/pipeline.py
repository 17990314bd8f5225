"""The order of things, on one page.

Input: a model (path, bytes, ModelProto, onnx_ir.Model) and options. Output: an artifact folder and a `Result` that says
what happened. Invariant: the folder is complete or absent; the model's inputs and outputs are unchanged.

    load -> passes -> analyze -> capture -> generate -> build -> tune -> examine -> time -> rewrite -> save

A fault inside a stage costs the pass, node or region that it belongs to, and is in the result (`ir/faults.py`).
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import onnx_ir as ir

from smelt.artifact import check_replaceable, check_writable, replace_library, save_artifact, save_untouched
from smelt.base.collector import rare_collections
from smelt.base.config import Config
from smelt.base.errors import CompileError, LoadError, ModelError, NoCompilerError, PassError, SmeltError
from smelt.base.log import logger
from smelt.base.progress import Progress, Silent
from smelt.base.target import Target, host_arch, host_level, runs_on_host, select_targets
from smelt.check import (
    Choice,
    Examination,
    Findings,
    begin_examination,
    choose_settings,
    examine,
    guard_speed,
    rehearse,
    start_digest,
)
from smelt.check.blame import blame, give_back
from smelt.check.demands import check_demands, unmet_demand
from smelt.check.dump import Dump
from smelt.check.given_inputs import Given, check_shapes, given_calls
from smelt.check.race_ahead import RaceAhead
from smelt.check.settle import settle
from smelt.check.standalone_program import rebuild
from smelt.check.stock_load import refusal
from smelt.codegen import CBackend, Generated, attach_packed, likely_source, strangers, with_inputs, with_settings
from smelt.ir.faults import Fault, Faults
from smelt.ir.load import load_model
from smelt.ir.records import Artifact, Left, Library, Plan, Region, Source
from smelt.ir.save import save_model
from smelt.ir.verbatim import Verbatim, may_be_held_by_stock
from smelt.ir.walk import model_nodes
from smelt.ops import analyze
from smelt.partition import capture, rewrite
from smelt.passes import BindDims, Patterns, cast_for_stock, ort_preoptimize, run_passes
from smelt.report import count_ops, counted, op_name
from smelt.toolchain import (
    Cache,
    Compiler,
    EarlyObjects,
    build,
    can_build,
    count_jobs,
    find_compiler,
    hash_headers,
    is_built,
    usable_root,
)

if TYPE_CHECKING:
    from smelt.check.examination import Begun

_log: Final = logger("pipeline")
_MAX_ORIGINAL: Final = 20_000  # nodes; a longer model is compared as the passes left it, for the time that a copy takes


@dataclass(frozen=True)
class Options:
    """What a user may choose for one compilation. Machine-wide knobs are in `Config`.

    `inputs` are what to verify on: a path (.npz, .npy, a folder), arrays by name, or a list of such calls; `shapes` are
    those of generated inputs. `feeds` are arrays by name that need no check; `recorded` says that they are one call of
    many, and that findings hold for all.
    `timing` lets an artifact slower than stock fall back; what is ephemeral, forced, tuned or not verified is not
    timed. `settings` are sizes that tuning chose before (the manifest has them): they are used again, nothing is timed.
    `ephemeral` is for what this process alone will run: code for other CPU levels would be built for nothing.
    `strict` makes an error of any fault and any region without a verdict, `min_coverage` of a smaller share of nodes in
    kernels; nothing is written then, unless `keep` says so.
    """

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force: bool = False
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    arch: str | None = None
    levels: tuple[str, ...] = ()
    ephemeral: bool = False
    skip_passes: tuple[str, ...] = ()
    patterns: Patterns | None = None
    preoptimize: bool = False
    verify: bool = True
    tune: bool = False
    tune_seconds: float = 60.0
    timing: bool = True
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int = 0
    dump: Path | None = None
    feeds: Mapping[str, Any] | None = None
    inputs: Given | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, "Sequence[int]"])
    recorded: bool = False
    strict: bool = False
    min_coverage: float = 0.0
    keep: bool = False


@dataclass(frozen=True)
class Stage:
    name: str
    seconds: float


@dataclass(frozen=True)
class Result:
    """Everything that reports are made from."""

    artifact: Artifact
    plan: Plan
    generated: Generated | None
    library: Library | None
    passes: tuple[tuple[str, Any], ...]
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()
    findings: Findings | None = None
    faults: tuple[Fault, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict[str, int])  # nodes by op, as loaded
    skipped: tuple[str, ...] = ()  # passes that failed


class _Clock:
    """Seconds by stage; `stage` is the one under way, or the last."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.stage = ""

    @contextmanager
    def __call__(self, name: str) -> Generator[None]:
        started, self.stage = time.monotonic(), name
        try:
            yield
        finally:
            self.stages.append(Stage(name, time.monotonic() - started))
            _log.debug("%s: %.2f s", name, self.stages[-1].seconds)

    @property
    def total(self) -> float:
        return sum(stage.seconds for stage in self.stages)


@rare_collections()
def compile_to(
    source: Any, directory: Path, options: Options | None = None, config: Config | None = None,
    progress: Progress | None = None, title: str = "",
) -> Result:  # fmt: skip
    """Compile a model into an artifact folder, which must not exist yet or be an artifact to replace.

    `title` is how reports call the model, where `source` is no path.
    """
    options, config, progress = options or Options(), config or Config.from_env(), progress or Silent()
    check_replaceable(directory)
    check_writable(directory)
    check_demands(options, config)
    config, spare = _with_cache(config)
    clock, dump = _Clock(), Dump(options.dump)
    faults = Faults(config.strict, title or _title(source))
    with clock("load"):
        try:
            model = _load(source, options)
        except (LoadError, ModelError) as error:
            return _untouched(source, directory, options, config, error, clock)
        check_writable(directory, _weight_bytes(model))
        counts = count_ops(model)
        name = title or _title(source) or "a model"
        _log.info("compiling %s: %s", name, counted(sum(counts.values()), "node"))
        dump.model("00-captured", model)
        original = model.clone() if options.verify and config.verify and len(model.graph) <= _MAX_ORIGINAL else None
        options = _with_given_inputs(model, options)
        overridable = _overridable(model)
    early = _early(model, options, config)
    with clock("passes"):
        model, passes, skipped = _prepare(model, source, options, dump, faults)
        dump.model("10-model", model)
    plan, backend = _plan(model, options, config, clock, faults)
    dump.plan(plan)
    with RaceAhead(_stock_file(source, options)) as race:
        made = _kernels(model, original, backend, plan, options, config, progress, clock, dump, faults, race, early)
    if early is not None:
        early.close()
    with clock("rewrite"):
        model, made = _rewritten(model, made, source, options, faults)
    unmet = unmet_demand(made.plan, made.findings, faults.found(), options)
    if unmet is not None and not options.keep:
        raise unmet
    frozen = sorted(overridable - _overridable(model))
    with clock("save"):
        artifact = save_artifact(
            model, directory, made.generated, made.library, made.plan, options, made.findings, faults.found(), frozen
        )
        dump.artifact(artifact)
    if unmet is not None:
        raise unmet
    inside = sum(len(region.nodes) for region in made.plan.regions)
    total = inside + len(made.plan.left)
    _log.info("%s: %d of %d nodes in kernels, %.1f s", name, inside, total, clock.total)
    return Result(
        artifact, made.plan, made.generated, made.library, passes, tuple(clock.stages),
        (*spare, *_frozen_note(frozen), *made.notes), made.findings, faults.found(), counts, skipped,
    )  # fmt: skip


def _with_cache(config: Config) -> tuple[Config, tuple[str, ...]]:
    """A cache that can be written, and a note where that is not the one that was asked for."""
    root = usable_root(config.cache_dir)
    if root == config.cache_dir:
        return config, ()
    return config.with_(cache_dir=root), (f"The cache {config.cache_dir} cannot be written: nothing is kept.",)


def _untouched(
    source: Any, directory: Path, options: Options, config: Config, error: LoadError | ModelError, clock: _Clock
) -> Result:
    """An artifact of the model as it is, where no Model holds it and stock ONNX Runtime does; else the error."""
    model = Verbatim.read(source) if may_be_held_by_stock(error) and not options.preoptimize else None
    if model is None:
        raise error
    refused = refusal(model, Cache(config.cache_dir), config)
    if refused:
        raise error
    plan = model.plan(f"the model is not one that smelt reads: {error.message}")
    note = f"ONNX Runtime runs this model as it is; smelt does not read it: {error.message}"
    unmet = unmet_demand(plan, None, (), options)
    if unmet is not None and not options.keep:
        raise unmet
    artifact = save_untouched(model, directory, plan, options)
    if unmet is not None:
        raise unmet
    counts = Counter(op_name(left.node) for left in plan.left)
    return Result(artifact, plan, None, None, (), tuple(clock.stages), (note,), counts=counts)


def resume_from(dump: Path, artifact: Path, directory: Path, config: Config | None = None) -> Artifact:
    """Build the sources of a dump again, as they are now, and put the library into a copy of the artifact."""
    return replace_library(artifact, rebuild(dump, config or Config.from_env()), directory)


def _weight_bytes(model: ir.Model) -> int:
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def _overridable(model: ir.Model) -> set[str]:
    """Initializers that a caller of stock may feed: graph inputs too, which meant nothing before IR version 4."""
    inputs = model.graph.inputs if model.ir_version >= 4 else ()
    return {value.name for value in inputs if value.name and value.is_initializer()}


def _frozen_note(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    what = f"{counted(len(names), 'initializer')} listed as graph inputs"
    return (f"{what}, as all weights are: constants now. --skip-pass freeze-initializers keeps them as inputs.",)


def _title(source: Any) -> str:
    return Path(source).name if isinstance(source, (str, Path)) else ""


def _load(source: Any, options: Options) -> ir.Model:
    model = load_model(source)
    if not options.preoptimize:
        return model
    with tempfile.TemporaryDirectory(prefix="smelt-") as folder:
        given, optimized = Path(folder) / "given.onnx", Path(folder) / "optimized.onnx"
        save_model(model, given)
        ort_preoptimize(given, optimized)
        return load_model(optimized)  # its tensors are mapped, which outlasts their files


def _with_given_inputs(model: ir.Model, options: Options) -> Options:
    """Inputs and shapes are read and checked before anything long begins."""
    check_shapes(model, options.shapes)
    if options.inputs is None:
        return options
    return dataclasses.replace(options, inputs=given_calls(model, options.inputs))


def _prepare(
    model: ir.Model, source: Any, options: Options, dump: Dump, faults: Faults
) -> tuple[ir.Model, tuple[tuple[str, Any], ...], tuple[str, ...]]:
    """The model after the passes. One that fails leaves the model in no known state: without it, from the beginning."""
    failures: list[str] = []
    while True:
        if options.dims:
            BindDims(options.dims)(model)
        try:
            skip = (*options.skip_passes, *failures)
            done = run_passes(model, skip=skip, patterns=options.patterns, dump=dump.patterns)
            return model, tuple(done), tuple(failures)
        except PassError as failed:
            assert isinstance(failed.__cause__, Exception)
            faults.contain("passes", failed.__cause__, failed.name)
            failures.append(failed.name)
            model = _load(source, options)


def _plan(
    model: ir.Model, options: Options, config: Config, clock: _Clock, faults: Faults
) -> tuple[Plan, CBackend]:  # fmt: skip
    """Regions, and why the rest is left."""
    plan, backend = _captured(model, options, config, clock, faults)
    if cast_for_stock(model, {left.node for left in plan.left}):
        return _captured(model, options, config, clock, faults)
    return plan, backend


def _captured(
    model: ir.Model, options: Options, config: Config, clock: _Clock, faults: Faults
) -> tuple[Plan, CBackend]:  # fmt: skip
    with clock("analyze"):
        backend = CBackend(analyze(model, faults), list(model.graph.inputs))
    with clock("capture"):
        try:
            force = options.force or config.force
            return capture(model, backend, options.select, options.exclude, force, faults), backend
        except Exception as error:
            reason = faults.contain("capture", error)
            return Plan((), tuple(Left(node, reason) for node in model_nodes(model))), backend


@dataclass(frozen=True)
class _Made:
    plan: Plan
    generated: Generated | None = None
    library: Library | None = None
    findings: Findings | None = None
    notes: tuple[str, ...] = ()


def _targets(options: Options, config: Config) -> tuple[Target, ...]:
    """All levels, those that were named, or that of this process, which may be told to use a lower one."""
    levels = options.levels or config.levels
    here = None if levels or options.arch or config.level else host_level()
    return (here,) if options.ephemeral and here is not None else select_targets(options.arch, levels)


def _early(model: ir.Model, options: Options, config: Config) -> EarlyObjects | None:
    """Begin to compile the kernels that no model changes while this one is looked at."""
    likely = likely_source(model_nodes(model))
    if not likely.units or options.ephemeral:
        return None
    try:
        compiler = find_compiler(config, options.arch)
        return EarlyObjects(likely, _targets(options, config), compiler, Cache(config.cache_dir), config)
    except SmeltError:  # reported where it matters
        return None


def _kernels(
    model: ir.Model, original: ir.Model | None, backend: CBackend, plan: Plan, options: Options, config: Config,
    progress: Progress, clock: _Clock, dump: Dump, faults: Faults, ahead: RaceAhead, early: EarlyObjects | None,
) -> _Made:  # fmt: skip
    """Generate, build and examine, until every region that is left has passed; then time what came of it. `original` is
    the model as it was given."""
    try:
        compiler = find_compiler(config, options.arch)
    except NoCompilerError as error:
        if options.arch is not None and options.arch != host_arch():  # stock's own model was not asked for
            raise
        back = plan.without({region.index: error.message for region in plan.regions})
        return _Made(back, notes=(f"{error.message} ({error.code}): ONNX Runtime runs the whole model. {error.hint}",))
    targets = _targets(options, config)
    wanted = _examination(targets, options, config, dump)
    weights = start_digest(model) if wanted is not None and plan.regions else None

    choices: list[Choice] = []

    def tuned(generated: Generated, library: Library) -> tuple[Generated, Library]:
        """Sizes are searched for once; later rounds keep them."""
        make: Callable[[Source], Library] = lambda source: _build(source, targets, compiler, config, Silent())  # noqa: E731
        if not choices:
            assert wanted is not None
            try:
                choices.append(choose_settings(model, generated, make, wanted, config, progress))
            except Exception as error:
                faults.contain("tune", error)
                choices.append(Choice({}))
        if not choices[0].settings:
            return generated, library
        source = with_settings(generated.source, choices[0].settings)
        return dataclasses.replace(generated, source=source), make(source)

    def attempt(plan: Plan, known: tuple[int, ...]) -> tuple[_Made, Findings]:
        """One round: what came of the plan as it is, and what was found."""
        if not plan.regions:
            return _Made(plan), Findings()
        begun = begin_examination(config) if _is_early(wanted, options) else None
        try:
            return one_round(plan, known, begun)
        finally:
            if begun is not None:
                begun.close()

    def one_round(plan: Plan, known: tuple[int, ...], begun: Begun | None) -> tuple[_Made, Findings]:
        with clock("generate"):
            generated = backend.generate(plan.regions, targets)
            generated = dataclasses.replace(generated, source=with_settings(generated.source, options.settings))
            plan = Plan(generated.regions, (*plan.left, *generated.left))
        if not generated.regions:
            return _Made(plan), Findings()
        chosen = None if wanted is None else dataclasses.replace(wanted, known=known, original=original)
        with clock("build"):
            try:
                is_new = not is_built(generated.source, targets, compiler, Cache(config.cache_dir), config)
                if begun is not None and chosen is not None and is_new:
                    begun.prepare(model, generated, chosen, apart=True)
                library = _build(generated.source, targets, compiler, config, progress, early)
            except CompileError as error:
                if not can_build(targets, compiler, Cache(config.cache_dir), config):
                    return _Made(plan), give_back("build", error, plan.regions, faults)
                suspects = generated.regions_in(error.unit) or plan.regions
                return _Made(plan), blame("build", error, suspects, probe, faults)
        if wanted is not None and wanted.tune:
            with clock("tune"):
                generated, library = tuned(generated, library)
        dump.sources(generated, tuple(t.name for t in targets))
        dump.library(library)
        if is_new and wanted is not None and _is_timed(wanted, options, config):
            ahead.begin(model, wanted, config)
        with clock("examine"):
            found = Findings()
            if chosen is not None:
                found = examine(model, generated, library, chosen, config, progress, weights, begun)
        _report(found, generated.regions, faults)
        return _Made(plan, generated, library), found

    def contained(plan: Plan, known: tuple[int, ...]) -> tuple[_Made, Findings]:
        """A round, in which an exception is a finding about the regions that raise it alone."""
        try:
            return attempt(plan, known)
        except Exception as error:
            return _Made(plan), blame(clock.stage, error, plan.regions, probe, faults)

    def probe(region: Region) -> None:
        """What the stage under way does, on one region."""
        generated = backend.generate((region,), targets)
        if clock.stage == "build":
            _build(generated.source, targets, compiler, config, Silent())
        if clock.stage == "examine":
            rehearse(model, generated)

    made, findings = settle(plan, contained)
    if choices:
        notes = (*findings.notes, *choices[0].notes())
        findings = dataclasses.replace(findings, settings=choices[0].settings, notes=notes)
    elif options.settings and made.generated is not None:
        findings = _with_given(findings, made.generated.source, options.settings)
    if wanted is not None and weights is not None and _is_timed(wanted, options, config):
        with clock("time"):
            spent = sum(stage.seconds for stage in clock.stages)
            race: Callable[[Generated, Library], Findings] = lambda generated, library: guard_speed(  # noqa: E731
                model, generated, library, wanted, config, progress, weights, ahead, spent
            )
            try:
                made, findings = _never_slower(made, findings, race)
            except Exception as error:
                faults.contain("time", error)
    dump.plan(made.plan)
    dump.findings(findings)
    return dataclasses.replace(made, findings=findings, notes=findings.notes)


def _is_early(wanted: Examination | None, options: Options) -> bool:
    """Whether verification begins while code is generated. What one process runs once is small, and in a hurry."""
    return wanted is not None and wanted.verify and not wanted.tune and not options.ephemeral


def _report(found: Findings, regions: Sequence[Region], faults: Faults) -> None:
    """Regions that gave a wrong result or died in verification."""
    for region in regions:
        if found.faults.get(region.index) == "wrong":
            faults.report("verify", found.rejected[region.index], region.nodes)


def _stock_file(source: Any, options: Options) -> Path | None:
    """The file that users would run in stock ONNX Runtime; the prepared model stands for anything else."""
    return Path(source) if isinstance(source, (str, Path)) and not options.preoptimize else None


def _is_timed(wanted: Examination, options: Options, config: Config) -> bool:
    """What is forced, tuned or given sizes has been decided otherwise; what one process runs once does not wait."""
    decided = options.force or config.force or wanted.tune or bool(options.settings)
    return options.timing and config.timing and wanted.verify and not decided and not options.ephemeral


def _never_slower(
    made: _Made, findings: Findings, race: Callable[[Generated, Library], Findings]
) -> tuple[_Made, Findings]:
    """What is slower than stock falls back to it: some regions, or all."""
    if made.generated is None or made.library is None:
        return made, findings
    found = race(made.generated, made.library)
    findings = findings.merge(found)
    if not found.rejected:
        return made, findings
    plan, chosen = made.plan.without(found.rejected), made.generated.without(found.rejected)
    count = sum(len(region.nodes) for region in made.generated.regions if region.index in found.rejected)
    what = "some regions fall" if chosen.regions else "the model is stock's own, since all regions fall"
    note = f"Slower than stock ONNX Runtime when timed: {what} back to it ({count} nodes). --no-timing keeps them."
    findings = dataclasses.replace(findings, notes=(*findings.notes, note))
    return (_Made(plan, chosen, made.library) if chosen.regions else _Made(plan)), findings


def _with_given(findings: Findings, source: Source, settings: Mapping[str, int]) -> Findings:
    """What the given sizes came to: those that no kernel feels are left out, and said."""
    unknown = strangers(source, settings)
    used = {name: value for name, value in settings.items() if name not in unknown}
    note = f"{len(unknown)} of the {len(settings)} given sizes belong to kernels that this model does not have."
    return dataclasses.replace(findings, settings=used, notes=(*findings.notes, *([note] if unknown else [])))


def _build(
    source: Source, targets: Sequence[Target], compiler: Compiler, config: Config, progress: Progress,
    early: EarlyObjects | None = None,
) -> Library:  # fmt: skip
    hashed = dataclasses.replace(source, include_hash=hash_headers(source.include_dirs))
    step = progress.task("compile kernels", count_jobs(hashed, tuple(targets)))
    return build(hashed, tuple(targets), compiler, Cache(config.cache_dir), config, step=step, early=early)


def _examination(targets: Sequence[Target], options: Options, config: Config, dump: Dump) -> Examination | None:
    """Each region is verified against the reference, and timed when tuning; only where its code can run."""
    runnable = any(runs_on_host(t) for t in targets)
    verify, tune = options.verify and config.verify and runnable, (options.tune or config.tune) and runnable
    if not (verify or tune):
        return None
    force = options.force or config.force
    calls = cast("list[Mapping[str, Any]]", options.inputs or [])  # they were read
    calls = [options.feeds] if options.feeds is not None else calls
    return Examination(
        verify,
        tune,
        options.threads,
        options.tune_seconds,
        calls[0] if calls else None,
        dump.calls,
        keep_unverified=force,
        recorded=options.recorded,
        more_feeds=tuple(calls[1:]),
        shapes={name: tuple(shape) for name, shape in options.shapes.items()},
    )


def _rewritten(
    model: ir.Model, made: _Made, source: Any, options: Options, faults: Faults
) -> tuple[ir.Model, _Made]:  # fmt: skip
    """The model with the custom ops in place of the regions' nodes; as it was given where there are none."""
    if made.generated is not None:
        try:
            _rewrite(model, made.generated, made.plan)
            cast_for_stock(model, set(model_nodes(model)))
            return model, made
        except Exception as error:
            reason = faults.contain("rewrite", error)
            plan = made.plan.without({region.index: reason for region in made.plan.regions})
            made = dataclasses.replace(made, plan=plan, generated=None, library=None)
    return _as_given(model, source, options), made


def _as_given(model: ir.Model, source: Any, options: Options) -> ir.Model:
    """Stock's own model. Passes that were asked for by name are kept: ONNX Runtime may have no kernel without them."""
    if options.patterns is not None or options.preoptimize:
        return model
    given = _load(source, options)
    if options.dims:
        BindDims(options.dims)(given)
    return given


def _rewrite(model: ir.Model, generated: Generated, plan: Plan) -> None:
    packed = attach_packed(model, generated.codes, generated.packed)
    generated.packed.clear()  # the model has them now
    regions = [with_inputs(r, c, packed) for r, c in zip(generated.regions, generated.codes, strict=True)]
    names = {r.index: entry for r, entry in zip(regions, generated.entry_of, strict=True)}
    rewrite(model, Plan(tuple(regions), plan.left), generated.source.domain, names)
    run_passes(model, only=("remove-unused",))
