"""A graph of AOTAutograd's -> a compiled function.

Input: a functional ATen graph (forward, backward or inference) and options. Output: a function in the boxed calling
convention. Invariant: by default nothing here raises: what cannot be lowered runs in torch, remembered and reported;
with `strict` the same is an error that lists the nodes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from smelt.base.errors import TorchError
from smelt.frontends.torch_compile._torch import no_modes, visible_results
from smelt.frontends.torch_compile.calls.on_device import OnDevice, device_index, results_on_device, to_host
from smelt.frontends.torch_compile.calls.on_gpu import on_gpu
from smelt.frontends.torch_compile.graph.random_nodes import free_random_nodes
from smelt.frontends.torch_compile.graph.shared_results import keep_shared
from smelt.frontends.torch_compile.graph.split import Part, Split, fallback_node, outer_graph, split
from smelt.frontends.torch_compile.graph.support import reason_to_stay
from smelt.frontends.torch_compile.graph.table_gradients import keep_table_gradients, spare_zeros
from smelt.frontends.torch_compile.graph.worth import kernels_pay
from smelt.frontends.torch_compile.graph.zero_sums import keep_zero_sums, spare_threads
from smelt.frontends.torch_compile.inspection.node_check import checked_nodes
from smelt.frontends.torch_compile.inspection.record import FallbackNode, GraphReport, report
from smelt.frontends.torch_compile.parts.part import CompiledPart, Fixed, compile_part, copied
from smelt.frontends.torch_compile.parts.sessions import Settings

Boxed = Callable[[list[Any]], Sequence[Any]]
_LISTED = 20


def lower(graph: GraphModule, kind: str, settings: Settings, fixed: Fixed | None = None) -> Boxed:
    """Compile what can be compiled; the rest stays in torch, inside the same function."""
    index = device_index(graph)
    if index is not None:
        host, places = copied(graph), results_on_device(graph)
        to_host(host)
        return OnDevice(lower(host, kind, settings, fixed), index, places)
    started = time.monotonic()
    seen = GraphReport(kind, sum(n.op == "call_function" for n in graph.graph.nodes))
    try:
        with no_modes():
            free_random_nodes(graph)
            keep_shared(graph, visible_results(kind))
            if not settings.options.strict:  # every node can leave torch, if it must
                keep_table_gradients(graph)
                if _may_have_kernels(graph, kind, settings):
                    keep_zero_sums(graph)
            function = _lowered(graph, on_gpu(graph, settings), fixed or Fixed(), seen)
    except Exception as error:
        if settings.options.strict:
            raise
        seen.fallback = f"{type(error).__name__}: {str(error)[:500]}"
        seen.parts.clear()
        warnings.warn(f"smelt: a {kind} graph of {seen.nodes} nodes runs in torch: {seen.fallback}", stacklevel=2)
        function = boxed(graph)
    finally:
        seen.seconds = time.monotonic() - started
        report(seen)
    return function


def _lowered(graph: GraphModule, settings: Settings, fixed: Fixed, seen: GraphReport) -> Boxed:
    cut = split(graph, partial(reason_to_stay, device=_device(settings)))
    seen.fallback_nodes = list(cut.fallback_nodes)
    if cut.fallback_nodes and settings.options.strict:
        raise _fell_back(cut.fallback_nodes)
    if settings.options.check == "nodes":
        return checked_nodes(cut, lambda part: _part(part, _plain(settings), fixed, seen), _tolerance(settings))
    calls = [_part(part, settings, fixed, seen) for part in cut.parts]
    direct = _direct(cut, calls) if seen.parts else None
    if direct is not None:
        return direct
    outer = outer_graph(cut, calls) if seen.parts else graph
    spare_zeros(outer)
    spare_threads(outer)
    return boxed(outer)


def _device(settings: Settings) -> torch.device:
    return torch.device("cpu" if settings.gpu is None else f"cuda:{settings.gpu.index}")


def _plain(settings: Settings) -> Settings:
    """Nodes by themselves are compared as the exporter writes them, without kernels."""
    return replace(settings, options=replace(settings.options, check=False, kernels=False, patterns="none"))


def _tolerance(settings: Settings) -> float:
    return settings.options.tolerance or 0.0


def _part(part: Part, settings: Settings, fixed: Fixed, seen: GraphReport) -> torch.nn.Module:
    """A part's session; the part itself, run by torch, where that cannot be made.

    Kernels of training graphs are verified on the arguments of the first call and, unless they were asked for, timed.
    """
    asked = settings.options.kernels
    settings = _decided(part.module, seen.kind, settings)
    record = seen.kind != "inference" and bool(settings.options.kernels) and settings.options.verify
    rival = record and asked is None
    try:
        call = compile_part(copied(part.module), settings, _fixed_of(part, fixed), record=record, rival=rival)
    except Exception as error:
        if settings.options.strict:
            raise
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        warnings.warn(f"smelt: {len(part.members)} nodes run in torch: {reason}", stacklevel=2)
        seen.fallback_nodes += [fallback_node(node, f"its part failed: {reason}") for node in part.members]
        return part.module
    seen.parts.append(call.report)
    return call


def _decided(module: GraphModule, kind: str, settings: Settings) -> Settings:
    """Whether a part gets kernels, where that was nodes open."""
    options = settings.options
    if options.kernels is not None or kind == "inference":
        return settings
    return replace(settings, options=replace(options, kernels=options.verify and kernels_pay(module, kind)))


def _may_have_kernels(graph: GraphModule, kind: str, settings: Settings) -> bool:
    return bool(_decided(graph, kind, settings).options.kernels)


def _fixed_of(part: Part, fixed: Fixed) -> Fixed:
    """What is fixed of a part's inputs, by the names of its own placeholders."""
    inner = [n for n in part.module.graph.nodes if n.op == "placeholder"]
    pairs = list(zip(inner, part.inputs, strict=True))
    constants = {copied.name: fixed.constants[node.name] for copied, node in pairs if node.name in fixed.constants}
    weights, guarded = (
        frozenset(copied.name for copied, node in pairs if node.name in names)
        for names in (fixed.weights, fixed.guarded)
    )
    return Fixed(constants, weights, guarded)


