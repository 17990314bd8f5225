"""Plan -> a library whose every region has passed, and what was found on the way.

Input: a prepared model, its plan and the backends that claimed its regions. Output: `Made`. Invariant: a region that
cannot be generated, built or verified costs itself (`ir/faults.py`), and what is slower than stock falls back to it.

    generate -> build -> tune -> examine, in rounds while regions fail; then time
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import CompileError, KernelError, NoCompilerError, SmeltError
from smelt.base.progress import Progress, Silent
from smelt.base.target import Target, host_arch, runs_on_host
from smelt.check import (
    Choice,
    Examination,
    Findings,
    begin_examination,
    check_launches,
    choose_settings,
    examine,
    guard_speed,
    rehearse,
    start_digest,
)
from smelt.check.bisect_regions import bisect_regions
from smelt.check.blame import blame, fall_back
from smelt.check.dump import Dump
from smelt.check.race_ahead import RaceAhead
from smelt.codegen import Backends, find_backends, unknown_settings, with_settings
from smelt.ir.backend import Generated
from smelt.ir.faults import Faults
from smelt.ir.records import Library, Plan, Region, Source
from smelt.ir.walk import model_nodes
from smelt.ops.user import check_user_text, is_user_op, runs_on_gpu_alone
from smelt.options import Clock, Options, chosen_targets, tuning_provider
from smelt.partition import FEW
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
)

if TYPE_CHECKING:
    from smelt.check.examination import Begun


@dataclass(frozen=True)
class Made:
    plan: Plan
    generated: Generated | None = None
    library: Library | None = None
    findings: Findings | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Circumstances:
    """What every stage of one compilation is given."""

    options: Options
    config: Config
    progress: Progress
    clock: Clock
    dump: Dump
    faults: Faults


def compile_early(nodes: Iterable[ir.Node], options: Options, config: Config) -> EarlyObjects | None:
    """Begin to compile the kernels that no model changes while this one is looked at."""
    nodes = list(nodes)
    likely = [kind.likely(nodes) for kind in find_backends(options.backend or config.backend)]
    units = tuple(unit for source in likely for unit in source.units)
    if not units or options.ephemeral:
        return None
    folders = tuple(dict.fromkeys(folder for source in likely for folder in source.include_dirs))
    try:
        compiler = find_compiler(config, options.arch)
        source, cache = Source(units, (), folders), Cache(config.cache_dir)
        return EarlyObjects(source, chosen_targets(options, config), compiler, cache, config)
    except SmeltError:  # reported where it matters
        return None


def make_kernels(
    model: ir.Model, original: ir.Model | None, backends: Backends, plan: Plan, given: Circumstances, ahead: RaceAhead,
    early: EarlyObjects | None,
) -> Made:  # fmt: skip
    """Generate, build and examine, until every region that is left has passed; then time what came of it. `original` is
    the model as it was given."""
    options, config = given.options, given.config
    try:
        compiler = find_compiler(config, options.arch)
    except NoCompilerError as error:
        if options.arch is not None and options.arch != host_arch():  # stock's own model was not asked for
            raise
        back = plan.without({region.index: error.message for region in plan.regions})
        return Made(back, notes=(f"{error.message} ({error.code}): ONNX Runtime runs the whole model. {error.hint}",))
    rounds = _Rounds(model, original, backends, given, compiler, ahead, early)
    made, findings = rounds.run(plan)
    given.dump.plan(made.plan)
    given.dump.findings(findings)
    return dataclasses.replace(made, findings=findings, notes=findings.notes)


class _Rounds:
    """One compilation's attempts at its plan, with what they share."""

    def __init__(
        self, model: ir.Model, original: ir.Model | None, backends: Backends, given: Circumstances, compiler: Compiler,
        ahead: RaceAhead, early: EarlyObjects | None,
    ) -> None:  # fmt: skip
        self.model, self.original, self.backends = model, original, backends
        self.given, self.options, self.config = given, given.options, given.config
        self.compiler, self.ahead, self.early = compiler, ahead, early
        self.targets = chosen_targets(self.options, self.config)
        self.wanted = _examination(self.targets, self.options, self.config, given.dump)
        self.choice: Choice | None = None  # sizes are searched for once; later rounds keep them

    def run(self, plan: Plan) -> tuple[Made, Findings]:
        self.weights = start_digest(self.model) if self.wanted is not None and plan.regions else None
        made, findings = bisect_regions(plan, self._contained, self.backends.exact)
        if self.choice is not None:
            notes = (*findings.notes, *self.choice.notes())
            findings = dataclasses.replace(findings, settings=self.choice.settings, notes=notes)
        elif self.options.settings and made.generated is not None:
            findings = _with_given(findings, made.generated.source, self.options.settings)
        return self._timed(made, findings)

    def _contained(self, plan: Plan, known: tuple[int, ...]) -> tuple[Made, Findings]:
        """A round, in which an exception is a finding about the regions that raise it alone."""
        try:
            if not plan.regions:
                return Made(plan), Findings()
            with begin_examination(self.config) if self._is_early() else nullcontext() as begun:
                return self._round(plan, known, begun)
        except KernelError:  # nothing can run in the place of a kernel of the user's own
            raise
        except Exception as error:
            return Made(plan), blame(self.given.clock.stage, error, plan.regions, self._probe, self.given.faults)

    def _is_early(self) -> bool:
        """Whether verification begins while code is generated. What one process runs once is small, and in a hurry."""
        wanted = self.wanted
        return wanted is not None and wanted.verify and not wanted.tune and not self.options.ephemeral

    def _round(self, plan: Plan, known: tuple[int, ...], begun: Begun | None) -> tuple[Made, Findings]:
        """What came of the plan as it is, and what was found. Regions in `known` have passed before."""
        whole = plan
        plan, generated = self._generated(plan)
        unsupported = _unsupported(whole, plan)
        if unsupported:
            return Made(whole), Findings(rejected=unsupported, faults=dict.fromkeys(unsupported, "unsupported"))
        if not generated.regions:
            return Made(plan), Findings()
        wanted = self.wanted
        chosen = None if wanted is None else self._chosen(wanted, known, generated)
        with self.given.clock("build"):
            try:
                is_new = not is_built(generated.source, self.targets, self.compiler, self._cache, self.config)
                if begun is not None and chosen is not None and is_new:
                    begun.prepare(self.model, generated, chosen, apart=True)
                library = self._build(generated.source, self.given.progress, self.early)
            except CompileError as error:
                check_user_text(str(error))
                return Made(plan), self._blamed(error, plan, generated)
        if wanted is not None and wanted.tune:
            with self.given.clock("tune"):
                generated, library = self._tuned(generated, library, wanted)
        self.given.dump.sources(generated, tuple(t.name for t in self.targets))
        self.given.dump.library(library)
        if is_new and chosen is not None and self._is_timed(chosen):
            self.ahead.begin(self.model, chosen, self.config)
        notes = (*self._launch_notes(generated), *self._tuning_notes())
        found = self._examined(generated, library, chosen, begun)
        return Made(plan, generated, library), dataclasses.replace(found, notes=(*notes, *found.notes))

    def _chosen(self, wanted: Examination, known: tuple[int, ...], generated: Generated) -> Examination:
        """What has code for a GPU alone is not run here."""
        alone = tuple(r.index for r in generated.regions if any(runs_on_gpu_alone(node) for node in r.nodes))
        return dataclasses.replace(wanted, known=(*known, *alone), whole=not alone, original=self.original)

    def _tuning_notes(self) -> tuple[str, ...]:
        asked = (self.options.tune or self.config.tune) and self.options.device not in ("", "cpu")
        if not asked or self.wanted is None or self.wanted.tune:
            return ()
        return (f"Nothing was tuned: onnxruntime has no provider for {self.options.device} here.",)

    def _launch_notes(self, generated: Generated) -> tuple[str, ...]:
        """Users' code for a GPU is verified by itself; what is wrong with it is an error."""
        wanted = self.wanted
        functions = [function for code in generated.codes for function in code.launched]
        return check_launches(functions, self.config) if wanted is not None and wanted.verify and functions else ()

    def _generated(self, plan: Plan) -> tuple[Plan, Generated]:
        with self.given.clock("generate"):
            made = self.backends.generate(plan.regions, self.targets)
            made = dataclasses.replace(made, source=with_settings(made.source, self.options.settings))
            return Plan(made.regions, (*plan.fallbacks, *made.fallbacks)), made

    def _examined(
        self, generated: Generated, library: Library, chosen: Examination | None, begun: Begun | None
    ) -> Findings:
        with self.given.clock("examine"):
            if chosen is None:
                return Findings()
            found = examine(
                self.model, generated, library, chosen, self.config, self.given.progress, self.weights, begun
            )
        for region in generated.regions:
            if found.faults.get(region.index) == "wrong":
                self.given.faults.report("verify", found.rejected[region.index], region.nodes)
        return found

    def _blamed(self, error: CompileError, plan: Plan, generated: Generated) -> Findings:
        """Nobody's fault where the compiler builds nothing at all; else that of regions in the unit that failed."""
        if not can_build(self.targets, self.compiler, self._cache, self.config):
            return fall_back("build", error, plan.regions, self.given.faults)
        suspects = generated.regions_in(error.unit) or plan.regions
        return blame("build", error, suspects, self._probe, self.given.faults)

    def _probe(self, region: Region) -> None:
        """What the stage under way does, on one region."""
        generated = self.backends.generate((region,), self.targets)
        if self.given.clock.stage == "build":
            self._build(generated.source)
        if self.given.clock.stage == "examine":
            rehearse(self.model, generated)

    def _tuned(self, generated: Generated, library: Library, wanted: Examination) -> tuple[Generated, Library]:
        if self.choice is None:
            self.choice = Choice({})
            try:
                self.choice = choose_settings(
                    self.model, generated, self._build, wanted, self.config, self.given.progress
                )
            except Exception as error:
                self.given.faults.contain("tune", error)
        if not self.choice.settings:
            return generated, library
        source = with_settings(generated.source, self.choice.settings)
        return dataclasses.replace(generated, source=source), self._build(source)

    def _timed(self, made: Made, findings: Findings) -> tuple[Made, Findings]:
        """What is slower than stock falls back to it: some regions, or all."""
        wanted, weights = self.wanted, self.weights
        if wanted is None or weights is None or not self._is_timed(wanted):
            return made, findings
        clock = self.given.clock
        with clock("time"):
            progress, spent = self.given.progress, clock.total
            wanted = dataclasses.replace(wanted, original=self.original)
            race: Callable[[Generated, Library], Findings] = lambda generated, library: guard_speed(  # noqa: E731
                self.model, generated, library, wanted, self.config, progress, weights, self.ahead, spent
            )
            try:
                return _never_slower(made, findings, race)
            except Exception as error:
                self.given.faults.contain("time", error)
                return made, findings

    def _is_timed(self, wanted: Examination) -> bool:
        """What is forced, tuned or given sizes has been decided otherwise; what one process runs once does not wait. A
        model with ops of the user's own has no stock to be timed against."""
        options, config = self.options, self.config
        if any(is_user_op(node) for node in model_nodes(self.model)):
            return False
        decided = options.force or config.force or wanted.tune or bool(options.settings)
        return options.timing and config.timing and wanted.verify and not decided and not options.ephemeral

    @property
    def _cache(self) -> Cache:
        return Cache(self.config.cache_dir)

    def _build(self, source: Source, progress: Progress | None = None, early: EarlyObjects | None = None) -> Library:
        hashed = dataclasses.replace(source, include_hash=hash_headers(source.include_dirs))
        step = (progress or Silent()).task("compile kernels", count_jobs(hashed, self.targets))
        return build(hashed, self.targets, self.compiler, self._cache, self.config, step=step, early=early)


