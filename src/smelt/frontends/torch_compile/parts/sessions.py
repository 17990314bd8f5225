"""A translated model -> a session, found or made.

Input: a model whose weights are inputs or constants, and options. Output: `Made`: a session, the names of its inputs
and outputs, and the inputs that take panels of weights. Invariant: equal models with equal options share a session; the
least recently used is dropped; files are gone once a session is open.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
import torch
from torch.fx import GraphModule

from smelt.base.config import Config
from smelt.base.cpus import usable_cpus
from smelt.base.errors import ConfigError
from smelt.base.packages import is_installed
from smelt.base.progress import open_progress
from smelt.codegen import FedPanels, lift_panels
from smelt.export import Translation
from smelt.frontends.torch_compile.graph.symbols import mark_traced
from smelt.frontends.torch_compile.graph.worth import kernels_pay
from smelt.frontends.torch_compile.inspection.record import PartReport
from smelt.frontends.torch_compile.options import TorchOptions
from smelt.ir.save import save_model
from smelt.ir.walk import model_nodes
from smelt.ops.user import digest_of_kernels, is_user_op
from smelt.passes import Outcome, read_budget, run_passes
from smelt.pipeline import Options, compile_to
from smelt.runtime import Gpu, Session, SessionSettings, open_artifact, session_for

_CPU: Final = ("CPUExecutionProvider",)


@dataclass(frozen=True)
class Settings:
    """All that lowering depends on. `gpu`: where the tensors lie; None: on the CPU."""

    options: TorchOptions
    config: Config
    gpu: Gpu | None = None


@dataclass(frozen=True)
class Made:
    session: Session
    fed: tuple[FedPanels, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    nodes: int = 0
    kernels: bool = False
    in_kernels: int = 0
    fallbacks: tuple[tuple[tuple[str, str], int], ...] = ()
    notes: tuple[str, ...] = ()
    rules: tuple[tuple[str, Outcome], ...] = ()


_lock: Final = threading.Lock()
_known: Final[OrderedDict[str, Made]] = OrderedDict()


def session_for_model(
    module: GraphModule, translation: Translation, settings: Settings, report: PartReport, has_constants: bool,
    feeds: Mapping[str, Any] | None = None,
) -> Made:  # fmt: skip
    """A session for the model; one that was made for an equal model, unless it holds weights of its own.

    `feeds` are the inputs of a call, for kernels to be verified on.
    """
    options = settings.options
    model = _transformed(translation.model, options)
    wanted = options.kernels if options.kernels is not None else kernels_pay(module)
    key = "" if has_constants or not options.cache_size else _key(model, settings, wanted)
    made = _recall(key)
    if made is None:
        mark_traced(model, module, translation)  # not part of the key: it decides what kernels are verified on alone
        made = _made(model, settings, wanted, feeds)
        _remember(key, made, options.cache_size)
    report.onnx_nodes, report.kernels, report.in_kernels = made.nodes, made.kernels, made.in_kernels
    report.ort_fallbacks = Counter(dict(made.fallbacks))
    report.notes += made.notes
    for name, outcome in made.rules:
        count, seconds = report.rules.get(name, (0, 0.0))
        report.rules[name] = count + outcome.changes.total(), seconds + outcome.seconds
    return made


def forget_sessions() -> None:
    """Drop the sessions that are kept for graphs met again; those in use live on."""
    with _lock:
        _known.clear()


def _key(model: ir.Model, settings: Settings, wanted: bool) -> str:
    digest = hashlib.sha256(ir.to_proto(model).SerializeToString(deterministic=True))
    digest.update(repr((settings, wanted, torch.get_num_threads(), digest_of_kernels())).encode())
    return digest.hexdigest()


def _recall(key: str) -> Made | None:
    with _lock:
        made = _known.get(key) if key else None
        if made is not None:
            _known.move_to_end(key)
        return made


def _remember(key: str, made: Made, size: int) -> None:
    if not key:
        return
    with _lock:
        _known[key] = made
        while len(_known) > size:
            _known.popitem(last=False)


def _made(model: ir.Model, settings: Settings, wanted: bool, feeds: Mapping[str, Any] | None) -> Made:
    options = settings.options
    inputs = tuple(v.name or "" for v in model.graph.inputs)
    outputs = tuple(v.name or "" for v in model.graph.outputs)
    folder = Path(tempfile.mkdtemp(prefix="smelt-"))
    try:
        notes = _without_triton(settings)
        user = any(is_user_op(node) for node in model_nodes(model))  # stock has no kernel for these
        if user or (wanted and not notes):
            return _compiled(model, folder / "artifact", settings, inputs, outputs, feeds)
        rules = tuple(run_passes(model, skip=options.skip_passes, patterns=options.patterns))
        save_model(model, folder / "model.onnx", data_name="model.data")
        session = session_for(folder / "model.onnx", None, session_settings(options, gpu=settings.gpu))
        return Made(session, (), inputs, outputs, len(model.graph), rules=rules, notes=notes if wanted else ())
    finally:
        # A session maps what it needs; the files are of no more use.
        shutil.rmtree(folder, ignore_errors=True)


def _without_triton(settings: Settings) -> tuple[str, ...]:
    """Why a session on a GPU gets no kernels."""
    if settings.gpu is None or is_installed("triton"):
        return ()
    return ("no kernels, a plain session instead: kernels for a GPU need Triton: pip install 'onnx-smelt[triton]'",)


def _compiled(
    model: ir.Model, folder: Path, settings: Settings, inputs: tuple[str, ...], outputs: tuple[str, ...],
    feeds: Mapping[str, Any] | None,
) -> Made:  # fmt: skip
    options = settings.options
    chosen = Options(
        verify=options.verify, tune=options.tune, skip_passes=tuple(options.skip_passes), patterns=options.patterns,
        threads=options.threads, feeds=feeds, recorded=feeds is not None, precision=options.precision,
        accuracy=options.accuracy, calibrate=options.calibrate, budget=read_budget(options.budget, options.precision),
        metric=options.metric,
        ephemeral=True,
        device="" if settings.gpu is None else settings.gpu.kind,
    )  # fmt: skip
    what = f"a graph of {len(model.graph)} ONNX nodes"
    with open_progress(settings.config, what) as progress:  # whoever waits sees what for
        result = compile_to(model, folder, chosen, settings.config, progress, what)
    opened = open_artifact(result.artifact.directory)
    lifted = ir.load(opened.model)
    fed = lift_panels(lifted)
    how = session_settings(options, folder, settings.gpu)
    source = ir.to_proto(lifted).SerializeToString() if fed else opened.model
    in_kernels = sum(len(region.nodes) for region in result.plan.regions)
    return Made(
        session_for(source, opened.library, how), fed, inputs, outputs, in_kernels + len(result.plan.fallbacks),
        kernels=result.library is not None,
        in_kernels=in_kernels,
        fallbacks=tuple(Counter((f.node.op_type, f.reason) for f in result.plan.fallbacks).items()),
        notes=result.notes,
        rules=result.passes,
    )  # fmt: skip


def _transformed(model: ir.Model, options: TorchOptions) -> ir.Model:
    for transform in options.transforms:
        changed: object = transform(model)
        if changed is not None and not isinstance(changed, ir.Model):
            kind = type(changed).__name__
            raise ConfigError("SM-CONFIG-007", f"a transform returns an onnx_ir.Model or None, not a {kind}")
        model = model if changed is None else changed
    return model


def session_settings(options: TorchOptions, data_dir: Path | None = None, gpu: Gpu | None = None) -> SessionSettings:
    """How sessions run: on torch's number of threads unless told."""
    given = tuple(options.providers or ())
    return SessionSettings(
        threads=options.threads or min(torch.get_num_threads(), usable_cpus().count),
        providers=(given or _CPU) if gpu is None else gpu.providers(given),
        config=dict(options.session),
        external_data_dir=data_dir,
    )
