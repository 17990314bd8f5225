"""`torch.compile(model, backend="smelt")`.

Input: a graph from Dynamo and example inputs. Output: a function with gradients. Invariant: results are torch's within
the numerics contract; parameters are read where they lie at every call, unless they were frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch.fx import GraphModule

from smelt.base.config import Config
from smelt.base.log import logger
from smelt.base.progress import open_progress
from smelt.frontends.torch_compile._torch import (
    aot_autograd,
    compiled_before,
    dynamo,
    frame_arguments,
    min_cut_rematerialization_partition,
    static_inputs,
)
from smelt.frontends.torch_compile.calls.bare import Bare
from smelt.frontends.torch_compile.calls.frozen import FrozenGraph, frozen_parameters
from smelt.frontends.torch_compile.calls.on_device import device_index
from smelt.frontends.torch_compile.graph.written_arguments import take_writes, with_writes
from smelt.frontends.torch_compile.inspection.debug import intercepted
from smelt.frontends.torch_compile.lower import Boxed, lower
from smelt.frontends.torch_compile.options import TorchOptions, read_options
from smelt.frontends.torch_compile.parts.part import Fixed
from smelt.frontends.torch_compile.parts.sessions import Settings

_log: Final = logger("torch")


def smelt_backend(
    graph: GraphModule, example_inputs: Sequence[Any], *, options: TorchOptions | Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """The backend that the entry point names."""
    del mode  # modes are inductor's
    config = Config.from_env()
    settings = Settings(read_options(options, config), config)
    if settings.options.intercept:
        return intercepted(graph, settings.options.intercept)
    what = _tell(graph)
    bare = Bare(len(example_inputs), frame_arguments(graph))
    with open_progress(config, what) as progress:  # tracing takes seconds before the first kernel is compiled
        step = progress.task(f"trace {what}", 1)
        wrapped = aot_autograd(
            fw_compiler=_compiler("forward", settings),
            bw_compiler=_compiler("backward", settings),
            inference_compiler=_inference_compiler(settings, list(example_inputs), bare),
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=not torch.is_grad_enabled(),
        )(graph, example_inputs)
        step()
    return bare.function(wrapped)


def _tell(graph: GraphModule) -> str:
    """What is compiled, and whether it is because Dynamo could not leave something free the first time."""
    count = sum(node.op != "placeholder" and node.op != "output" for node in graph.graph.nodes)
    what = f"a graph of {count} calls"
    _log.info("compiling %s from torch.compile", what)
    if compiled_before():
        _log.info(
            "the same function was compiled before: for another module, or Dynamo had fixed what has changed; "
            "torch.compile(..., dynamic=True) leaves sizes free, TORCH_LOGS=recompiles says what changed"
        )
    return what


def debug_backend(
    graph: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """`torch.compile(model, backend="smelt_debug")`: the reference evaluator of `onnx`, every result printed."""
    return smelt_backend(graph, example_inputs, options={"debug": True, **(options or {})}, mode=mode)


def _compiler(kind: str, settings: Settings) -> Callable[[GraphModule, Sequence[Any]], Any]:
    """Weights change with every step of training, so nothing is kept for them."""
    options = settings.options
    patterns = "training" if options.patterns is None else options.patterns
    settings = replace(settings, options=replace(options, patterns=patterns))

    def compile(graph: GraphModule, example_inputs: Sequence[Any]) -> Boxed:
        del example_inputs
        return lower(graph, kind, settings)

    return compile


def _inference_compiler(
    settings: Settings, given: list[Any], bare: Bare
) -> Callable[[GraphModule, Sequence[Any]], Any]:
    def compile(graph: GraphModule, example_inputs: Sequence[Any]) -> Boxed:
        del example_inputs
        static, writes = static_inputs(), take_writes(graph)
        parameters = (
            frozen_parameters(graph, static, given) if settings.options.freeze and device_index(graph) is None else {}
        )
        given.clear()
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        names = [node.name for node in placeholders]
        guarded = bare.guarded(names, static)
        if parameters:
            made = FrozenGraph(graph, settings, parameters, guarded)
        else:
            fixed = Fixed(weights=[names[at] for at in static if at < len(names)], guarded=guarded)
            made = lower(graph, "inference", settings, fixed)
        return bare.watch(with_writes(made, writes), placeholders)

    return compile


def register() -> None:
    """Make the name known where the package is used without being installed."""
    known = dynamo.list_backends(exclude_tags=())
    for name, backend in (("smelt", smelt_backend), ("smelt_debug", debug_backend)):
        if name not in known:
            dynamo.register_backend(backend, name=name)