def _unsupported(plan: Plan, written: Plan) -> dict[int, str]:
    """Regions whose nodes have kernels, but not together, and are worth cutting; each with its reason."""
    reasons = {fallback.node: fallback.reason for fallback in written.fallbacks}
    kept = {region.index for region in written.regions}
    gone = [region for region in plan.regions if region.index not in kept and len(region.nodes) > FEW]
    return {region.index: reasons[region.nodes[0]] for region in gone}


def _never_slower(
    made: Made, findings: Findings, race: Callable[[Generated, Library], Findings]
) -> tuple[Made, Findings]:
    """What is not faster than stock falls back to it: some regions, or all."""
    if made.generated is None or made.library is None:
        return made, findings
    found = race(made.generated, made.library)
    findings = findings.merge(found)
    if not found.rejected:
        return made, findings
    plan, chosen = made.plan.without(found.rejected), made.generated.without(found.rejected)
    count = sum(len(region.nodes) for region in made.generated.regions if region.index in found.rejected)
    what = "some regions fall" if chosen.regions else "the model is stock's own, since all regions fall"
    note = f"Not faster than stock ONNX Runtime when timed: {what} back to it ({count} nodes). --no-timing keeps them."
    findings = dataclasses.replace(findings, notes=(*findings.notes, note))
    return (Made(plan, chosen, made.library) if chosen.regions else Made(plan)), findings


