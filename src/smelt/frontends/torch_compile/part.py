"""One part of a graph -> a function over a session.

Input: a part as an FX graph, and options. Output: `CompiledPart`, called with the list of the part's inputs. Invariant:
a result is the session's, or torch's own where the session fails; a failure is remembered and reported, and never
hidden when `strict` is set.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
import torch
from torch.fx import GraphModule, Node

from smelt.base.config import Config
from smelt.export import ExportOptions, Translation, translate
from smelt.frontends.torch_compile.layout import Layouts, restrided, settle_layouts
from smelt.frontends.torch_compile.options import TorchOptions
from smelt.frontends.torch_compile.record import PartReport
from smelt.frontends.torch_compile.symbols import Sizes, sizes_of
from smelt.frontends.torch_compile.worth import kernels_pay
from smelt.ir.save import save_model
from smelt.passes import run_passes
from smelt.pipeline import Options, compile_to
from smelt.runtime import Executable, Feed, Fetch, Session, SessionSettings, TorchRunner, session_for
from smelt.runtime.torch_binding import integer_feed, number_feed

_CPU: Final = ("CPUExecutionProvider",)
_FAILURES: Final = 3  # after so many failed calls a part is left to torch


@dataclass(frozen=True)
class Settings:
    """All that lowering depends on."""

    options: TorchOptions
    config: Config


class CompiledPart(torch.nn.Module):
    """Runs one session in place of an FX graph."""

    def __init__(
        self, module: GraphModule, call: Callable[[Sequence[Any]], Sequence[Any]], report: PartReport, strict: bool
    ) -> None:
        super().__init__()
        self.eager = module
        self.call = call
        self.report = report
        self.strict = strict

    def forward(self, *args: Any) -> Sequence[Any]:
        return self.run(args)

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """What `forward` does, for a list."""
        try:
            return self.call(args)
        except Exception as error:
            if self.strict:
                raise
            self._failed(error)
        return self.eager(*args)

    def _in_torch(self, args: Sequence[Any]) -> Sequence[Any]:
        return self.eager(*args)

    def _failed(self, error: Exception) -> None:
        """The graph has no effects, so torch may compute it again, and raises where the fault is the arguments'."""
        self.report.failures += 1
        note = f"a call failed and torch computed it: {str(error)[:300]}"
        if self.report.failures == 1:
            self.report.notes.append(note)
            warnings.warn(f"smelt: {note}", stacklevel=4)
        if self.report.failures == _FAILURES:
            self.report.notes.append("left to torch after repeated failures")
            self.call = self._in_torch


def compile_part(module: GraphModule, settings: Settings, constants: Mapping[str, Any]) -> CompiledPart:
    """Translate, optimize, compile where that pays, and bind. `constants` are tensors by placeholder name."""
    started = time.monotonic()
    eager = GraphModule(module, torch.fx.Graph(tracer_cls=None))
    eager.graph = _copy(module.graph)
    eager.recompile()
    layouts = settle_layouts(module)
    translation = translate(module, options=ExportOptions(constants=constants))
    report = PartReport(sum(n.op == "call_function" for n in eager.graph.nodes), _node_count(translation.model))
    session = _session(module, translation, settings, report)
    call = _bound(module, translation, layouts, session, settings.options)
    report.seconds = time.monotonic() - started
    return CompiledPart(eager, call, report, settings.options.strict)


def _copy(graph: torch.fx.Graph) -> torch.fx.Graph:
    twin = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    output = twin.graph_copy(graph, copies)
    twin.output(output)
    return twin


def _node_count(model: ir.Model) -> int:
    return sum(1 for _ in model.graph)


# From the model to a session


def _session(module: GraphModule, translation: Translation, settings: Settings, report: PartReport) -> Session:
    options = settings.options
    model = _transformed(translation.model, options)
    wanted = options.kernels if options.kernels is not None else kernels_pay(module)
    folder = Path(tempfile.mkdtemp(prefix="smelt-"))
    try:
        if wanted:
            return _compiled(model, folder, settings, report)
        run_passes(model, skip=options.skip_passes)
        save_model(model, folder / "model.onnx", data_name="model.data")
        return session_for(folder / "model.onnx", None, session_settings(options))
    finally:
        # A session maps what it needs; the files are of no more use.
        shutil.rmtree(folder, ignore_errors=True)


