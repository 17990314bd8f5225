"""One part of a graph -> a function over a session.

Input: a part as an FX graph, and options. Output: `CompiledPart`, called with the list of the part's inputs. Invariant:
a result is the session's, or torch's own where the session fails; a failure is remembered and reported, and never
hidden when `strict` is set.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import GraphModule, Node

from smelt.codegen import FedPanels
from smelt.export import ExportOptions, InputSlot, OutputSlot, Translation, translate
from smelt.frontends.dumping import Dumped, as_array, dump_target
from smelt.frontends.ranges import range_of, ranged
from smelt.frontends.torch_compile._torch import is_dense
from smelt.frontends.torch_compile.calls.on_device import tensors_of, to_host
from smelt.frontends.torch_compile.graph.layout import Layouts, normalize_layouts, restrided, with_pairs
from smelt.frontends.torch_compile.graph.symbols import Shapes, Sizes, shape_in_session, sizes_of
from smelt.frontends.torch_compile.graph.written_arguments import replaced
from smelt.frontends.torch_compile.inspection.debug import checked
from smelt.frontends.torch_compile.inspection.record import PartReport
from smelt.frontends.torch_compile.inspection.reference import TellingEvaluator
from smelt.frontends.torch_compile.options import TorchOptions
from smelt.frontends.torch_compile.parts.first_call import Call, Feeds, FirstCall, Rival
from smelt.frontends.torch_compile.parts.sessions import Made, Settings, session_for_model
from smelt.frontends.torch_compile.parts.weights import FedWeights
from smelt.ir.weights import mark_weight
from smelt.runtime import Feed, Fetch, Gpu, Session, TorchRunner, integer_feed, number_feed

_FAILURES: Final = 3  # after so many failed calls a part is left to torch


@dataclass(frozen=True)
class Fixed:
    """Placeholders of which more is known than their types, by name.

    Those that seldom change: `constants` with their tensors, `weights` that stay inputs. `guarded`: whoever calls has
    made sure of dtype, sizes and strides.
    """

    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    weights: Collection[str] = ()
    guarded: Collection[str] = ()


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
            return self.instead(error, args)

    def instead(self, error: Exception, args: Sequence[Any]) -> Sequence[Any]:
        """The part's results from torch after a call has failed."""
        if self.strict:
            raise error
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


def compile_part(
    module: GraphModule, settings: Settings, fixed: Fixed, *, record: bool = False, rival: bool = False
) -> CompiledPart:
    """Translate, optimize, compile where that pays, and bind. With `record`, the latter wait for the first call; with
    `rival`, its kernels must not be slower there than a plain session."""
    started = time.monotonic()
    options = settings.options
    eager = copied(module)
    if settings.gpu is not None:
        to_host(module, "cuda")
    layouts = normalize_layouts(module)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    constants = _as_strided(fixed.constants, placeholders, layouts)
    layouts = with_pairs(layouts, module)
    with range_of("smelt.export"):
        chosen = ExportOptions(constants=constants, exporter=options.exporter or "smelt")
        translation = translate(module, options=chosen)
    report = PartReport(sum(n.op == "call_function" for n in eager.graph.nodes), _node_count(translation.model))
    target = dump_target(options.dump)
    dumped = None if target is None else Dumped(target, translation.model, _graph_text(module))

    def finished(call: Call) -> Call:
        report.seconds = time.monotonic() - started
        return call if options.tolerance is None else checked(call, eager, options.tolerance)

    def bound(translation: Translation, settings: Settings, feeds: Feeds | None, told: PartReport = report) -> Call:
        """A session for the part, and the function that calls it."""
        with range_of("smelt.compile"):
            made = session_for_model(module, translation, settings, told, bool(constants), feeds)
        interface = Interface.of(translation, made, eager, settings.gpu)
        return finished(_bound(module, interface, layouts, options, dumped, fixed.guarded))

    strict = options.strict or options.tolerance is not None
    if options.debug:
        return CompiledPart(
            eager, finished(ranged(_told(module, translation, layouts, options.debug), "smelt.run")), report, strict
        )
    _mark_weights(translation, placeholders, fixed.weights)
    if not record:
        return CompiledPart(eager, bound(translation, settings, None), report, strict)
    spare = replace(translation, model=translation.model.clone())
    plain = replace(settings, options=replace(options, kernels=False))
    described = Interface.unopened(translation)
    part = CompiledPart(eager, _unbound, report, strict)
    part.call = FirstCall(
        lambda args: _fed(described, layouts, args), lambda feeds: bound(translation, settings, feeds),
        lambda: bound(spare, plain, None), lambda call: setattr(part, "call", call), report.notes,
        Rival(lambda: bound(spare, plain, None, PartReport(0)), report) if rival else None,
    )  # fmt: skip
    return part