def _with_given(findings: Findings, source: Source, settings: Mapping[str, int]) -> Findings:
    """What the given sizes came to: those that no kernel feels are left out, and said."""
    unknown = unknown_settings(source, settings)
    used = {name: value for name, value in settings.items() if name not in unknown}
    note = f"{len(unknown)} of the {len(settings)} given sizes belong to kernels that this model does not have."
    return dataclasses.replace(findings, settings=used, notes=(*findings.notes, *([note] if unknown else [])))


def _examination(targets: Sequence[Target], options: Options, config: Config, dump: Dump) -> Examination | None:
    """Each region is verified against the reference, and timed when tuning; only where its code can run."""
    runnable = any(runs_on_host(t) for t in targets)
    verify, tune = options.verify and config.verify and runnable, (options.tune or config.tune) and runnable
    if not (verify or tune):
        return None
    force = options.force or config.force
    calls = cast("list[Mapping[str, Any]]", options.inputs or [])  # they were read
    calls = [options.feeds] if options.feeds is not None else calls
    gpu = tuning_provider(options.device, config) if tune else ""
    return Examination(
        verify,
        tune and (bool(gpu) or options.device in ("", "cpu")),
        options.threads,
        options.tune_seconds,
        calls[0] if calls else None,
        dump.calls,
        keep_unverified=force,
        recorded=options.recorded,
        more_feeds=tuple(calls[1:]),
        shapes={name: tuple(shape) for name, shape in options.shapes.items()},
        gpu=gpu,
    )