def _compiled(model: ir.Model, folder: Path, settings: Settings, report: PartReport) -> Session:
    options = settings.options
    chosen = Options(
        verify=options.verify, tune=options.tune, skip_passes=tuple(options.skip_passes), threads=options.threads
    )
    result = compile_to(model, folder / "artifact", chosen, settings.config)
    report.kernels = result.library is not None
    report.in_kernels = sum(len(region.nodes) for region in result.plan.regions)
    report.left_to_ort = Counter((left.node.op_type, left.reason) for left in result.plan.left)
    report.notes += result.notes
    return Executable.open(result.artifact, session_settings(options)).session


def _transformed(model: ir.Model, options: TorchOptions) -> ir.Model:
    for transform in options.transforms:
        changed = transform(model)
        model = model if changed is None else changed
    return model


def session_settings(options: TorchOptions) -> SessionSettings:
    """How sessions run: on torch's number of threads unless told."""
    return SessionSettings(
        threads=options.threads or torch.get_num_threads(),
        providers=tuple(options.providers or _CPU),
        config=dict(options.session),
    )


# From a session to a function


def _bound(
    module: GraphModule, translation: Translation, layouts: Layouts, session: Session, options: TorchOptions
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    nodes = list(module.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    results: Sequence[Any] = nodes[-1].args[0]
    feeds = _feeds(translation, placeholders, layouts, session)
    made = _made(translation, results)
    names = [output.name or "" for output in translation.model.graph.outputs]
    fetches = [Fetch(names[at], _dtype(node)) for at, node in made.items()]
    sizes = _sizes(placeholders, list(made.values())) if options.preallocate else None
    runner = TorchRunner(session, feeds, fetches, sizes)
    return _assembled(runner, translation, layouts, list(made))


def _feeds(translation: Translation, placeholders: Sequence[Node], layouts: Layouts, session: Session) -> list[Feed]:
    known = {argument.name for argument in session.get_inputs()}
    feeds: list[Feed] = []
    for place, (slot, node) in enumerate(zip(translation.inputs, placeholders, strict=True)):
        if slot.index is None:
            continue
        name = translation.model.graph.inputs[slot.index].name or ""
        if name not in known:
            continue
        if slot.kind == "int":
            feeds.append(Feed(name, place, "int64", integer_feed()))
        elif slot.kind in ("float", "bool"):
            dtype = "bool" if slot.kind == "bool" else "float64"
            feeds.append(Feed(name, place, dtype, number_feed(dtype)))
        else:
            feeds.append(Feed(name, place, _dtype(node), layouts.before[place]))
    return feeds


def _made(translation: Translation, results: Sequence[Any]) -> dict[int, Any]:
    """The session's outputs that are wanted, each with an FX node that it is the value of."""
    found: dict[int, Any] = {}
    for slot, node in zip(translation.outputs, results, strict=True):
        if slot.kind in ("tensor", "int", "float", "bool") and slot.index is not None:
            found.setdefault(slot.index, node)
    return dict(sorted(found.items()))


def _dtype(node: Node) -> str:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    return "float64" if isinstance(value, (float, torch.SymFloat)) else "int64"


def _sizes(placeholders: Sequence[Node], nodes: Sequence[Node]) -> Sizes | None:
    values = [node.meta["val"] for node in nodes]
    return sizes_of(placeholders, [v.shape if isinstance(v, torch.Tensor) else () for v in values])


def _assembled(
    runner: TorchRunner, translation: Translation, layouts: Layouts, made: Sequence[int]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Put the session's outputs where the graph's results belong."""
    slots = translation.outputs
    plain = all(s.kind == "tensor" for s in slots) and [s.index for s in slots] == list(made)
    if plain and not layouts.restride and not any(layouts.after):
        return runner
    place = {index: at for at, index in enumerate(made)}
    after, restride = layouts.after, layouts.restride

    def call(args: Sequence[Any]) -> Sequence[Any]:
        given = runner(args)
        results: list[Any] = []
        for at, slot in enumerate(slots):
            if slot.kind == "tensor":
                result = given[place[slot.index]]  # pyright: ignore[reportArgumentType]
                change = after[at]
                if change is not None:
                    result = change(result)
                elif at in restride:
                    result = restrided(result, *restride[at](args))
            elif slot.kind in ("int", "float", "bool"):
                result = given[place[slot.index]].item()  # pyright: ignore[reportArgumentType]
            elif slot.kind == "input":
                result = args[slot.index]  # pyright: ignore[reportArgumentType, reportCallIssue]
            else:
                result = slot.value if slot.kind == "constant" else None
            results.append(result)
        return results

    return call