def _fell_back(nodes: Sequence[FallbackNode]) -> TorchError:
    lines = [f"{node.target}: {node.reason}" for node in nodes[:_LISTED]]
    more = [] if len(nodes) <= _LISTED else [f"... and {len(nodes) - _LISTED} more"]
    return TorchError(
        "SM-TORCH-001", f"{len(nodes)} nodes cannot run in ONNX Runtime:\n  " + "\n  ".join([*lines, *more]),
        node=nodes[0].name,
    )  # fmt: skip


def boxed(graph: GraphModule) -> Boxed:
    """The graph itself, run by torch."""

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        return graph(*given)

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _direct(cut: Split, calls: Sequence[torch.nn.Module]) -> Boxed | None:
    """Without the outer graph, where one part takes the graph's arguments and makes all its results."""
    nodes = list(cut.graph.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    results: Any = nodes[-1].args[0]
    if len(cut.parts) != 1 or not isinstance(calls[0], CompiledPart) or not isinstance(results, (tuple, list)):
        return None
    part, call = cut.parts[0], calls[0]
    found = [_pick(result, part, placeholders) for result in cast("Sequence[Any]", results)]
    picks = [pick for pick in found if pick is not None]
    if len(picks) < len(found) or any(node not in placeholders for node in part.inputs):
        return None
    places = [placeholders.index(node) for node in part.inputs]
    same = places == list(range(len(placeholders)))
    plain = picks == [("part", at) for at in range(len(part.outputs))]

    def whole(args: list[Any]) -> Sequence[Any]:
        """The part is the graph: nothing to pick. As `call.run` does, with one frame less."""
        try:
            made = call.call(args)
        except Exception as error:
            made = call.instead(error, args)
        args.clear()
        return made

    def run(args: list[Any]) -> Sequence[Any]:
        made = call.run([args[place] for place in places])
        made = [made[at] if kind == "part" else args[at] if kind == "argument" else at for kind, at in picks]
        args.clear()
        return made

    chosen = whole if same and plain else run
    chosen._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    chosen.whole = call if chosen is whole else None  # pyright: ignore[reportFunctionMemberAccess]
    chosen.only = (call, places) if plain else None  # pyright: ignore[reportFunctionMemberAccess]
    return chosen


def _pick(result: Any, part: Part, placeholders: Sequence[Node]) -> tuple[str, Any] | None:
    """Where a result comes from: the part, an argument, or itself when it is no node."""
    if not isinstance(result, Node):
        return "value", result
    if result in part.outputs:
        return "part", part.outputs.index(result)
    return ("argument", placeholders.index(result)) if result in placeholders else None