def _unbound(_args: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("a part is bound before it is called")


def _as_strided(constants: Mapping[str, Any], placeholders: Sequence[Node], layouts: Layouts) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for node, change in zip(placeholders, layouts.before, strict=True):
        if node.name in constants:
            tensor = constants[node.name].detach()
            made[node.name] = (tensor if change is None else change(tensor)).contiguous().cpu()
    return made


def _mark_weights(translation: Translation, placeholders: Sequence[Node], weights: Collection[str]) -> None:
    for slot, node in zip(translation.inputs, placeholders, strict=True):
        value = node.meta.get("val")
        if slot.index is not None and node.name in weights and isinstance(value, torch.Tensor) and value.dim() >= 2:
            mark_weight(translation.model.graph.inputs[slot.index])


def copied(module: GraphModule) -> GraphModule:
    """A copy that later changes of the graph do not reach."""
    return GraphModule(module, _copy(module.graph))


def _copy(graph: torch.fx.Graph) -> torch.fx.Graph:
    copied = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    output = copied.graph_copy(graph, copies)
    copied.output(output)
    return copied


def _node_count(model: ir.Model) -> int:
    return sum(1 for _ in model.graph)


# From a session to a function


@dataclass(frozen=True)
class Interface:
    """A session beside what the translation says of it. Names are kept: the model itself is of no more use.

    `host_inputs` and `host_outputs` are the arguments and results that lie on the CPU where the session is on a GPU.
    """

    session: Session | None
    fed: tuple[FedPanels, ...]
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    gpu: Gpu | None = None
    host_inputs: frozenset[int] = frozenset()
    host_outputs: frozenset[int] = frozenset()

    @classmethod
    def of(cls, translation: Translation, made: Made, graph: GraphModule, gpu: Gpu | None) -> Interface:
        *nodes, output = graph.graph.nodes
        placeholders = [node for node in nodes if node.op == "placeholder"]
        results = cast("Sequence[Any]", output.args[0])
        return cls(
            made.session, made.fed, translation.inputs, translation.outputs, made.input_names, made.output_names, gpu,
            _on_host(placeholders), _on_host(results),
        )  # fmt: skip

    @classmethod
    def unopened(cls, translation: Translation) -> Interface:
        """Without a session: what the model takes and gives."""
        graph = translation.model.graph
        inputs, outputs = (tuple(value.name or "" for value in values) for values in (graph.inputs, graph.outputs))
        return cls(None, (), translation.inputs, translation.outputs, inputs, outputs)


def _on_host(nodes: Sequence[Any]) -> frozenset[int]:
    """Places of the nodes that are no tensors of a GPU: sizes and numbers as well."""
    return frozenset(
        place for place, node in enumerate(nodes)
        if not isinstance(node, Node) or all(value.device.type == "cpu" for value in tensors_of(node))
    )  # fmt: skip


def _told(
    module: GraphModule, translation: Translation, layouts: Layouts, debug: bool | Callable[[str], None]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The reference evaluator in place of a session, which tells of every result."""
    graph = translation.model.graph
    evaluator = TellingEvaluator(translation.model, debug if callable(debug) else print)
    kinds = {value.name: value.dtype.numpy() for value in graph.inputs if value.dtype is not None}
    interface = Interface.unopened(translation)
    made = _made(translation.outputs, list(module.graph.nodes)[-1].args[0])
    dtypes = [getattr(torch, _dtype(node)) for node in made.values()]

    def runner(args: Sequence[Any]) -> list[Any]:
        fed = {name: as_array(value) for name, value in _fed(interface, layouts, args).items()}
        found = evaluator.run({name: array.astype(kinds[name]) for name, array in fed.items()})
        return [_tensor(found[at], dtype) for at, dtype in zip(made, dtypes, strict=True)]

    return _assembled(runner, interface, layouts, list(made))


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    plain = np.asarray(array)
    plain = plain if plain.dtype.kind in "biuf" else plain.astype(np.float32)
    return torch.from_numpy(np.array(plain, order="C")).to(dtype)


def _tapped(
    runner: Callable[[Sequence[Any]], list[Any]], dumped: Dumped | None, interface: Interface, layouts: Layouts,
    made: Sequence[int],
) -> Callable[[Sequence[Any]], list[Any]]:  # fmt: skip
    """The runner, whose calls are kept beside the dumped model."""
    if dumped is None:
        return runner

    def run(args: Sequence[Any]) -> list[Any]:
        kept = _fed(interface, layouts, args) if dumped.wanted else None
        results = runner(args)
        if kept is not None:
            names = [interface.output_names[at] for at in made]
            dumped.call(kept, dict(zip(names, results, strict=True)))
        return results

    return run


def _graph_text(module: GraphModule) -> str:
    return str(module.print_readable(print_output=False)) + "\n" + str(module.graph)


def _bound(
    module: GraphModule, interface: Interface, layouts: Layouts, options: TorchOptions, dumped: Dumped | None,
    guarded: Collection[str],
) -> Callable[[Sequence[Any]], Sequence[Any]]:  # fmt: skip
    nodes = list(module.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    results: Sequence[Any] = nodes[-1].args[0]
    feeds = _feeds(interface, placeholders, layouts, guarded)
    made = _made(interface.outputs, results)
    host = {slot.index for place, slot in enumerate(interface.outputs) if place in interface.host_outputs}
    fetches = [
        Fetch(interface.output_names[at], _dtype(node), on_host=at in host, over=_over(node, placeholders, layouts))
        for at, node in made.items()
    ]
    sizes = _sizes(placeholders, list(made.values())) if options.preallocate else None
    if not interface.fed:
        plain = TorchRunner(_opened(interface), feeds, fetches, sizes, interface.gpu).call
        return _assembled(_tapped(plain, dumped, interface, layouts, list(made)), interface, layouts, list(made))
    places = _places(interface)
    weights = FedWeights(interface.fed, places, [layouts.before[place] for place in places])
    feeds += [Feed(fed.name, len(placeholders) + at, fed.dtype, on_host=True) for at, fed in enumerate(interface.fed)]
    runner = TorchRunner(_opened(interface), feeds, fetches, sizes, interface.gpu).call

    def with_panels(args: Sequence[Any]) -> list[Any]:
        return runner([*args, *weights.panels(args)])

    return _assembled(_tapped(with_panels, dumped, interface, layouts, list(made)), interface, layouts, list(made))


def _over(node: Any, placeholders: Sequence[Node], layouts: Layouts) -> int | None:
    """The argument whose memory a result may lie in, if that is laid out as the session takes it."""
    target = replaced(node)
    place = placeholders.index(target) if target in placeholders else None
    return place if place is not None and layouts.before[place] is None else None


def _opened(interface: Interface) -> Session:
    assert interface.session is not None
    return interface.session


def _fed(interface: Interface, layouts: Layouts, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments by the names of the model's inputs, laid out as it takes them."""
    found: dict[str, Any] = {}
    for place, slot in enumerate(interface.inputs):
        if slot.index is not None:
            change = layouts.before[place]
            found[interface.input_names[slot.index]] = args[place] if change is None else change(args[place])
    return found


def _places(interface: Interface) -> list[int]:
    """The arguments that the fed weights come as."""
    place = {
        interface.input_names[slot.index]: at for at, slot in enumerate(interface.inputs) if slot.index is not None
    }
    return [place[fed.source] for fed in interface.fed]


def _feeds(
    interface: Interface, placeholders: Sequence[Node], layouts: Layouts, guarded: Collection[str]
) -> list[Feed]:
    known = {argument.name for argument in _opened(interface).get_inputs()}
    feeds: list[Feed] = []
    for place, (slot, node) in enumerate(zip(interface.inputs, placeholders, strict=True)):
        if slot.index is None or interface.input_names[slot.index] not in known:
            continue
        name = interface.input_names[slot.index]
        if slot.kind == "int":
            feeds.append(Feed(name, place, "int64", integer_feed(), shape=(), sure=True, on_host=True))
        elif slot.kind in ("float", "bool"):
            dtype = "bool" if slot.kind == "bool" else "float64"
            feeds.append(Feed(name, place, dtype, number_feed(dtype), on_host=True))
        else:
            change = layouts.before[place]
            value = node.meta["val"]
            sure = node.name in guarded and change is None and is_dense(value)
            shape = _fixed_shape(value) if sure else None
            on_host = place in interface.host_inputs
            feeds.append(Feed(name, place, _dtype(node), change, shape, sure, on_host))
    return feeds


def _fixed_shape(value: torch.Tensor) -> tuple[int, ...] | None:
    """The sizes of a tensor, if all are numbers."""
    sizes = tuple(value.shape)
    return sizes if all(type(size) is int for size in sizes) else None


def _made(slots: Sequence[OutputSlot], results: Sequence[Any]) -> dict[int, Any]:
    """The session's outputs that are wanted, each with an FX node that it is the value of."""
    found: dict[int, Any] = {}
    for slot, node in zip(slots, results, strict=True):
        if slot.kind in ("tensor", "int", "float", "bool") and slot.index is not None:
            found.setdefault(slot.index, node)
    return dict(sorted(found.items()))


def _dtype(node: Node) -> str:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return str(value.dtype.to_real()).removeprefix("torch.")
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    return "float64" if isinstance(value, (float, torch.SymFloat)) else "int64"


def _sizes(placeholders: Sequence[Node], nodes: Sequence[Node]) -> Sizes | Shapes | None:
    values = [node.meta["val"] for node in nodes]
    return sizes_of(placeholders, [shape_in_session(v) if isinstance(v, torch.Tensor) else () for v in values])


def _assembled(
    runner: Callable[[Sequence[Any]], list[Any]], interface: Interface, layouts: Layouts, made: Sequence[int]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Put the session's outputs where the graph's results belong."""
    slots = interface.outputs
    plain = all(s.kind == "tensor" for s in slots) and [s.index for s in slots] == list(made)
    if plain and not layouts.restride and not layouts.pairs and not any(layouts.after):
        return runner
    place = {index: at for at, index in enumerate(made)}
    takers = [_taker(at, slot, place, layouts) for at, slot in enumerate(slots)]

    def call(args: Sequence[Any]) -> Sequence[Any]:
        given = runner(args)
        return [take(given, args) for take in takers]

    return call


Taker = Callable[[Sequence[Any], Sequence[Any]], Any]


def _joined(pairs: torch.Tensor, change: Callable[[Any], Any] | None, strided: Any) -> torch.Tensor:
    """A complex tensor from pairs of real numbers, laid out as torch expects it."""
    result = torch.complex(pairs[..., 0], pairs[..., 1])
    if change is not None:
        return change(result)
    return result if strided is None else restrided(result, *strided)


def _taker(at: int, slot: OutputSlot, place: Mapping[int, int], layouts: Layouts) -> Taker:
    """How one result is taken from the session's outputs and the arguments."""
    if slot.index is None:
        held = slot.value if slot.kind == "constant" else None
        return lambda _given, _args: held
    index = slot.index
    if slot.kind == "input":
        return lambda _given, args: args[index]
    source = place[index]
    if slot.kind != "tensor":
        return lambda given, _args: given[source].item()
    change, restride = layouts.after[at], layouts.restride.get(at)
    if at in layouts.pairs:
        return lambda given, args: _joined(given[source], change, None if restride is None else restride(args))
    if change is not None:
        return lambda given, _args: change(given[source])
    if restride is not None:
        return lambda given, args: restrided(given[source], *restride(args))
    return lambda given, _args: given[source]
