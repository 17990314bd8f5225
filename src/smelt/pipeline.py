"""The order of things, on one page.

Input: a model (path, bytes, ModelProto, onnx_ir.Model) and options. Output: an artifact folder and a `Result` that says
what happened. Invariant: the folder is complete or absent; the model's inputs and outputs are unchanged.

    load -> passes -> analyze -> capture -> generate -> build -> tune -> examine -> time -> rewrite -> save

A fault inside a stage costs the pass, node or region that it belongs to, and is in the result (`ir/faults.py`).
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.artifact import check_replaceable, check_writable, replace_library, save_artifact, save_untouched
from smelt.base.collector import rare_collections
from smelt.base.config import Config
from smelt.base.errors import KernelError, LoadError, ModelError, PassError
from smelt.base.log import logger
from smelt.base.progress import Progress, Silent
from smelt.check import Findings
from smelt.check.demands import check_demands, unmet_demand
from smelt.check.dump import Dump
from smelt.check.given_inputs import check_shapes, given_calls
from smelt.check.race_ahead import RaceAhead
from smelt.check.standalone_program import rebuild
from smelt.check.stock_load import stock_error
from smelt.codegen import Backends, attach_packed, find_backends, with_inputs
from smelt.ir.backend import Generated
from smelt.ir.faults import Fault, Faults
from smelt.ir.load import load_model
from smelt.ir.records import Artifact, Fallback, Library, Plan
from smelt.ir.save import save_model, weight_bytes
from smelt.ir.spilled import drop_all_pages
from smelt.ir.verbatim import Verbatim, may_be_held_by_stock
from smelt.ir.walk import model_nodes
from smelt.kernels import Circumstances, Made, compile_early, make_kernels
from smelt.lowered import Accuracy, Lowered
from smelt.ops import analyze
from smelt.ops.user import is_user_op, load_kernel_files
from smelt.options import Clock, Options, Stage, for_device
from smelt.partition import capture, rewrite
from smelt.passes import BindDims, cast_for_stock, check_narrow, narrow, ort_preoptimize, run_passes
from smelt.report import count_ops, counted, op_name
from smelt.toolchain import Cache, usable_root

_log: Final = logger("pipeline")
_MAX_ORIGINAL: Final = 20_000  # nodes; a longer model is compared as the passes left it, for the time that a copy takes


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
    accuracy: Accuracy | None = None  # of a lower precision


@rare_collections()
def compile_to(
    source: Any, directory: Path, options: Options | None = None, config: Config | None = None,
    progress: Progress | None = None, title: str = "",
) -> Result:  # fmt: skip
    """Compile a model into an artifact folder, which must not exist yet or be an artifact to replace.

    `title` is how reports call the model, where `source` is no path.
    """
    options, config, progress = for_device(options or Options()), config or Config.from_env(), progress or Silent()
    check_replaceable(directory)
    check_writable(directory)
    check_demands(options, config)
    check_narrow(options.precision, options.accuracy)
    if not options.precision:
        return _compile(source, directory, options, config, progress, title)
    with Lowered(source, options, config, progress) as lowered:
        named = title or _title(source)
        made = _compile(lowered.source, directory, lowered.options, config, progress, named)
        accuracy = lowered.measure(made.artifact.directory)
        return dataclasses.replace(made, notes=(*made.notes, *lowered.notes(accuracy)), accuracy=accuracy)


def _compile(
    source: Any, directory: Path, options: Options, config: Config, progress: Progress, title: str
) -> Result:  # fmt: skip
    find_backends(options.backend or config.backend)
    load_kernel_files(config.kernels)
    config, spare = _with_cache(config)
    clock, dump = Clock(), Dump(options.dump)
    faults = Faults(config.strict, title or _title(source))
    with clock("load"):
        try:
            model, narrowed = _load(source, options)
        except (LoadError, ModelError) as error:
            return _untouched(source, directory, options, config, error, clock)
        check_writable(directory, weight_bytes(model))
        counts = count_ops(model)
        name = title or _title(source) or "a model"
        _log.info("compiling %s: %s", name, counted(sum(counts.values()), "node"))
        dump.model("00-captured", model)
        original = model.clone() if options.verify and config.verify and len(model.graph) <= _MAX_ORIGINAL else None
        options = _with_given_inputs(model, options)
        overridable = _overridable(model)
    early = compile_early(model_nodes(model), options, config)
    with clock("passes"):
        model, passes, skipped = _prepare(model, source, options, dump, faults)
        dump.model("10-model", model)
        drop_all_pages(model)
    given = Circumstances(options, config, progress, clock, dump, faults)
    plan, backends = _plan(model, given)
    dump.plan(plan)
    with RaceAhead(_stock_file(source, options)) as race:
        made = make_kernels(model, original, backends, plan, given, race, early)
    if early is not None:
        early.close()
    _check_user_kernels(made.plan)
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
    total = inside + len(made.plan.fallbacks)
    _log.info("%s: %d of %d nodes in kernels, %.1f s", name, inside, total, clock.total)
    return Result(
        artifact, made.plan, made.generated, made.library, passes, tuple(clock.stages),
        (*spare, *narrowed, *_frozen_note(frozen), *made.notes), made.findings, faults.found(), counts, skipped,
    )  # fmt: skip


def _with_cache(config: Config) -> tuple[Config, tuple[str, ...]]:
    """A cache that can be written, and a note where that is not the one that was asked for."""
    root = usable_root(config.cache_dir)
    if root == config.cache_dir:
        return config, ()
    return config.with_(cache_dir=root), (f"The cache {config.cache_dir} cannot be written: nothing is kept.",)


def _untouched(
    source: Any, directory: Path, options: Options, config: Config, error: LoadError | ModelError, clock: Clock
) -> Result:
    """An artifact of the model as it is, where no Model holds it and stock ONNX Runtime does; else the error."""
    model = Verbatim.read(source) if may_be_held_by_stock(error) and not options.preoptimize else None
    if model is None:
        raise error
    refused = stock_error(model, Cache(config.cache_dir), config)
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
    counts = Counter(op_name(fallback.node) for fallback in plan.fallbacks)
    return Result(artifact, plan, None, None, (), tuple(clock.stages), (note,), counts=counts)


def resume_from(dump: Path, artifact: Path, directory: Path, config: Config | None = None) -> Artifact:
    """Build the sources of a dump again, as they are now, and put the library into a copy of the artifact."""
    return replace_library(artifact, rebuild(dump, config or Config.from_env()), directory)


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


def _load(source: Any, options: Options) -> tuple[ir.Model, tuple[str, ...]]:
    """The model in the precision that was asked for, and notes on that."""
    model = _optimized(load_model(source), options)
    return model, narrow(model, "" if options.narrowed else options.precision, options.accuracy)


def _optimized(model: ir.Model, options: Options) -> ir.Model:
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
            model, _ = _load(source, options)


def _plan(model: ir.Model, given: Circumstances) -> tuple[Plan, Backends]:
    """Regions, and why the rest is left."""
    plan, backends = _captured(model, given)
    if cast_for_stock(model, {fallback.node for fallback in plan.fallbacks}):
        return _captured(model, given)
    return plan, backends


def _captured(model: ir.Model, given: Circumstances) -> tuple[Plan, Backends]:
    options, config, faults = given.options, given.config, given.faults
    with given.clock("analyze"):
        kinds = find_backends(options.backend or config.backend)
        backends = Backends(kinds, analyze(model, faults), list(model.graph.inputs))
    with given.clock("capture"):
        try:
            force = options.force or config.force
            return capture(model, backends.all, options.select, options.exclude, force, faults), backends
        except Exception as error:
            reason = faults.contain("capture", error)
            return Plan((), tuple(Fallback(node, reason) for node in model_nodes(model))), backends


def _check_user_kernels(plan: Plan) -> None:
    """Stock ONNX Runtime has nothing to run in the place of a kernel of the user's own."""
    for fallback in plan.fallbacks:
        if is_user_op(fallback.node):
            name = f"{fallback.node.domain}::{fallback.node.op_type}"
            raise KernelError("SM-KERNEL-003", f"kernel {name} cannot run in this model: {fallback.reason}")


def _stock_file(source: Any, options: Options) -> Path | None:
    """The file that users would run in stock ONNX Runtime; the prepared model stands for anything else."""
    changed = options.preoptimize or options.precision or options.accuracy != "exact"
    return Path(source) if isinstance(source, (str, Path)) and not changed else None


def _rewritten(
    model: ir.Model, made: Made, source: Any, options: Options, faults: Faults
) -> tuple[ir.Model, Made]:  # fmt: skip
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
    given, _ = _load(source, options)
    if options.dims:
        BindDims(options.dims)(given)
    return given


def _rewrite(model: ir.Model, generated: Generated, plan: Plan) -> None:
    packed = attach_packed(model, generated.codes, generated.packed)
    generated.packed.clear()  # the model has them now
    regions = [with_inputs(r, c, packed) for r, c in zip(generated.regions, generated.codes, strict=True)]
    names = {r.index: entry for r, entry in zip(regions, generated.entry_of, strict=True)}
    rewrite(model, Plan(tuple(regions), plan.fallbacks), generated.source.domain, names)
    run_passes(model, only=("remove-unused",))
